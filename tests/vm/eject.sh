# SPDX-License-Identifier: GPL-2.0-only
# vm: --cpus 2 --llcs 1 --nodes 1
# Ejected by the kernel, by SysRq and by the watchdog: reason and dump are printed, the exit status is 1, life goes on.
. /root/lib.sh

start_magpie
echo S >/proc/sysrq-trigger
wait $MAGPIE
[ $? = 1 ] || fail "exit status not 1 after SysRq-S"
wait_for 10 "state disabled" is_state disabled
say "$(grep -a EXIT $LOG | head -n 1)"

# A real-time hog leaves CPU 1 to nobody, and the watchdog sees a task wait too long.
echo -1 >/proc/sys/kernel/sched_rt_runtime_us
for server in /sys/kernel/debug/sched/*_server/cpu1/runtime; do
	[ ! -e "$server" ] || echo 0 >"$server"
done
start_magpie --timeout-ms 1000
hog taskset 2
waiter=$HOG
hog taskset 2 chrt -f 50
wait $MAGPIE
[ $? = 1 ] || fail "exit status not 1 after a stall"
kill -9 $HOG $waiter
wait_for 10 "state disabled" is_state disabled
grep -q "runnable task stall" $LOG || fail "no reason"
grep -q "DEBUG DUMP" $LOG || fail "no dump"
grep -q "magpie: vruntime" $LOG || fail "nothing of ours in the dump"
say "$(grep -a EXIT $LOG | head -n 1)"

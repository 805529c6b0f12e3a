# SPDX-License-Identifier: GPL-2.0-only
# vm: --cpus 2 --llcs 1 --nodes 1
# Ejected by the kernel, by SysRq and by the watchdog: reason and dump are printed, the exit status is 1, life goes on.
. /root/lib.sh

# ejected: the exit status is 1, the kernel has its scheduler back, and the log names the reason.
ejected() {
	wait_for 60 "ejection" is_gone
	wait $MAGPIE
	[ $? = 1 ] || fail "exit status not 1"
	wait_for 10 "state disabled" is_state disabled
	grep -q "$1" $LOG || fail "no '$1'"
	say "$(grep -a 'scx_magpie: EXIT' $LOG)"
}

is_gone() {
	! kill -0 $MAGPIE
}

start_magpie
echo S >/proc/sysrq-trigger
ejected "disabled by sysrq-S"

# A real-time hog leaves CPU 1 to nobody else for 5 s, and the watchdog sees a task wait too long. (For good would be
# worse than meant: the kernel's own threads that end a scheduler wait for that CPU, too.)
start_magpie --timeout-ms 1000
echo -1 >/proc/sys/kernel/sched_rt_runtime_us
for server in /sys/kernel/debug/sched/*_server/cpu1/runtime; do
	[ ! -e "$server" ] || echo 0 >"$server"
done
hog taskset 2
hog timeout -s KILL 5 taskset 2 chrt -f 50
ejected "runnable task stall"
grep -q "DEBUG DUMP" $LOG || fail "no dump"
grep -q "magpie: vruntime" $LOG || fail "nothing of ours in the dump"

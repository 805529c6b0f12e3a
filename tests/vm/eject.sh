# SPDX-License-Identifier: GPL-2.0-only
# vm: --cpus 2 --llcs 1 --nodes 1
# Ejected by the kernel, by SysRq and by the watchdog: reason and dump are printed, the exit status is 12 or 1, life goes on. Also if
# a task's name is no UTF-8, and of control characters: these do not reach the terminal.
. /root/lib.sh

# ejected STATUS REASON: the exit status is so, the kernel has its scheduler back, and the log and `status` name the reason.
ejected() {
	wait_for 60 "ejection" is_gone
	wait $MAGPIE
	status=$?
	[ $status = "$1" ] || fail "exit status $status, not $1"
	wait_for 10 "state disabled" is_state disabled
	grep -q "$2" $LOG || fail "no '$2'"
	scx_magpie status 2>&1 | grep -q "failures since boot: .*$2" || fail "status does not tell: $(scx_magpie status 2>&1)"
	say "$(grep -a 'scx_magpie: EXIT' $LOG)"
}

is_gone() {
	! kill -0 $MAGPIE
}

start_magpie
echo S >/proc/sysrq-trigger
ejected 12 "disabled by sysrq-S"

# A real-time hog leaves CPU 1 to nobody else for 5 s, and the watchdog sees a task wait too long. (For good would be
# worse than meant: the kernel's own threads that end a scheduler wait for that CPU, too.)
start_magpie --timeout-ms 1000
echo -1 >/proc/sys/kernel/sched_rt_runtime_us
for server in /sys/kernel/debug/sched/*_server/cpu1/runtime; do
	[ ! -e "$server" ] || echo 0 >"$server"
done
taskset 2 sh -c 'printf "ab\033[31mcdefghi\303\251" >/proc/self/comm; while :; do :; done' &
hog timeout -s KILL 5 taskset 2 chrt -f 50
ejected 1 "runnable task stall"
grep -q "DEBUG DUMP" $LOG || fail "no dump"
grep -q "magpie: vruntime" $LOG || fail "nothing of ours in the dump"
grep -q 'ab\\u{1b}\[31mcdefghi' $LOG || fail "no word of the task with a strange name"
! grep "$(printf '\033')" $LOG || fail "its name reaches the terminal as it is"

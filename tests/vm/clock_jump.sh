# SPDX-License-Identifier: GPL-2.0-only
# vm: --cpus 4 --llcs 2 --nodes 2 --append "nowatchdog rcupdate.rcu_cpu_stall_suppress=1"
# The machine stands still for longer than --timeout-ms, so that its clock jumps and the kernel's watchdog ends the scheduler: it is
# attached again at once, is told in one line, and counts as no failure. (The kernel's other watchdogs, which see a stall, too, are off.)
. /root/lib.sh

is_told() {
	grep -q "the machine stood still" $LOG
}

start_magpie --timeout-ms 10000
# CPUs that tick, busy ones more than one task each, and the last idle.
for cpus in 1 1 2 4; do hog taskset $cpus; done
echo "<2>vm: stand still for 12 s" >/dev/kmsg
wait_for 60 "the jump to be told" is_told
wait_for 30 "state enabled" is_state enabled
answers() {
	scx_magpie status >/tmp/status
}
wait_for 30 "status" answers
grep -q "starts: 2, .*no failures since boot" /tmp/status || fail "status: $(cat /tmp/status)"
! grep -q "DEBUG DUMP" $LOG || fail "a dump of a stall that was none"
[ "$(grep -c "stood still" $LOG)" = 1 ] || fail "told more than once"
say "$(grep "stood still" $LOG)"
end_hogs
EVENTS=$(error_events)
stop_magpie

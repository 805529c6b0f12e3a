# SPDX-License-Identifier: GPL-2.0-only
# vm: --cpus 8 --llcs 1 --nodes 1 --icount 2 --turn 50
# carry: magpie-wakeup
# Chen Yu's SIS_UTIL: nr_scan follows utilization; with seven CPUs of eight taken by hogs no search is made,
# and yet the eighth is used; with the loader stopped the BPF program goes on by its own estimate, and gives way again.
. /root/lib.sh
TRACING=/sys/kernel/tracing

nr_scan_is() {
	stats_json 1
	NR_SCAN=$(json_total nr_scan)
	[ "$NR_SCAN" "$1" "$2" ]
}

start_magpie --small-llc-boost off
wait_for 60 "a search of all CPUs while they idle" nr_scan_is -ge 7
say "idle: nr_scan $NR_SCAN of 8"

for mask in 1 2 4 8 10 20 40; do
	hog taskset $mask
done
wait_for 60 "no search beside seven hogs" nr_scan_is -le 1
say "seven hogs: nr_scan $NR_SCAN, utilization $(json_total util) %"

# Where it begins to run, by the kernel's trace. Nothing looks on meanwhile: that would need the free CPU, too.
mount -t tracefs tracefs $TRACING 2>/dev/null
echo 'next_comm == "magpie-wakeup"' >$TRACING/events/sched/sched_switch/filter
echo 1 >$TRACING/events/sched/sched_switch/enable
magpie-wakeup -m 1 -t 1 -c 10000 -s 20000 -r 4 >/dev/null || fail "magpie-wakeup"
echo 0 >$TRACING/tracing_on
samples=$(grep -c 'sched_switch: ' $TRACING/trace)
found=$(grep -c '\[007\].* sched_switch: ' $TRACING/trace)
say "a waking task began to run on the free CPU $found times of $samples"
# By chance it would be one in eight, and none without stealing. Not all: what is owed much preempts a hog when others come.
[ "$samples" -ge 20 ] && [ $((100 * found)) -ge $((60 * samples)) ] || fail "the free CPU is not used"
end_hogs

scx_magpie --monitor 1 --json >/tmp/all.json 2>/dev/null &
wait_for 60 "statistics" has_lines /tmp/all.json 2
kill -STOP $MAGPIE
lines=$(wc -l </tmp/all.json)
hackbench -g 2 -l 300 -p >/tmp/hackbench 2>&1 || fail "hackbench"
still_enabled
kill -CONT $MAGPIE
# The line after the next one at the latest covers the stop.
wait_for 60 "statistics again" has_lines /tmp/all.json $((lines + 3))
stale=$(json_sum stale)
say "loader stopped while hackbench ran ($(grep Time /tmp/hackbench)): own estimates began $stale times"
[ "$stale" -ge 1 ] || fail "no estimate of its own"
wait_for 60 "a search of all CPUs while they idle" nr_scan_is -ge 7
no_error_events
stop_magpie

# SPDX-License-Identifier: GPL-2.0-only
# vm: --cpus 8 --llcs 1 --nodes 1
# SIS_UTIL (seed 000_01329a4e9aec875b): nr_scan follows utilization; with seven CPUs of eight taken by hogs no search is made,
# and yet the eighth is used; with the loader stopped the BPF program goes on by its own estimate, and gives way again.
. /root/lib.sh

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

stress-ng --cpu 1 --cpu-load 30 --cpu-load-slice -10 -t 600 >/dev/null 2>&1 &
load=$!
wait_for 30 "load" pidof stress-ng-cpu
waking=$(pidof stress-ng-cpu)
# Where it ran last, each time that it has run again.
samples=0 found=0 before=0
has_run() {
	[ "$(cpu_time_us $waking)" -ge $((before + 20000)) ]
}
while [ $samples -lt 20 ]; do
	before=$(cpu_time_us $waking)
	wait_for 60 "the waking task" has_run
	cpu=$(awk '{ print $39 }' /proc/$waking/stat)
	[ "$cpu" != 7 ] || found=$((found + 1))
	samples=$((samples + 1))
done
say "a waking task was on the free CPU $found times of $samples"
# By chance it would be two or three, and none without stealing. Not all: the shell that looks on needs a CPU, too, and what is
# owed much preempts a hog.
[ $found -ge 6 ] || fail "the free CPU is not used"
kill $load
wait $load
end_hogs

scx_magpie --monitor 1 --json >/tmp/all.json 2>/dev/null &
wait_for 60 "statistics" has_lines /tmp/all.json 2
kill -STOP $MAGPIE
lines=$(wc -l </tmp/all.json)
hackbench -g 2 -l 2000 -p >/tmp/hackbench 2>&1 || fail "hackbench"
still_enabled
kill -CONT $MAGPIE
# The line after the next one at the latest covers the stop.
wait_for 60 "statistics again" has_lines /tmp/all.json $((lines + 3))
stale=0
while read -r JSON; do
	stale=$((stale + $(json_total stale)))
done </tmp/all.json
say "loader stopped while hackbench ran ($(grep Time /tmp/hackbench)): own estimates began $stale times"
[ $stale -ge 1 ] || fail "no estimate of its own"
wait_for 60 "a search of all CPUs while they idle" nr_scan_is -ge 7
no_error_events
stop_magpie

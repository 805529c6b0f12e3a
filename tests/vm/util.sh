# SPDX-License-Identifier: GPL-2.0-only
# vm: --icount --cpus 2 --llcs 2 --nodes 2 --timeout 600
# util_avg: a task that runs 40 % of the time makes about 40 % of an LLC of one CPU, a hog all of it, and when it ends nothing
# is left. By instruction count, for else emulated CPUs count as busy while they wait for each other.
. /root/lib.sh

# mean COUNT: utilization of LLC 1 in %, over COUNT samples from the second one from now on.
mean() {
	_last=$(($(wc -l </tmp/all.json) + 1 + $1))
	wait_for 60 "statistics" has_lines /tmp/all.json $_last
	sed -n "$((_last - $1 + 1)),${_last}p" /tmp/all.json | jq -s 'map(.llcs."1".util) | add / length'
}

start_magpie
scx_magpie --monitor 1 --json >/tmp/all.json 2>/dev/null &
taskset 2 stress-ng --cpu 1 --cpu-load 40 --cpu-load-slice 2 -t 600 >/dev/null 2>&1 &
load=$!
wait_for 30 "load" pidof stress-ng-cpu
util=$(mean 5)
say "load of 40 %: LLC 1 at $util %"
within "$util" 28 52 || fail "not about 40 %"
kill $load
wait $load

hog taskset 2
util=$(mean 2)
say "one hog: LLC 1 at $util %"
within "$util" 98 100 || fail "not 100 %"
end_hogs
util=$(mean 2)
say "hog gone: LLC 1 at $util %"
# What this script itself does meanwhile is some of it.
within "$util" 0 10 || fail "not idle"
no_error_events
stop_magpie

# SPDX-License-Identifier: GPL-2.0-only
# vm: --cpus 8 --llcs 2 --nodes 2
# util_avg: a hog on one CPU of an LLC of four is 25 % of that LLC, and decays when it ends.
. /root/lib.sh

# between LOW HIGH: utilization of LLC 1, in %.
between() {
	stats_json 1
	UTIL=$(json_llc 1 util)
	within "$UTIL" "$1" "$2"
}

start_magpie
hog taskset 10
wait_for 60 "LLC 1 at 25 %" between 24.5 29
say "one hog: LLC 1 at $UTIL %"
kill $HOG
wait_for 60 "LLC 1 idle" between 0 4
say "hog gone: LLC 1 at $UTIL %"
no_error_events
stop_magpie

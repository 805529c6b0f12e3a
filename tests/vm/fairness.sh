# SPDX-License-Identifier: GPL-2.0-only
# vm: --cpus 2 --llcs 1 --nodes 1 --icount 0 --turn 50 --timeout 500
# Two hogs on one CPU share it by weight, over 8 s: nice 0 and 5 as 3.06 : 1 within 5 %; a SCHED_IDLE one gets the rest.
. /root/lib.sh

# shares SECONDS PID PID: CPU time of both meanwhile, as "us us"
shares() {
	_seconds=$1
	shift
	_a=$(cpu_time_us "$1") _b=$(cpu_time_us "$2")
	sleep "$_seconds"
	echo $(($(cpu_time_us "$1") - _a)) $(($(cpu_time_us "$2") - _b))
}

start_magpie
hog taskset 2 nice -n 0
zero=$HOG
hog taskset 2 nice -n 5
five=$HOG
set -- $(shares 8 $zero $five)
say "nice 0 : nice 5 = $(awk "BEGIN { printf \"%.3f\", $1 / $2 }") : 1 ($1 us, $2 us)"
within "$(awk "BEGIN { print $1 / $2 }")" 2.907 3.213 || fail "not 3.06 : 1 within 5 %"
kill $five

hog taskset 2 chrt -i 0
set -- $(shares 8 $zero $HOG)
say "nice 0 : SCHED_IDLE = $1 us : $2 us"
[ "$2" -gt 0 ] || fail "SCHED_IDLE starved"
[ $(($1 / $2)) -ge 50 ] || fail "SCHED_IDLE got more than a fiftieth"
kill $zero $HOG
no_error_events
stop_magpie

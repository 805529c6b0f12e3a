# SPDX-License-Identifier: GPL-2.0-only
# vm: --cpus 2 --llcs 1 --nodes 1
# A real-time task takes a CPU: the hog that ran there goes on, on the other one, which is busy with a hog already.
. /root/lib.sh

start_magpie
hog taskset 1
hog taskset 2
taskset -p 3 $HOG >/dev/null
victim=$HOG
hog timeout -s KILL 15 taskset 2 chrt -f 50
before=$(cpu_time_us $victim)
goes_on() {
	[ $(($(cpu_time_us $victim) - before)) -ge 2000000 ]
}
wait_for 20 "2 s of CPU time beside the other hog" goes_on
say "the hog left the real-time task's CPU for a busy one"
still_enabled
no_error_events
stop_magpie

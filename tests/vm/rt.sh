# SPDX-License-Identifier: GPL-2.0-only
# vm: --cpus 2 --llcs 1 --nodes 1
# vm: --cpus 2 --llcs 2 --nodes 2
# A real-time task takes a CPU: the hog that ran there goes on, on the other one, which is busy with a hog already.
. /root/lib.sh

start_magpie
hog taskset 1
hog taskset 2
victim=$HOG
wait_for 20 "the hog's affinity" grep -q "Cpus_allowed_list:.1$" /proc/$victim/status
taskset -p 3 $victim >/dev/null
# It sleeps first, to take the CPU from a task that runs.
taskset 2 chrt -f 50 sh -c 'sleep 1; while :; do :; done' >/dev/null 2>&1 &
realtime=$!
has_begun() {
	[ "$(cpu_time_us $realtime)" -ge 200000 ]
}
wait_for 20 "the real-time task" has_begun
before=$(cpu_time_us $victim)
goes_on() {
	[ $(($(cpu_time_us $victim) - before)) -ge 2000000 ]
}
wait_for 30 "2 s of CPU time beside the other hog" goes_on
say "the hog left the real-time task's CPU for a busy one"
kill -9 $realtime
still_enabled
no_error_events
stop_magpie

# SPDX-License-Identifier: GPL-2.0-only
# vm: --cpus 2 --llcs 1 --nodes 1
# A task that calls sched_yield() all the time leaves the CPU to a hog.
. /root/lib.sh

yielders() {
	[ "$(pidof stress-ng-yield stress-ng | wc -w)" -ge 3 ]
}

start_magpie
taskset 2 stress-ng --yield 1 -t 60 >/dev/null 2>&1 &
wait_for 20 "tasks that yield" yielders
hog taskset 2
read -r start _ </proc/uptime
before=$(cpu_time_us $HOG)
sleep 5
ran=$(($(cpu_time_us $HOG) - before))
read -r end _ </proc/uptime
took=$(awk "BEGIN { print $end - $start }")
say "the hog ran $((ran / 1000)) ms in $took s"
within $ran "$(awk "BEGIN { print $took * 750000 }")" 100000000 || fail "the yielding tasks did not make way"
no_error_events
stop_magpie

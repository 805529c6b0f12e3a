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
now
before=$(cpu_time_us $HOG) start=$NOW
sleep 5
now
ran=$(($(cpu_time_us $HOG) - before)) took=$((NOW - start))
say "the hog ran $((ran / 1000)) ms in $took s"
[ $ran -ge $((took * 750000)) ] || fail "the yielding tasks did not make way"
no_error_events
stop_magpie

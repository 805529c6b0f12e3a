# SPDX-License-Identifier: GPL-2.0-only
# vm: --cpus 2 --llcs 1 --nodes 1
# kernels: ends
# A task that sleeps most of the time preempts a hog on its CPU, unless told not to; a SCHED_IDLE hog always makes way. Half
# of its wakeups are by a timer: an interrupt, which kernels tell in different ways.
. /root/lib.sh

# preempts FLAGS...: COUNT is the preemptions in 2 s beside the hog.
preempts() {
	start_magpie "$@"
	stats_json 2
	COUNT=$(json_total preempt)
	no_error_events
	stop_magpie
}

taskset 2 sh -c 'while :; do sleep 0.02; done' >/dev/null 2>&1 &
hog taskset 2
preempts
say "hog of nice 0: $COUNT preemptions"
nice_0=$COUNT
preempts --no-wakeup-preempt
say "with --no-wakeup-preempt: $COUNT"
[ "$COUNT" = 0 ] || fail "preemptions in spite of --no-wakeup-preempt"
end_hogs

hog taskset 2 chrt -i 0
preempts
say "hog of SCHED_IDLE: $COUNT"
[ "$COUNT" -ge 10 ] || fail "SCHED_IDLE did not make way"
[ $nice_0 -ge $((COUNT * 2 / 3)) ] || fail "nice 0 made way less often"

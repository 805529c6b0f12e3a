# SPDX-License-Identifier: GPL-2.0-only
# vm: --cpus 16 --llcs 1 --nodes 1 --smt 2 --icount 2 --turn 50 --timeout 600
# SMT: a task that starts gets a core idle as a whole while there is one. Five hogs, one after the other, on eight idle cores of two
# CPUs; then three, where four of the cores have one CPU busy with a pinned hog. By chance it would be 87 % and 54 % of them.
# By the kernel's trace, which tells what else runs at that moment. Later a hog may be anywhere: a kworker that is bound to
# its CPU preempts it, and the next idle CPU steals it.
. /root/lib.sh
TRACING=/sys/kernel/tracing

ran() {
	[ "$(cpu_time_us "$1")" -gt 0 ]
}

# rounds N HOGS: asks that of those that can nine in ten are placed on a core alone.
rounds() {
	rm -f /tmp/started
	for _ in $(seq "$1"); do
		for _ in $(seq "$2"); do
			hog
			wait_for 20 "the hog to run" ran "$HOG"
		done
		cat /tmp/hogs >>/tmp/started
		end_hogs
	done
	placed_alone
	say "placed alone on a core: $ALONE of $STARTED"
	[ "$STARTED" -ge $((9 * $1 * $2 / 10)) ] || fail "too few had a choice"
	[ $((10 * ALONE)) -ge $((9 * STARTED)) ] || fail "beside others, while cores were idle"
}

# Of the hogs that were placed while a core was idle: STARTED, and how many on such a core: ALONE. A CPU that somebody was
# woken for is not idle.
placed_alone() {
	awk 'FNR == NR { hog[$1] = 1; next }
	# What is in front of the number is given; leading zeros would make it octal.
	function number(front) {
		match($0, front "0*")
		return substr($0, RSTART + RLENGTH, 6) + 0
	}
	/sched_switch:/ { busy[number(" \\[")] = number(" next_pid=") }
	/sched_wakeup/ { cpu = number(" target_cpu=") }
	/sched_wakeup_new:/ && number(" pid=") in hog {
		idle = 0
		for (c = 0; c < 16; c += 2)
			idle += !busy[c] && !busy[c + 1]
		started += idle > 0
		alone += idle > 0 && !busy[cpu % 2 ? cpu - 1 : cpu + 1]
	}
	/sched_wakeup/ { busy[cpu] = 1 }
	END { print started + 0, alone + 0 }' /tmp/started $TRACING/trace >/tmp/placed_alone
	read -r STARTED ALONE </tmp/placed_alone
}

start_magpie
mount -t tracefs tracefs $TRACING 2>/dev/null
for event in sched_switch sched_wakeup sched_wakeup_new; do
	echo 1 >$TRACING/events/sched/$event/enable
done
rounds 6 5

for cpu in 1 3 5 7; do
	hog taskset $(printf %x $((1 << cpu)))
	wait_for 20 "the hog's affinity" grep -q "Cpus_allowed_list:.$cpu$" /proc/$HOG/status
done
mv /tmp/hogs /tmp/pinned
rounds 6 3
no_error_events
stop_magpie

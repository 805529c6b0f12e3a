# SPDX-License-Identifier: GPL-2.0-only
# vm: --cpus 8 --llcs 2 --nodes 2 --icount 3 --append skew_tick=1 --timeout 600
# Eight hogs on one CPU of eight, released: each CPU runs one of them within 50 ms, by the kernel's own trace, be it on the
# other node. (Emulated CPUs take turns, each until the next timer
# of any: part of the time is that a CPU that was kicked waits for its turn, which is 4 ms where all tick together.)
. /root/lib.sh
CG=/sys/fs/cgroup
TRACE=/sys/kernel/tracing

# Of the trace: how many CPUs have run one of the hogs after they were released, and after how many ms the last got it. One
# runs on CPU 0 all the time: no need to switch to it.
spread() {
	awk '
		BEGIN { seen["[000]"]; cpus = 1 }
		/tracing_mark_write: released/ { sub(/:/, "", $4); at = $4 }
		at && /sched_switch/ {
			for (i = 1; i <= NF; i++) if ($i ~ /^next_pid=/) pid = substr($i, 10)
			sub(/:/, "", $4)
			if (pid in hogs && !($2 in seen)) { seen[$2]; cpus++; last = $4 }
		}
		!at && /^[0-9]+$/ { hogs[$1] }
		END { printf "%d %.3f\n", cpus, 1000 * (last - at) }' /tmp/hogs "$1"
}

mount -t tracefs tracefs $TRACE 2>/dev/null
echo +cpuset >$CG/cgroup.subtree_control || fail "no cpuset controller"
mkdir $CG/one
start_magpie
for round in 1 2 3; do
	echo 0 >$CG/one/cpuset.cpus
	for _ in 1 2 3 4 5 6 7 8; do
		hog
		echo $HOG >$CG/one/cgroup.procs || fail "move"
	done
	# Until they all have run there.
	for pid in $(cat /tmp/hogs); do
		runs() {
			[ "$(cpu_time_us "$pid")" -gt 20000 ]
		}
		wait_for 20 "hog $pid to run" runs
	done
	: >$TRACE/trace
	tr '\n' ' ' </tmp/hogs >$TRACE/set_event_pid
	echo 1 >$TRACE/events/sched/sched_switch/enable
	# Already asleep when they are released, so that all CPUs are free for them.
	sleep 2 &
	asleep() {
		grep -q '^State:.S' /proc/$!/status && grep -q sleep /proc/$!/comm
	}
	wait_for 20 "sleep to sleep" asleep
	echo released >$TRACE/trace_marker
	echo 0-7 >$CG/one/cpuset.cpus
	wait $! || fail "sleep failed"
	echo 0 >$TRACE/events/sched/sched_switch/enable
	cat $TRACE/trace >/tmp/trace
	set -- $(spread /tmp/trace)
	say "round $round: on $1 CPUs, the last after $2 ms"
	[ "$1" = 8 ] || fail "not on all CPUs within a second"
	within "$2" 0 50 || fail "not within 50 ms"
	end_hogs
done
no_error_events
stop_magpie

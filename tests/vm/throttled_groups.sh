# SPDX-License-Identifier: GPL-2.0-only
# matrix: --cpus 8 --llcs 2 --nodes 2 --icount 0 --turn 50 --timeout 600
# carry: magpie-callbacks
# carry: magpie-wakeup
# Groups that have used up their cpu.max cost nothing: beside 200 of them, which may run for 1 ms of each second, hackbench takes
# 1.15 times as long as beside none at most (0.8 % of that is their share), and dispatch 1.2 times. An instruction is a nanosecond.
. /root/lib.sh
CG=/sys/fs/cgroup
NR=200

# Each has had more than its quota of a period.
are_throttled() {
	[ "$(cat $CG/g*/cpu.stat | awk '/^usage_usec/ && $2 >= 1000' | wc -l)" = $NR ]
}

# measure: $TIME of hackbench, the better of two; $NS of a dispatch while threads wake and sleep at once.
measure() {
	TIME=$(for _ in 1 2; do hackbench -g 2 -l 100 -p | sed -n 's/^Time: //p'; done | sort -n | head -n 1)
	magpie-callbacks -- magpie-wakeup -m 2 -t 2 -c 20 -s 200 -j 50 -r 1 >/tmp/callbacks || fail "magpie-callbacks"
	NS=$(sed -n 's/.*"dispatch":{[^}]*"ns":\([0-9.]*\).*/\1/p' /tmp/callbacks)
	[ -n "$TIME" ] && [ -n "$NS" ] || fail "no time, or no dispatch in: $(cat /tmp/callbacks)"
	say "beside $1 throttled groups: hackbench $TIME s, dispatch $NS ns"
}

# ratio NAME NOW BEFORE MOST
ratio() {
	_ratio=$(awk "BEGIN { printf \"%.2f\", $2 / $3 }")
	say "$1: $_ratio times"
	within "$_ratio" 0 "$4" || fail "throttled groups cost time"
}

echo +cpu >$CG/cgroup.subtree_control
start_magpie
measure 0
time=$TIME ns=$NS
for i in $(seq $NR); do
	mkdir $CG/g$i
	echo "1000 1000000" >$CG/g$i/cpu.max
	hog
	echo $HOG >$CG/g$i/cgroup.procs || fail "move to g$i"
done
# Kernels before 6.17 do not report it: the loader looks ten times a second.
wait_for 60 "all groups throttled" are_throttled
measure $NR
ratio hackbench "$TIME" "$time" 1.15
ratio dispatch "$NS" "$ns" 1.2
end_hogs
still_enabled
no_error_events
stop_magpie

# SPDX-License-Identifier: GPL-2.0-only
# vm: --cpus 2 --llcs 1 --nodes 1 --icount 3
# Two hogs on one CPU share it by the kernel's weights within 2 points, also where p->scx.weight is rounded: nice 19 next to
# SCHED_IDLE, nice 18 and 10, and others; cpu.idle next to cpu.weight 1; cpu.weight.nice.
. /root/lib.sh
CG=/sys/fs/cgroup

# share NAME EXPECTED PID PID: of both, that of the first in percent, once both have started.
share() {
	sleep 1
	_a=$(cpu_time_us "$3") _b=$(cpu_time_us "$4")
	sleep 4
	_a=$(($(cpu_time_us "$3") - _a)) _b=$(($(cpu_time_us "$4") - _b))
	_got=$(awk "BEGIN { printf \"%.1f\", 100 * $_a / ($_a + $_b) }")
	say "$1: $_got %, by weight $2 %"
	within "$_got" "$(awk "BEGIN { print $2 - 2 }")" "$(awk "BEGIN { print $2 + 2 }")" || fail "$1: not within 2 points"
	kill "$3" "$4"
}

# pair EXPECTED PREFIX PREFIX: the first hog's share in percent, next to the second one.
pair() {
	# shellcheck disable=SC2086 # a command and its arguments
	hog taskset 2 $2
	_first=$HOG
	# shellcheck disable=SC2086
	hog taskset 2 $3
	share "$2 next to $3" "$1" "$_first" "$HOG"
}

# groups EXPECTED FILE VALUE FILE VALUE: likewise, of groups with this written to a file of theirs.
groups() {
	mkdir $CG/a $CG/b || fail "mkdir"
	echo "$3" >"$CG/a/$2" || fail "$2"
	echo "$5" >"$CG/b/$4" || fail "$4"
	hog taskset 2
	_first=$HOG
	echo "$_first" >$CG/a/cgroup.procs
	hog taskset 2
	echo "$HOG" >$CG/b/cgroup.procs
	share "$2 $3 next to $4 $5" "$1" "$_first" "$HOG"
	wait_for 10 "the groups to be empty" rmdir $CG/a
	wait_for 10 "the groups to be empty" rmdir $CG/b
}

echo +cpu >$CG/cgroup.subtree_control || fail "cgroup.subtree_control"
start_magpie
pair 16.7 "chrt -i 0" "nice -n 19"
pair 45.5 "nice -n 19" "nice -n 18"
pair 12.0 "nice -n 19" "nice -n 10"
pair 24.7 "nice -n 5" "nice -n 0"
pair 90.3 "nice -n -20" "nice -n -10"
groups 23.1 cpu.idle 1 cpu.weight 1
groups 33.3 cpu.weight 50 cpu.weight 100
groups 16.7 cpu.idle 1 cpu.weight.nice 19
no_error_events
stop_magpie

# SPDX-License-Identifier: GPL-2.0-only
# vm: --cpus 4 --llcs 2 --nodes 1 --append "nohz_full=1-3 rcu_nocbs=1-3"
# kernels: ends
# A task alone on a nohz_full CPU has no tick. One that comes there shares the CPU with it, or preempts it, as elsewhere; so do
# two that come while the CPU idles. A cpu.max that is set meanwhile counts.
. /root/lib.sh
CG=/sys/fs/cgroup
CPU=2
MOST=10
SWITCHES=10 # a second; a CPU without a tick would have one

# interrupts SECONDS: timer interrupts of the CPU, in $INTERRUPTS
interrupts() {
	_before=$(awk -v column=$((CPU + 2)) '/^ *LOC:/ { print $column }' /proc/interrupts)
	sleep "$1"
	INTERRUPTS=$(($(awk -v column=$((CPU + 2)) '/^ *LOC:/ { print $column }' /proc/interrupts) - _before))
}

# expect_no_tick WHEN
expect_no_tick() {
	interrupts 3
	say "$1: $INTERRUPTS timer interrupts in 3 s"
	[ "$INTERRUPTS" -le $MOST ] || fail "$1: $INTERRUPTS timer interrupts"
}

preempted() {
	awk '/^nonvoluntary/ { print $2 }' /proc/"$1"/status
}

# expect_shared WHEN PID PID: for two seconds
expect_shared() {
	_a=$(cpu_time_us "$2") _b=$(cpu_time_us "$3") _n=$(preempted "$2")
	sleep 2
	_a=$(($(cpu_time_us "$2") - _a)) _b=$(($(cpu_time_us "$3") - _b)) _n=$(($(preempted "$2") - _n))
	say "$1: $((_a / 1000)) and $((_b / 1000)) ms, $_n switches"
	within $_a $((_b / 2)) $((_b * 2)) || fail "$1: the CPU is not shared"
	[ $_n -ge $((2 * SWITCHES)) ] || fail "$1: the CPU switches too seldom"
}

[ "$(cat /sys/devices/system/cpu/nohz_full)" = 1-3 ] || fail "no nohz_full CPUs"
start_magpie
hog taskset -c $CPU
first=$HOG
sleep 1
expect_no_tick "alone"

hog taskset -c $CPU
second=$HOG
expect_shared "a second one" $first $second
kill -STOP $second
sleep 1
expect_no_tick "alone again"

now
started=$NOW
timeout 60 taskset -c $CPU sh -c 'for _ in $(seq 20); do sleep 0.01; done' || fail "a task that wakes does not come to run"
now
say "20 short sleeps took $((NOW - started)) s"
[ $((NOW - started)) -le 10 ] || fail "tasks that wake wait for long"

kill -STOP $first
sleep 1
kill -CONT $first $second
expect_shared "on an idle CPU" $first $second
kill -STOP $second

case $(uname -r) in
6.1[2-7].*) ;; # only a tick tells where a task is that has used up its cpu.max
*)
	echo +cpu >$CG/cgroup.subtree_control
	mkdir $CG/a
	echo $first >$CG/a/cgroup.procs || fail "move to a group"
	sleep 1
	echo "20000 100000" >$CG/a/cpu.max
	sleep 1
	before=$(cpu_time_us $first)
	sleep 4
	used=$((($(cpu_time_us $first) - before) / 40000))
	say "cpu.max of 20 %: used $used %"
	within $used 15 25 || fail "cpu.max does not count"
	;;
esac
end_hogs
no_error_events
stop_magpie

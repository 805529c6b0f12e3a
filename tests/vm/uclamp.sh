# SPDX-License-Identifier: GPL-2.0-only
# vm: --cpus 4 --llcs 1 --nodes 1 --icount 3 --timeout 600
# carry: magpie-wakeup
# The uclamp of a cgroup counts for its tasks where CPUs differ in capacity. The kernels for arm64 have none, so two of these
# CPUs look little: a copy of the CPUs' folder in sysfs, with capacities, covers the real one.
. /root/lib.sh

CG=/sys/fs/cgroup
CPUS=/sys/devices/system/cpu

has_threads() {
	[ "$(ls /proc/$1/task | wc -l)" -ge $2 ]
}

echo +cpu >$CG/cgroup.subtree_control
mkdir $CG/clamped
if [ ! -e $CG/clamped/cpu.uclamp.max ]; then
	say "skipped: this kernel has no uclamp of cgroups"
	exit 0
fi
cp -r $CPUS /tmp/cpus 2>/dev/null # some files cannot be read
for cpu in 0 1 2 3; do
	[ $cpu -lt 2 ] && capacity=400 || capacity=1024
	echo $capacity >/tmp/cpus/cpu$cpu/cpu_capacity || fail "cpu_capacity"
done
mount --bind /tmp/cpus $CPUS || fail "mount"

start_magpie
wait_for 20 "an answer" scx_magpie status

# in_clamped COMMAND...: in the place of this shell.
in_clamped() {
	exec sh -c 'echo 0 >'$CG'/clamped/cgroup.procs; exec "$@"' sh "$@"
}
# A hog of a cgroup with a small cpu.uclamp.max is not too big for a little CPU.
for max in 15 max; do
	echo $max >$CG/clamped/cpu.uclamp.max
	stats_of 2 in_clamped taskset 3 sh -c 'while :; do :; done'
	say "cpu.uclamp.max $max: tasks were too big for their CPU for $(json_total misfit_ms) ms in 2 s"
	case $max in
	15) within "$(json_total misfit_ms)" 0 600 ;;
	max) within "$(json_total misfit_ms)" 1400 3000 ;;
	esac || fail "cpu.uclamp.max $max"
done

# A small task of a cgroup with a large cpu.uclamp.min is a big one: it wakes on big CPUs.
for min in 0 90; do
	echo $min >$CG/clamped/cpu.uclamp.min
	in_clamped magpie-wakeup -m 1 -t 1 -c 300 -s 5000 -r 100 >/dev/null 2>&1 &
	TASK=$!
	wait_for 20 "its threads" has_threads $TASK 3
	sleep 0.3
	big=0
	for _ in $(seq 40); do
		for stat in /proc/$TASK/task/*/stat; do
			read -r line <$stat
			set -- $line
			# Field 39: the CPU on which it ran last.
			[ "${39}" -lt 2 ] || big=$((big + 1))
		done
		sleep 0.02
	done
	kill $TASK
	wait $TASK 2>/dev/null
	say "cpu.uclamp.min $min: on a big CPU in $big of 120 samples"
	eval BIG_$min=$big
done
# Where it does not count, both are 56 to 82.
[ $BIG_90 -ge 80 ] && [ $BIG_0 -lt $BIG_90 ] || fail "cpu.uclamp.min does not count"
rmdir $CG/clamped
no_error_events
stop_magpie

# SPDX-License-Identifier: GPL-2.0-only
# vm: --cpus 4 --llcs 1 --nodes 1 --icount 3 --timeout 900
# Tasks of a group with cpu.max that wait for the next period do so on their own CPUs: beside a hundred hogs that may use
# CPU 0 only one on CPU 1 gets as much as under EEVDF: half of the group's time, 0.88 of that or more in 23 boots
# (docs/experiments/cgroups.md). Where all waited in one queue of the group it was 0.12.
. /root/lib.sh
CG=/sys/fs/cgroup

# $SHARE: of the group's quota that the lone hog gets, in percent.
lone_share() {
	for i in $(seq 101); do
		hog taskset $((i < 101 ? 1 : 2))
		echo $HOG >$CG/q/cgroup.procs || fail "move to q"
	done
	sleep 3
	_before=$(cpu_time_us $HOG)
	_usage=$(sed -n 's/^usage_usec //p' $CG/q/cpu.stat)
	sleep 10
	_usage=$(($(sed -n 's/^usage_usec //p' $CG/q/cpu.stat) - _usage))
	SHARE=$((($(cpu_time_us $HOG) - _before) * 100 / _usage))
	end_hogs
}

echo +cpu >$CG/cgroup.subtree_control
mkdir $CG/q
echo "50000 100000" >$CG/q/cpu.max
lone_share
eevdf=$SHARE
start_magpie
lone_share
say "the lone hog gets $SHARE % of what the group uses; EEVDF: $eevdf %"
within $SHARE $((eevdf * 8 / 10)) 100 || fail "less than 0.8 of what it gets under EEVDF"
still_enabled
no_error_events
stop_magpie

# SPDX-License-Identifier: GPL-2.0-only
# vm: --cpus 4 --llcs 2 --nodes 1 --timeout 900
# Groups are created, filled, limited, moved between and removed in a loop, under load: no stall, no task lost, and none
# of them is left in the scheduler. MAGPIE_LOOPS says how many at a time (default 50; 500 have passed), for how long
# MAGPIE_RUNS (times 15 s).
. /root/lib.sh
CG=/sys/fs/cgroup
NR=${MAGPIE_LOOPS:-50}
SECONDS_ALL=$((${MAGPIE_RUNS:-1} * 15))

echo +cpu >$CG/cgroup.subtree_control
start_magpie --timeout-ms 10000
stats_json 1
# How many the scheduler knows.
nr_groups() {
	json_total cgroups_nr_groups
}
before=$(nr_groups)
hackbench -g 1 -l 100000000 -p >/dev/null 2>&1 &
load=$!
mkdir $CG/hogs
echo "50000 100000" >$CG/hogs/cpu.max
for _ in 1 2 3 4; do
	hog
	echo $HOG >$CG/hogs/cgroup.procs
done
now
end=$((NOW + SECONDS_ALL))
rounds=0
cd $CG || fail "cd $CG"
while [ "$NOW" -lt $end ]; do
	chains=
	# Eight levels each.
	for i in $(seq $((NR / 8))); do
		chains="$chains g$i/2/3/4/5/6/7/8"
		path=g$i
		mkdir "$path" || fail "mkdir $path"
		for level in 2 3 4 5 6 7 8; do
			echo +cpu >"$path/cgroup.subtree_control" || fail "cgroup.subtree_control of $path"
			path=$path/$level
			mkdir "$path" || fail "mkdir $path"
		done
		echo $((i % 1000 + 1)) >"$path/cpu.weight"
		[ $((i % 2)) = 0 ] && echo "10000 100000" >"$path/cpu.max"
		while read -r pid; do
			echo "$pid" >"$path/cgroup.procs" || fail "move to $path"
		done </tmp/hogs
	done
	while read -r pid; do
		echo "$pid" >hogs/cgroup.procs || fail "move back"
	done </tmp/hogs
	still_enabled
	rmdir -p $chains || fail "rmdir"
	rounds=$((rounds + 1))
	now
done
cd /
say "$rounds rounds of $NR groups"
kill $load
for pid in $(cat /tmp/hogs); do
	_t=$(cpu_time_us "$pid")
	more() {
		[ "$(cpu_time_us "$pid")" -gt "$_t" ]
	}
	wait_for 10 "a hog to run on" more
done
end_hogs
wait_for 10 "the hogs' group to go" rmdir $CG/hogs
groups_gone() {
	stats_json 1
	[ "$(nr_groups)" = "$before" ]
}
wait_for 20 "groups to be as many as at the start ($before)" groups_gone
no_error_events
stop_magpie

# SPDX-License-Identifier: GPL-2.0-only
# vm: --icount --cpus 4 --llcs 1 --nodes 1 --timeout 3000
# What nested groups cost (Tejun Heo's runnable_load_avg): hackbench in the root group, at the first level and at depth 3, with
# --no-cgroups and without. One instruction a nanosecond, so times are the work done; medians of MAGPIE_RUNS runs,
# interleaved. Fails if groups make 3 % more work anywhere.
. /root/lib.sh
CG=/sys/fs/cgroup
RUNS=${MAGPIE_RUNS:-3}
DEPTHS="0:. 1:a 3:a/b/c"

echo +cpu >$CG/cgroup.subtree_control
mkdir -p $CG/a/b/c
echo +cpu >$CG/a/cgroup.subtree_control || fail "cgroup.subtree_control of a"
echo +cpu >$CG/a/b/cgroup.subtree_control || fail "cgroup.subtree_control of a/b"

# measure MODE: a run at each depth.
measure() {
	for depth in $DEPTHS; do
		sh -c "echo \$\$ >$CG/${depth#*:}/cgroup.procs && exec hackbench -g 2 -f 10 -l 400 -p -T" >/tmp/hackbench 2>&1 ||
			fail "hackbench at depth ${depth%:*}"
		sed -n 's/Time: //p' /tmp/hackbench >>/tmp/times."$1"."${depth%:*}"
	done
	no_error_events
	stop_magpie
}

run=0
while [ $run -lt "$RUNS" ]; do
	start_magpie --no-cgroups
	measure off
	start_magpie
	measure on
	run=$((run + 1))
done

say "hackbench, s: depth  --no-cgroups  cgroups  ratio"
for depth in $DEPTHS; do
	depth=${depth%:*}
	off=$(median /tmp/times.off.$depth) on=$(median /tmp/times.on.$depth)
	say "$(printf '%19d %13s %8s' "$depth" "$off" "$on") $(awk "BEGIN { printf \"%6.3f\", $on / $off }")"
	awk "BEGIN { exit !($on <= 1.03 * $off) }" || fail "groups make more work"
done

# SPDX-License-Identifier: GPL-2.0-only
# vm: --cpus 4 --llcs 1 --nodes 1 --icount 0 --turn 50 --timeout 600
# matrix: --kernel 7.3 --cpus 4 --llcs 1 --nodes 1 --icount 0 --turn 50 --timeout 600
# Groups of unequal weights and unequal numbers of hogs, two levels deep, have what the rule of the running kernel gives them,
# within a tenth: up to Linux 7.2 a group counts once (smp), later once for each of its tasks, up to its CPUs (concur).
#
#	                        smp: weight, part of 4 CPUs   concur: weight, part of 4 CPUs
#	a 100                   100, 1                        100 * 4, 1
#	  a/one  100, 1 hog       100, 1/3                      100 * 1, 1/7
#	  a/many 200, 3 hogs      200, 2/3                      200 * 3, 6/7
#	b 300, 5 hogs           300, 3                        300 * 4, 3
. /root/lib.sh
CG=/sys/fs/cgroup
RUNTIME=4

# group NAME WEIGHT HOGS
group() {
	mkdir $CG/"$1"
	echo "$2" >$CG/"$1"/cpu.weight || fail "cpu.weight"
	hogs_in "$1" "$3"
}

# parts WHOSE: ONE, MANY and B are what the groups use, in % of a CPU.
parts() {
	sleep 1 # the averages of tasks have all of it
	ONE=$(group_used a/one) MANY=$(group_used a/many) B=$(group_used b)
	sleep $RUNTIME
	ONE=$((($(group_used a/one) - ONE) / (10000 * RUNTIME)))
	MANY=$((($(group_used a/many) - MANY) / (10000 * RUNTIME)))
	B=$((($(group_used b) - B) / (10000 * RUNTIME)))
	say "$1: a/one has $ONE % of a CPU, a/many $MANY, b $B"
}

echo +cpu >$CG/cgroup.subtree_control
group a 100 0
echo +cpu >$CG/a/cgroup.subtree_control
group a/one 100 1
group a/many 200 3
group b 300 5
parts EEVDF
start_magpie
parts scx_magpie
if scx_magpie status | grep -q "cgroup mode: concur"; then
	within $ONE 12 17 && within $MANY 76 95 || fail "within a: not 14 and 86 %"
else
	within $ONE 30 37 && within $MANY 60 74 || fail "within a: not 33 and 67 %"
fi
within $B 285 315 || fail "b: not 300 %"
no_error_events
stop_magpie

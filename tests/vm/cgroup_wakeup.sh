# SPDX-License-Identifier: GPL-2.0-only
# vm: --cpus 4 --llcs 1 --nodes 1 --timeout 900
# carry: magpie-wakeup
# The cgroup seed's experiment: wakeup latency in the root group, in a first-level group and at depth 4, both of maximum
# weight, beside light background load, in turns. MAGPIE_RUNS turns of 2 s each (default 2: they show that it works; from 15 on
# the 95 % confidence interval of nested p99 : root p99 has to lie below 1.15). EEVDF's figures beside them.
. /root/lib.sh
CG=/sys/fs/cgroup
RUNS=${MAGPIE_RUNS:-2}

# latency GROUP: p50 and p99 of a run there, in us
latency() {
	sh -c "echo \$\$ >$CG/$1/cgroup.procs && exec magpie-wakeup -m 1 -t 4 -s 10000 -c 15000 -r 2 --json" |
		sed 's/.*"p50_us":\([0-9.]*\).*"p99_us":\([0-9.]*\).*/\1 \2/'
}

# turns NAME: appends lines "root-p50 root-p99 first-p50 first-p99 deep-p50 deep-p99" to /tmp/NAME
turns() {
	for _turn in $(seq "$RUNS"); do
		# Each comes first as often as the others.
		case $((_turn % 3)) in
		0) _root=$(latency .) _first=$(latency first) _deep=$(latency d1/d2/d3/d4) ;;
		1) _first=$(latency first) _deep=$(latency d1/d2/d3/d4) _root=$(latency .) ;;
		2) _deep=$(latency d1/d2/d3/d4) _root=$(latency .) _first=$(latency first) ;;
		esac
		echo "$_root $_first $_deep" >>/tmp/"$1"
	done
}

# column FILE N: median of a column
column() {
	awk "{ print \$$2 }" "$1" | sort -n | awk '{ v[NR] = $1 } END { print v[int((NR + 1) / 2)] }'
}

# interval FILE N: the ratio of column N to column 2, median and 95 % confidence interval by ranks: "median low high"
interval() {
	awk "{ print \$$2 / \$2 }" "$1" | sort -n | awk '{ v[NR] = $1 } END {
		# Busybox has no sqrt().
		root = 1; for (i = 0; i < 20; i++) root = (root + NR / root) / 2
		low = int(NR / 2 - 0.98 * root) + 1; if (low < 1) low = 1
		printf "%.3f %.3f %.3f\n", v[int((NR + 1) / 2)], v[low], v[NR + 1 - low] }'
}

show() {
	say "$1: p50/p99 us: root $(column /tmp/"$1" 1)/$(column /tmp/"$1" 2), first level $(column /tmp/"$1" 3)/$(column /tmp/"$1" 4)," \
		"depth 4 $(column /tmp/"$1" 5)/$(column /tmp/"$1" 6)"
	FIRST=$(interval /tmp/"$1" 4) DEEP=$(interval /tmp/"$1" 6)
	say "$1: p99 to root's, median and 95 % interval of $RUNS: first level $FIRST; depth 4 $DEEP"
}

echo +cpu >$CG/cgroup.subtree_control
mkdir $CG/first $CG/d1
echo 10000 >$CG/first/cpu.weight
for d in d1 d1/d2 d1/d2/d3; do
	echo +cpu >$CG/$d/cgroup.subtree_control || fail "cgroup.subtree_control of $d"
	mkdir $CG/$d/d$((${#d} / 3 + 2))
	echo 10000 >$CG/$d/cpu.weight
done
echo 10000 >$CG/d1/d2/d3/d4/cpu.weight
magpie-wakeup -m 1 -t 2 -s 20000 -c 2000 -r 86400 >/dev/null &
background=$!

turns EEVDF
start_magpie
turns magpie
show EEVDF
show magpie
if [ "$RUNS" -ge 15 ]; then
	within "${FIRST##* }" 0 1.15 || fail "first level: p99 may be more than 1.15 of root's"
	within "${DEEP##* }" 0 1.15 || fail "depth 4: p99 may be more than 1.15 of root's"
fi
kill $background
no_error_events
stop_magpie

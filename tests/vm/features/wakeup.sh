# SPDX-License-Identifier: GPL-2.0-only
# vm: --cpus 8 --llcs 1 --nodes 1 --icount 3 --timeout 2000
# carry: magpie-wakeup
# Tejun Heo's experiment: wakeup latency in the root group, in a first-level group and at depth 4, both of maximum
# weight, beside light background load, in turns: ten workers on eight CPUs (with one for each, chance decides whether one in a
# hundred waits, and p99 is one thing or another). MAGPIE_RUNS turns of a second each. Fails unless the 95 % confidence interval
# of nested p99 : root p99 lies below 1.15. EEVDF's figures beside them.
. /root/lib.sh
CG=/sys/fs/cgroup
RUNS=${MAGPIE_RUNS:-18}

# latency GROUP: p50 and p99 of a run there, in us
latency() {
	sh -c "echo \$\$ >$CG/$1/cgroup.procs && exec magpie-wakeup -m 1 -t 10 -s 10000 -c 15000 -r 1 --json" |
		jq -r '"\(.p50_us) \(.p99_us)"'
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
	awk "{ print \$$2 }" "$1" >/tmp/column
	median /tmp/column
}

# interval FILE N: the ratio of the medians of column N and column 2, and its 95 % confidence interval by bootstrap: "ratio
# low high"
interval() {
	awk -v n="$2" '
		function sort(v, nr,  i, j, x) {
			for (i = 2; i <= nr; i++) {
				x = v[i]
				for (j = i - 1; j >= 1 && v[j] > x; j--) v[j + 1] = v[j]
				v[j + 1] = x
			}
		}
		function median(v,  i, m) {
			for (i = 1; i <= NR; i++) m[i] = v[i]
			sort(m, NR)
			return m[int((NR + 1) / 2)]
		}
		{ nested[NR] = $n; root[NR] = $2 }
		END {
			srand(1)
			for (k = 1; k <= 1000; k++) {
				for (i = 1; i <= NR; i++) {
					a[i] = nested[1 + int(rand() * NR)]
					b[i] = root[1 + int(rand() * NR)]
				}
				ratios[k] = median(a) / median(b)
			}
			sort(ratios, 1000)
			printf "%.3f %.3f %.3f\n", median(nested) / median(root), ratios[25], ratios[975]
		}' "$1"
}

show() {
	say "$1: p50/p99 us: root $(column /tmp/"$1" 1)/$(column /tmp/"$1" 2), first level $(column /tmp/"$1" 3)/$(column /tmp/"$1" 4)," \
		"depth 4 $(column /tmp/"$1" 5)/$(column /tmp/"$1" 6)"
	FIRST=$(interval /tmp/"$1" 4) DEEP=$(interval /tmp/"$1" 6)
	say "$1: median p99 to root's, and 95 % interval, of $RUNS: first level $FIRST; depth 4 $DEEP"
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
within "${FIRST##* }" 0 1.15 || fail "first level: p99 may be more than 1.15 of root's"
within "${DEEP##* }" 0 1.15 || fail "depth 4: p99 may be more than 1.15 of root's"
kill $background
no_error_events
stop_magpie

# SPDX-License-Identifier: GPL-2.0-only
# vm: --icount --turn 50 --cpus 8 --llcs 2 --nodes 2 --timeout 3000
# vm: --icount --cpus 8 --llcs 2 --nodes 2 --timeout 3000
# Stealing off, in the LLC, in the node, everywhere (Steve Sistare's series): hackbench with 1, 2, 4 and 8 groups of 20
# tasks, medians of MAGPIE_RUNS runs, interleaved. The statistics are of intervals while it runs.
# All emulated CPUs take from one clock, an instruction is a nanosecond, and an idle one takes none: the time that hackbench
# reports is the work of all CPUs. Had they run side by side it would have taken that, divided by the number of CPUs that
# were busy meanwhile (or more, if the number varied, as it does without stealing): this is "elapsed". Fails if stealing
# does not make it 8 % less, as Steve Sistare saw; if stealing, however far, makes it 1 % more; if it makes 2 % more work.
. /root/lib.sh

RUNS=${MAGPIE_RUNS:-5}
CPUS=8
MODES="off llc node all"
SIZES="1 2 4 8"

# row MODE GROUPS: what the statistics say while the load runs.
row() {
	stats_of 0.3 hackbench -g $2 -f 10 -l 10000000 -p -T
	printf '  %-5s %6d %7.1f %8d %8d %8d %8d %8d %14.1f\n' $1 $2 "$(json_total busy)" "$(json_total steal)" \
		"$(json_total steal_llc)" "$(json_total steal_node)" "$(json_total steal_far)" "$(json_total steal_miss)" \
		"$(json_total stolen_wait_us)"
}

# measure MODE GROUPS: one run's work, and how long it would have taken side by side.
measure() {
	read -r up idle </proc/uptime
	hackbench -g $2 -f 10 -l $((1600 / $2)) -p -T >/tmp/hackbench 2>&1 || fail "hackbench"
	read -r up_after idle_after </proc/uptime
	work=$(sed -n 's/Time: //p' /tmp/hackbench)
	echo "$work" >>/tmp/work.$1.$2
	awk "BEGIN { print $work / ($CPUS - ($idle_after - $idle) / ($up_after - $up)) }" >>/tmp/elapsed.$1.$2
}

# show WHAT GROUPS: sets off, llc, node, all and ratio.
show() {
	for mode in $MODES; do
		eval "$mode=$(median /tmp/$1.$mode.$2)"
	done
	# shellcheck disable=SC2154 # set by eval
	ratio=$(awk "BEGIN { printf \"%.3f\", $all / $off }")
	# shellcheck disable=SC2154
	say "$(printf '%6d %-8s %8s %8s %8s %8s %8s' $2 $1 $off $llc $node $all $ratio)"
}

# at_most A FACTOR B MESSAGE
at_most() {
	awk "BEGIN { exit !($1 <= $2 * $3) }" || fail "$4"
}

say "steal groups   busy%    looks   st_llc  st_node   st_far   misses stolen_wait_us"
run=0
while [ $run -lt "$RUNS" ]; do
	for mode in $MODES; do
		start_magpie --steal $mode
		for groups in $SIZES; do
			[ $run -gt 0 ] || row $mode $groups
			measure $mode $groups
		done
		no_error_events
		stop_magpie
	done
	run=$((run + 1))
done

say "groups           off      llc     node      all  all/off"
for groups in $SIZES; do
	show work $groups
	at_most $all 1.02 $off "stealing makes more work"
	show elapsed $groups
	for mode in llc node all; do
		eval "at_most \$$mode 1.01 $off 'with --steal $mode it takes longer'"
	done
	at_most $all 0.92 $off "stealing gains less than 8 %"
done

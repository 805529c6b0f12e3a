# SPDX-License-Identifier: GPL-2.0-only
# vm: --cpus 4 --llcs 1 --nodes 1
# More cgroups than --max-cgroups: those beyond it count as part of their parents, which the log and the statistics say, with the
# names of those whose cpu.max is lost so. When others go there is room for new ones.
. /root/lib.sh
CG=/sys/fs/cgroup

# in_group GROUP: a hog there, limited to a fifth of a CPU.
in_group() {
	echo "20000 100000" >$CG/"$1"/cpu.max
	hog
	echo $HOG >$CG/"$1"/cgroup.procs || fail "move to $1"
	# Kernels before 6.17 do not report it: the loader looks ten times a second.
	sleep 0.5
}

# nr NAME: a number of the statistics of cgroups.
nr() {
	stats_json 1
	json_total "cgroups_$1"
}

# used GROUP: $USED in percent of a CPU, over two seconds.
used() {
	_before=$(awk '/^usage_usec/ { usage = $2 } /\./ { uptime = $1 } END { print usage, uptime }' $CG/"$1"/cpu.stat /proc/uptime)
	sleep 2
	_after=$(awk '/^usage_usec/ { usage = $2 } /\./ { uptime = $1 } END { print usage, uptime }' $CG/"$1"/cpu.stat /proc/uptime)
	USED=$(echo "$_before $_after" | awk '{ printf "%.1f", ($3 - $1) / 10000 / ($4 - $2) }')
}

echo +cpu >$CG/cgroup.subtree_control
start_magpie --max-cgroups 8
for i in $(seq 10); do
	mkdir $CG/g"$i"
	[ "$i" != 8 ] ||
		wait_for 10 "a warning of few" grep -q "8 of at most 8 cgroups are in use (--max-cgroups): " $LOG
done
scx_magpie status | grep -q "cgroups: 8 of 8," || fail "status: $(scx_magpie status)"
# At once, for the loader looks within a second which limits are lost.
echo "20000 100000" >$CG/g10/cpu.max
in_group g8
in_group g10
wait_for 10 "a warning" grep -q "2 cgroups exceed --max-cgroups 8, .*: use --max-cgroups 20" $LOG
wait_for 10 "the name of the one whose cpu.max is lost" grep -q "cpu.max is ignored in g10$" $LOG
lost=$(nr nr_lost)
say "$(nr nr_groups) groups, $lost lost"
[ "$lost" = 2 ] || fail "2 are"
used g8
eighth=$USED
used g10
say "the eighth uses $eighth % of a CPU, the tenth $USED %"
within "$eighth" 15 22 || fail "the eighth is limited to 20 %"
within "$USED" 80 101 || fail "the tenth was thought to be unlimited"
end_hogs
wait_for 10 "the groups to be empty" grep -q 'populated 0' $CG/g8/cgroup.events
wait_for 10 "the groups to be empty" grep -q 'populated 0' $CG/g10/cgroup.events
rmdir $CG/g9 $CG/g10 $CG/g1
lost=$(nr nr_lost)
[ "$lost" = 0 ] || fail "$lost lost of 7"
mkdir $CG/new
in_group new
used new
say "one that came when there was room again: $USED %"
within "$USED" 15 22 || fail "it is limited to 20 %"
end_hogs
still_enabled
no_error_events
stop_magpie

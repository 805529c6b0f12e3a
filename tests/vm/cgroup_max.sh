# SPDX-License-Identifier: GPL-2.0-only
# vm: --cpus 4 --llcs 1 --nodes 1 --icount 3 --timeout 900
# kernels: ends
# Groups use what cpu.max allows, within -10 %/+5 % of it; a raise takes effect within two periods; a parent tighter than
# its child counts, a burst comes on top; waits that are longer than the watchdog's timeout do not trip it; killed tasks
# of a throttled group exit.
. /root/lib.sh
CG=/sys/fs/cgroup
SECONDS_EACH=4

# usage GROUP: CPU time of the group in us, and the time since boot in s. By one process: between two the group may use up a quota.
usage() {
	awk '/^usage_usec/ { usage = $2 } /\./ { uptime = $1 } END { print usage, uptime }' $CG/"$1"/cpu.stat /proc/uptime
}

# used GROUP SECONDS: CPU time of the group, in percent of one CPU, in $USED
used() {
	_before=$(usage "$1")
	sleep "$2"
	USED=$(echo "$_before $(usage "$1")" | awk '{ printf "%.2f", ($3 - $1) / 10000 / ($4 - $2) }')
}

# at_once GROUP SECONDS: CPU time in us that the group, whose hogs are stopped, uses within SECONDS once they go on. One process
# looks: to start others takes so long here that the next period's quota would count, too.
at_once() {
	awk -v hogs="$(cat /tmp/hogs)" -v group=$CG/"$1"/cpu.stat -v seconds="$2" '
		function usage(_line, _us) {
			while ((getline _line <group) > 0)
				if (_line ~ /^usage_usec/)
					_us = substr(_line, 12)
			close(group)
			return _us
		}
		function uptime(_line) {
			getline _line <"/proc/uptime"
			close("/proc/uptime")
			return _line + 0
		}
		BEGIN {
			gsub("\n", " ", hogs)
			before = usage()
			system("kill -CONT " hogs)
			since = uptime()
			while (uptime() < since + seconds)
				after = usage()
			printf "%d\n", after - before
		}'
}

# expect NAME PERCENT
expect() {
	say "$1: used $USED % of a CPU, allowed $2 %"
	within "$USED" "$(awk "BEGIN { print $2 * 0.9 }")" "$(awk "BEGIN { print $2 * 1.05 }")" || fail "$1: not within -10 %/+5 %"
}

hogs() {
	for _ in $(seq "$2"); do
		hog
		echo $HOG >$CG/"$1"/cgroup.procs || fail "move to $1"
	done
}

echo +cpu >$CG/cgroup.subtree_control
mkdir $CG/a
start_magpie --timeout-ms 2000
hogs a 8
for max in "20000 100000:20" "50000 100000:50" "250000 100000:250" "20000 20000:100"; do
	echo "${max%:*}" >$CG/a/cpu.max
	# Kernels before 6.17 do not report it: the loader looks ten times a second.
	sleep 0.5
	used a $SECONDS_EACH
	expect "cpu.max ${max%:*}" "${max#*:}"
	still_enabled
done

end_hogs
wait_for 10 "the group to be empty" grep -q 'populated 0' $CG/a/cgroup.events
mkdir -p $CG/a/b
echo +cpu >$CG/a/cgroup.subtree_control || fail "nesting"
echo "30000 100000" >$CG/a/cpu.max
echo "200000 100000" >$CG/a/b/cpu.max
hogs a/b 8
sleep 2
used a $SECONDS_EACH
expect "30000 100000 above 200000 100000" 30

# Within two periods a raised limit counts.
echo "200000 100000" >$CG/a/cpu.max
sleep 0.2
used a 1
say "raised to 200000 100000: used $USED % of a CPU, allowed 200 %"
# A second may hold a good part of the quota of an eleventh period.
within "$USED" 180 222 || fail "a raised limit does not count yet, or too much"
stats_json 1
json '.cgroups_top."a/b".cpu_pct | 100 <= . and . < 300' >/dev/null || fail "a/b is not among the busiest: $JSON"

# What is not used is saved, up to the burst: all is used within a tenth of a second after 2.5 s without. (Eight hogs overrun by a
# tick each, before 6.18 by one more, for only ticks tell where they are.)
echo max >$CG/a/cpu.max
for burst in 0 200000; do
	echo 0 >$CG/a/b/cpu.max.burst
	echo "200000 1000000" >$CG/a/b/cpu.max
	echo $burst >$CG/a/b/cpu.max.burst || fail "cpu.max.burst"
	least=1000000
	for _ in 1 2 3; do
		kill -STOP $(cat /tmp/hogs)
		sleep 2.5
		_u=$(at_once a/b 0.2)
		[ $_u -ge $least ] || least=$_u
	done
	say "200000 of 1000000, burst $burst: $least us at once"
	within $least $(((200000 + burst) * 8 / 10)) $(((200000 + burst) * 14 / 10)) || fail "not the quota and the burst"
done

# One millisecond a second for eight hogs: each waits for longer than the watchdog allows, and so runs for a moment each half
# second whatever its group may use.
echo 0 >$CG/a/b/cpu.max.burst
echo "1000 1000000" >$CG/a/b/cpu.max
sleep 6
still_enabled
used a/b $SECONDS_EACH
say "1000 of 1000000, eight hogs: used $USED % of a CPU"
within "$USED" 0.05 0.4 || fail "1000 of 1000000 is 0.1 %"
still_enabled

# Killed tasks exit when they are next checked, although their group has used up its quota.
kill -KILL $(cat /tmp/hogs)
wait_for 2 "the killed tasks of a throttled group to exit" grep -q 'populated 0' $CG/a/cgroup.events
rm /tmp/hogs
hogs a/b 8

echo max >$CG/a/b/cpu.max
sleep 0.2
used a/b 2
say "no limit any more: used $USED % of a CPU"
within "$USED" 300 500 || fail "still limited"
end_hogs
no_error_events
stop_magpie

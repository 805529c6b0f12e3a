# SPDX-License-Identifier: GPL-2.0-only
# vm: --cpus 2 --llcs 1 --nodes 1 --timeout 900
# carry: magpie-holders
# A group that has used up its cpu.max keeps no kernel lock: an unlimited task that wants the lock of a directory, or of an address
# space, that a throttled task uses nearly all the time waits for 100 ms at most. The group uses what it may, within -10 %/+5 %;
# before 6.18 nothing tells that a task comes back from the kernel but the tick, and it may use more at a time.
. /root/lib.sh
CG=/sys/fs/cgroup
SECONDS_EACH=10

# fill PROGRAM...: the group has that and ten hogs.
fill() {
	"$@" >/dev/null 2>&1 &
	HOLDER=$!
	echo $HOLDER >>/tmp/hogs
	echo $HOLDER >$CG/q/cgroup.procs
	for _ in $(seq 10); do
		hog
		echo $HOG >$CG/q/cgroup.procs || fail "move to q"
	done
	sleep 2
}

# measure NAME MEASUREMENT...: $LONGEST in ms, and $USED in percent of what the group may use.
measure() {
	_name=$1
	shift
	_before=$(awk '/^usage_usec/ { usage = $2 } /\./ { uptime = $1 } END { print usage, uptime }' $CG/q/cpu.stat /proc/uptime)
	magpie-holders "$@" $SECONDS_EACH >/tmp/times || fail "magpie-holders $1"
	_after=$(awk '/^usage_usec/ { usage = $2 } /\./ { uptime = $1 } END { print usage, uptime }' $CG/q/cpu.stat /proc/uptime)
	LONGEST=$(sed -n 's/.*"longest_ms":\([0-9.]*\).*/\1/p' /tmp/times)
	USED=$(echo "$_before $_after" | awk '{ printf "%.1f", ($3 - $1) / ($4 - $2) / 50000 * 100 }')
	[ -n "$LONGEST" ] || fail "no times in: $(cat /tmp/times)"
	say "$_name: $(cat /tmp/times); the group used $USED % of its quota"
}

check() {
	within "$LONGEST" 0 100 || fail "it waited for a lock that a throttled task held"
	# A window holds a part of a period more or less.
	if grep -q bpf_task_work_schedule_resume /proc/kallsyms; then
		within "$USED" 90 105 || fail "not within -10 %/+5 %"
	fi
}

echo +cpu >$CG/cgroup.subtree_control
mkdir $CG/q /tmp/dir
echo "10000 200000" >$CG/q/cpu.max
fill magpie-holders hold /tmp/dir
start_magpie
sleep 1
measure directory create /tmp/dir
check
end_hogs
fill magpie-holders map
measure "address space" maps $HOLDER
check
end_hogs
still_enabled
no_error_events
stop_magpie

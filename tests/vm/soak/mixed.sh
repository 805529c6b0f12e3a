# SPDX-License-Identifier: GPL-2.0-only
# mixed.sh SECONDS, in the guest of `make soak-vm`: for so long the scheduler runs under a load of all kinds at a time.
#
#	beside each other   hackbench; stress-ng's stressors of the classes scheduler and cpu, one after the other; hogs
#	in turns            groups made, limited, filled and removed; affinity; nice; a CPU off and on; a real-time task
#	a few times         the machine is suspended
#
# A line of the table each minute (each tenth of a short run) says what the loader uses. At the end its memory is what it was
# after a tenth of the time, within 5 % (runs of ten minutes or more), so are its descriptors; no task has waited for too long, nothing was started anew.
. /root/lib.sh
SECONDS_ALL=$1
CPUS=/sys/devices/system/cpu
CG=/sys/fs/cgroup
GROWTH_MAX=5 # percent
NR_HOGS=4
# They starve others as real-time tasks, offline CPUs themselves, or fill the guest's memory.
STRESS_NOT=softlockup,cpu-online,forkheavy,mmapfork,smi
LOG_LINES=2000 # of the scheduler, when something is wrong: its dump
seed=1

# As in lib.sh, but a task may be sent to a CPU that is just going: then the kernel picks another, and counts a fallback.
error_events() {
	grep -hE 'NOT_OWNED|KEEP_LAST|DENIED|ENQ_SKIP' $SCX/root/events | tr '\n' ' '
}

# RANDOM_BELOW is a number below $1, the same in each run.
random_below() {
	seed=$(((seed * 1103515245 + 12345) % 2147483648))
	RANDOM_BELOW=$((seed / 65536 % $1))
}

# status_of FIELD: a number of the loader's /proc/PID/status.
status_of() {
	awk -v field="$1:" '$1 == field { print $2 }' /proc/$MAGPIE/status
}

# CPU time of all threads, in hundredths of a second.
loader_time() {
	sed 's/.*) //' /proc/$MAGPIE/stat | awk '{ print $12 + $13 }'
}

descriptors() {
	ls /proc/$MAGPIE/fd | wc -l
}

# measure: RSS (KiB) and DESCRIPTORS of the loader, after a client of its statistics has come and gone. It opens files for
# moments, so that of many counts of descriptors the lowest is the one to compare.
measure() {
	local count
	stats_json 1
	RSS=$(status_of VmRSS)
	[ -n "$RSS" ] || fail "the loader is gone"
	DESCRIPTORS=$(descriptors)
	for _ in $(seq 20); do
		count=$(descriptors)
		[ "$count" -ge "$DESCRIPTORS" ] || DESCRIPTORS=$count
	done
}

few_descriptors() {
	[ "$(descriptors)" -le "$first_descriptors" ]
}

row() {
	measure
	now
	printf '  %6d %9d %12d %8d %10.2f %10d %7d %8d %9d\n' $((NOW - BEGAN)) "$RSS" "$DESCRIPTORS" "$(status_of Threads)" \
		"$(loader_time | awk '{ print $1 / 100 }')" "$(wc -l </tmp/rounds)" $groups $offline $suspended
}

# Chains of groups are made, limited, filled with the hogs, and removed.
churn_groups() {
	local i path pid
	for i in 1 2 3 4; do
		path=$CG/soak/g$i
		mkdir $path || fail "mkdir $path"
		echo +cpu >$path/cgroup.subtree_control || fail "cgroup.subtree_control of $path"
		mkdir $path/leaf || fail "mkdir $path/leaf"
		random_below 1000
		echo $((RANDOM_BELOW + 1)) >$path/cpu.weight
		echo "$((i * 10000)) 100000" >$path/leaf/cpu.max
		groups=$((groups + 2))
		for pid in $(cat /tmp/hogs); do
			echo "$pid" >$path/leaf/cgroup.procs || fail "move to $path"
		done
		echo max >$path/leaf/cpu.max
	done
	for pid in $(cat /tmp/hogs); do
		echo "$pid" >$CG/soak/hogs/cgroup.procs || fail "move back"
	done
	for i in 1 2 3 4; do
		wait_for 30 "group g$i to go" rmdir $CG/soak/g$i/leaf $CG/soak/g$i
	done
	random_below 8
	echo "$((RANDOM_BELOW + 1))0000 100000" >$CG/soak/hogs/cpu.max
}

change_tasks() {
	local pid
	for pid in $(cat /tmp/hogs); do
		random_below $((NR_CPUS - 1))
		taskset -p "$(printf '%x' $((3 << RANDOM_BELOW)))" "$pid" >/dev/null || fail "affinity of hog $pid"
		random_below 40
		renice -n $((RANDOM_BELOW - 20)) -p "$pid" 2>/dev/null || fail "nice of hog $pid"
	done
}

replug() {
	local cpu
	random_below $((NR_CPUS - 1))
	cpu=$CPUS/cpu$((RANDOM_BELOW + 1))/online
	echo 0 >$cpu || fail "$cpu: cannot write 0"
	echo 1 >$cpu || fail "$cpu: cannot write 1"
	offline=$((offline + 1))
}

realtime() {
	chrt -f 50 sh -c 'i=0; while [ $i -lt 20000 ]; do i=$((i + 1)); done' || fail "chrt"
}

suspend_if_due() {
	now
	[ "$NOW" -ge $next_suspend ] && can_suspend_to_ram || return 0
	suspend "suspend to RAM" suspend_to_ram 3
	suspended=$((suspended + 1))
	now
	next_suspend=$((NOW + SUSPEND_EACH))
}

NR_CPUS=$(nproc)
EACH=$((SECONDS_ALL / 10 < 60 ? SECONDS_ALL / 10 : 60))
SUSPEND_EACH=$((SECONDS_ALL / 3 < 600 ? SECONDS_ALL / 3 : 600))
[ $EACH -ge 1 ] || fail "$SECONDS_ALL s are too few: at least 10"
groups=0 offline=0 suspended=0
echo +cpu >$CG/cgroup.subtree_control
start_magpie
can_suspend_to_ram || say "no suspension: /sys/power/mem_sleep: $(cat /sys/power/mem_sleep 2>&1)"

start_rounds
load=$ROUNDS
(
	trap 'kill -INT $stress' TERM
	while [ ! -e /tmp/stop ]; do
		stress-ng --class scheduler,cpu --sequential 1 --exclude $STRESS_NOT --timeout 2 --temp-path /tmp --oomable \
			>/tmp/stress 2>&1 &
		stress=$!
		wait $stress
	done
	wait $stress
) &
stress=$!
mkdir -p $CG/soak/hogs
echo +cpu >$CG/soak/cgroup.subtree_control || fail "cgroup.subtree_control"
for _ in $(seq $NR_HOGS); do
	hog
	echo "$HOG" >$CG/soak/hogs/cgroup.procs || fail "move to hogs"
done
wait_for 60 "hackbench" test -s /tmp/rounds
wait_for 60 "stress-ng" pidof stress-ng

say "hogs: $(tr '\n' ' ' </tmp/hogs); hackbench in a loop: $load; stress-ng in a loop: $stress"

now
BEGAN=$NOW
END=$((NOW + SECONDS_ALL))
TENTH=$((NOW + SECONDS_ALL / 10))
next_row=$NOW
next_suspend=$((NOW + SUSPEND_EACH / 2))
first_rss=
printf '  %6s %9s %12s %8s %10s %10s %7s %8s %9s\n' "time" "RSS" "descriptors" "threads" "CPU time" "hackbench" "groups" "offline" "suspended"
printf '  %6s %9s %12s %8s %10s %10s %7s %8s %9s\n' "s" "KiB" "" "" "s" "rounds" "made" "CPUs" "times"
while [ "$NOW" -lt $END ]; do
	if [ "$NOW" -ge $next_row ]; then
		row
		next_row=$((next_row + EACH))
		if [ -z "$first_rss" ] && [ "$NOW" -ge $TENTH ]; then
			first_rss=$RSS first_descriptors=$DESCRIPTORS
		fi
	fi
	churn_groups
	change_tasks
	replug
	realtime
	suspend_if_due
	still_enabled
	no_error_events
	kill -0 $load 2>/dev/null || fail "hackbench: $(tail -n 3 /tmp/out)"
	kill -0 $stress 2>/dev/null || fail "stress-ng ended: $(tail -n 3 /tmp/stress)"
	now
done
row

touch /tmp/stop
kill -TERM $stress
wait_for 60 "stress-ng to end" sh -c '! pidof stress-ng'
end_hogs
wait $load || fail "hackbench: $(tail -n 3 /tmp/out)"
still_enabled
no_error_events
! grep "the scheduler again" $LOG || fail "started anew"
[ -n "$first_rss" ] || fail "no line of the table after a tenth of the time: $SECONDS_ALL s are too few"
growth=$(awk -v first="$first_rss" -v last="$RSS" 'BEGIN { printf "%.1f", (last - first) * 100 / first }')
say "RSS: $first_rss KiB after a tenth of the time, $RSS KiB at the end: $growth % more"
# In a short run the first pages of its tables still come.
[ "$SECONDS_ALL" -lt 600 ] || within "$growth" -100 $GROWTH_MAX || fail "RSS grew by $growth %, more than $GROWTH_MAX %"
wait_for 30 "descriptors ($DESCRIPTORS) to be as few as after a tenth of the time ($first_descriptors)" few_descriptors
say "descriptors: $first_descriptors, as after a tenth of the time"
say "error events: $EVENTS"
stop_magpie

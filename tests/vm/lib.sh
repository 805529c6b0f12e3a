# SPDX-License-Identifier: GPL-2.0-only
# What the tests share; sourced by each in the guest. A test says what it does on lines of its own, stops at the
# first thing that is wrong (fail) and exits 0 otherwise. Nothing sleeps where it can wait for an event.

set -u
exec 3>&1
SCX=/sys/kernel/sched_ext
LOG=/tmp/magpie.log

say() {
	echo "  $*"
}

# Ends the test, also from a subshell.
fail() {
	{
		echo "  FAILED: $*"
		if [ -s $LOG ]; then
			echo "  --- the scheduler said:"
			tail -n ${LOG_LINES:-40} $LOG
		fi
	} >&3
	kill -TERM $$
	exit 1
}

state() {
	cat $SCX/state
}

# NOW is the time since boot in seconds. No process is started: on an emulated machine watching costs much.
now() {
	read -r NOW _ </proc/uptime
	NOW=${NOW%.*}
}

# wait_for SECONDS DESCRIPTION COMMAND...: may be nested.
wait_for() {
	local deadline what=$2
	now
	deadline=$((NOW + $1))
	shift 2
	until "$@" >/dev/null 2>&1; do
		now
		[ "$NOW" -lt $deadline ] || fail "waited in vain for: $what"
		sleep 0.1
	done
}

is_state() {
	[ "$(state)" = "$1" ]
}

is_enabled_or_dead() {
	is_state enabled || ! kill -0 $MAGPIE
}

# start_magpie FLAGS...: attaches, sets MAGPIE to its pid.
start_magpie() {
	scx_magpie "$@" >$LOG 2>&1 &
	MAGPIE=$!
	wait_for 60 "state enabled" is_enabled_or_dead
	is_state enabled || fail "did not attach"
	EVENTS=$(error_events)
}

# Ctrl-C: detaches, says why, exits 0.
stop_magpie() {
	kill -INT $MAGPIE
	wait $MAGPIE || fail "exit status $? after Ctrl-C"
	is_state disabled || fail "state is $(state) after Ctrl-C"
	grep -q "unregistered from user space" $LOG || fail "no 'unregistered from user space'"
}

still_enabled() {
	is_state enabled || fail "ejected: state is $(state)"
}

# The kernel's counters of things that should not happen, as one line. (The others count what is part of life.)
error_events() {
	grep -shE 'FALLBACK|OFFLINE|NOT_OWNED|REFILL_SLICE_DFL|KEEP_LAST|DENIED|ENQ_SKIP' $SCX/root/events | tr '\n' ' '
}

# None of them moved since start_magpie. 6.12 has no such counters.
no_error_events() {
	case $(uname -r) in 6.12.*) return ;; esac
	[ -n "$EVENTS" ] || fail "no event counters"
	[ "$(error_events)" = "$EVENTS" ] || fail "error events: $(error_events); at start: $EVENTS"
}

# What may count while the machine is suspended: the kernel schedules in the scheduler's place then (bypass).
suspend_events() {
	grep -hE 'OFFLINE|NOT_OWNED|DENIED|ENQ_SKIP' $SCX/root/events | tr '\n' ' '
}

# suspend DESCRIPTION COMMAND...: runs a command that returns after the resume. The scheduler is attached at once then, and
# error events count from here: those that belong to the suspension are told from those after it.
suspend() {
	local what=$1 before
	shift
	no_error_events
	before=$(suspend_events)
	"$@"
	still_enabled
	[ "$(suspend_events)" = "$before" ] || fail "$what: events $(suspend_events); before: $before"
	EVENTS=$(error_events)
	! grep "the scheduler again" $LOG || fail "$what: started anew"
}

# suspend_to_ram SECONDS: S3, ended by an alarm of the real-time clock.
# The firmware does not restore PMBASE and ACPI_CNTL of QEMU's ICH9: without them the guest can neither suspend again nor
# power off.
suspend_to_ram() {
	local lpc=/sys/bus/pci/devices/0000:00:1f.0/config alarm=/sys/class/rtc/rtc0/wakealarm
	dd if=$lpc of=/tmp/lpc bs=1 skip=64 count=5 2>/dev/null || fail "cannot read $lpc"
	echo deep >/sys/power/mem_sleep || fail "no S3"
	echo 0 >$alarm
	echo "+$1" >$alarm || fail "cannot set an alarm"
	echo mem >/sys/power/state || fail "no suspension: $(cat /sys/power/suspend_stats/last_failed_step)"
	dd if=/tmp/lpc of=$lpc bs=1 seek=64 conv=notrunc 2>/dev/null || fail "cannot write $lpc"
}

can_suspend_to_ram() {
	case $(uname -r) in 7.3.*) return 1 ;; esac # a guest restarts when it resumes, under the kernel's own scheduler, too
	grep -q deep /sys/power/mem_sleep 2>/dev/null && [ -e /sys/class/rtc/rtc0/wakealarm ]
}

# CPU time of a process so far, in microseconds.
cpu_time_us() {
	awk '{ printf "%d\n", $1 / 1000 }' /proc/"$1"/schedstat
}

# hog [COMMAND PREFIX...]: a process that never sleeps; sets HOG to its pid.
hog() {
	"$@" sh -c 'while :; do :; done' hog >/dev/null 2>&1 &
	HOG=$!
	echo $HOG >>/tmp/hogs
}

# hogs_in GROUP NR: that many, in the cgroup $CG/GROUP.
hogs_in() {
	for _ in $(seq "$2"); do
		hog sh -c "echo 0 >$CG/$1/cgroup.procs; exec \"\$@\"" sh
	done
}

# group_used GROUP: CPU time of the cgroup $CG/GROUP, in us.
group_used() {
	sed -n 's/^usage_usec //p' $CG/"$1"/cpu.stat
}

# Kills them, and waits until they are gone: their cgroups are empty then.
end_hogs() {
	kill -9 $(cat /tmp/hogs) || fail "a hog was gone"
	wait $(cat /tmp/hogs) 2>/dev/null || :
	rm /tmp/hogs
}

# hackbench, again and again until there is /tmp/stop: a line of /tmp/rounds each time. Sets ROUNDS to the loop's pid.
start_rounds() {
	: >/tmp/rounds
	(
		while [ ! -e /tmp/stop ]; do
			hackbench -g 1 -l 50 -p >/tmp/out 2>&1 || exit 1
			echo >>/tmp/rounds
		done
	) &
	ROUNDS=$!
}

# send FILE: to the program of the test's line `# check:`.
send() {
	echo "sent ${1##*/} $(base64 "$1" | tr -d '\n')"
}

# Statistics of a fresh interval of SECONDS, which may be a fraction, in $JSON.
stats_json() {
	JSON=$(timeout 160 scx_magpie --monitor "$1" --json 2>/dev/null | sed -n '2{p;q;}')
	[ -n "$JSON" ] || fail "no statistics"
}

# stats_of INTERVAL COMMAND...: the same while a load runs, which is ended then.
stats_of() {
	_interval=$1
	shift
	"$@" >/dev/null 2>&1 &
	_load=$!
	stats_json "$_interval"
	kill $_load || fail "the load was gone: $*"
	wait $_load 2>/dev/null
}

# Of a file with a number a line, an odd count of them.
median() {
	sort -n "$1" | sed -n "$((($(wc -l <"$1") + 1) / 2))p"
}

has_lines() {
	[ "$(wc -l <"$1")" -ge "$2" ]
}

# json FILTER: what jq finds in $JSON; fails if that is nothing, or false.
json() {
	echo "$JSON" | jq -e "$1"
}

# json_total NAME: a number of the whole machine in $JSON.
json_total() {
	json ".$1" || fail "no $1 in: $JSON"
}

# json_llc N NAME: a number of LLC N.
json_llc() {
	json_total "llcs.\"$1\".$2"
}

# json_sum NAME: of a number of the whole machine over the lines of /tmp/all.json.
json_sum() {
	jq -n "[inputs.$1] | add" /tmp/all.json
}

# within VALUE LOW HIGH
within() {
	awk -v v="$1" -v low="$2" -v high="$3" 'BEGIN { exit !(v != "" && v >= low && v <= high) }'
}

# watch_gap: writes to /tmp/gap how long no scheduler was attached, in seconds, once another one is. It forks nothing.
watch_gap() {
	local state now from=
	[ -p /tmp/never ] || mkfifo /tmp/never
	exec 9<>/tmp/never
	while :; do
		read -r state <$SCX/state
		read -r now _ </proc/uptime
		if [ "$state" != enabled ]; then
			from=${from:-$now}
		elif [ -n "$from" ]; then
			awk "BEGIN { printf \"%.2f\\n\", $now - $from }" >/tmp/gap.new
			mv /tmp/gap.new /tmp/gap
			return
		fi
		read -r -t 0.01 _ <&9
	done
}

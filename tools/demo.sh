# SPDX-License-Identifier: GPL-2.0-only
# What `make demo` shows, in the VM, in some two minutes of the VM's time:
#
#	attach --> idle --> half load --> full --> twice --> a container with a limit --> two weighted groups --> detach
#	       --> summary
#
#	demo.sh [ROWS COLUMNS]    the size of the terminal, if there is one: the view is `scx_magpie top`, else a table
#
# Ends with 0 only if all was as it says.
. /root/lib.sh

ROWS=${1:-}
COLUMNS=${2:-}
[ "${ROWS:-0}" -ge 20 ] && [ "$COLUMNS" -ge 60 ] || ROWS= # too small for `top`
CG=/sys/fs/cgroup
SECONDS_EACH=8
# Loads as magpie-wakeup's: threads work for 2 ms, and wait for 4 to 6 to be woken. They ask for this part of eight CPUs:
HALF='-m 2 -t 4'
FULL='-m 2 -t 8'
TWICE='-m 2 -t 16'
WRONG=0

# begin_view: with a terminal `top` fills it, but for three lines below. What else there is to say waits in /tmp/story.
begin_view() {
	[ -n "$ROWS" ] || return 0
	# Its keyboard is a pipe that stays open.
	mkfifo /tmp/keys
	exec 9<>/tmp/keys
	script -q -c "stty rows $((ROWS - 3)) cols $COLUMNS -echo; scx_magpie top --interval 0.5" /dev/null <&9 &
	TOP=$!
	exec 4>&1 >/tmp/story 3>&1
	trap 'end_view; exit 1' TERM
}

end_view() {
	[ -n "$ROWS" ] || return 0
	trap - TERM
	printf q >&9
	wait $TOP
	exec >&4 3>&4
	cat /tmp/story
}

# title WORDS: begins a phase.
title() {
	TITLE="== $*"
	echo
	echo "$TITLE"
}

# look WORDS: what to look at; below `top`, too.
look() {
	echo "   Look at $*"
	[ -z "$ROWS" ] ||
		printf "\0337\033[0m\033[$((ROWS - 1));1H\033[K%.${COLUMNS}s\033[$ROWS;1H\033[K%.${COLUMNS}s\0338" "$TITLE" "   Look at $*" >&4
}

# expect WHAT VALUE LOW HIGH: says whether it is as it should be.
expect() {
	say "$1: $(printf %.4g "$2")"
	within "$2" "$3" "$4" || {
		say "BUT $3 to $4 was expected"
		WRONG=1
	}
}

# view SECONDS [KEY]: that view of `top` (2: LLCs, 4: cgroups), or the table, with cgroups if it is of them.
view() {
	local seconds=$1 key=${2:-1}
	if [ -z "$ROWS" ]; then
		local details=
		[ "$key" != 4 ] || details=--details
		# The shell would say that it was terminated.
		{
			timeout "$seconds" scx_magpie --monitor $((seconds / 3)) $details |
				awk '!/^at home| : | -> |^$/ { print; fflush() }'
		} 2>/dev/null
		return
	fi
	sleep 1 # until there are cgroups to show
	printf %s "$key" >&9
	sleep $((seconds - 1))
}

# load NAME OPTIONS: for SECONDS_EACH, its figures to /tmp/NAME.
load() {
	# shellcheck disable=SC2086 # a list of options
	timeout -s KILL 120 magpie-wakeup $2 -c 2000 -s 4000 -r $SECONDS_EACH --json >"/tmp/$1"
}

# watch NAME OPTIONS [KEY]: the load under scx_magpie in that view, and its statistics over most of the time to /tmp/NAME.stats.
watch() {
	load "$1" "$2" &
	local load=$!
	stats "$1" &
	local stats=$!
	view $((SECONDS_EACH - 1)) "${3:-}"
	wait $load || fail "the load ended with status $?"
	wait $stats
	still_enabled
}

stats() {
	stats_json $((SECONDS_EACH - 2))
	echo "$JSON" >"/tmp/$1.stats"
}

# stat NAME FIELD, figure NAME FIELD: of what watch and load have written.
stat() {
	figure "$1.stats" "$2"
}

figure() {
	JSON=$(cat "/tmp/$1")
	json_total "$2"
}

# hogs NR GROUP: into that cgroup.
hogs() {
	for _ in $(seq "$1"); do
		hog
		echo $HOG >"$CG/$2/cgroup.procs" || fail "move to $2"
	done
}

# usage GROUP: CPU time that it has used, us.
usage() {
	sed -n 's/^usage_usec //p' "$CG/$1/cpu.stat"
}

# contain NAME [KEY]: half load to /tmp/NAME.container, beside a group that may use two CPUs and has eight hogs; what it uses, in
# percent of a CPU, to /tmp/NAME.contained. KEY chooses the view.
contain() {
	mkdir $CG/container || fail "cannot make a cgroup"
	echo "200000 100000" >$CG/container/cpu.max || fail "no cpu.max"
	hogs 8 container
	local used began load
	used=$(usage container) began=$(cut -d ' ' -f 1 /proc/uptime)
	load "$1.container" "$HALF" &
	load=$!
	[ $# = 1 ] || view $((SECONDS_EACH - 1)) "$2"
	wait $load || fail "the load ended with status $?"
	used=$(($(usage container) - used))
	awk -v us=$used -v began="$began" '{ printf "%.0f\n", us / ($1 - began) / 1e4 }' /proc/uptime >"/tmp/$1.contained"
	end_hogs
	rmdir $CG/container
}

# weigh NAME [KEY]: two groups of eight hogs each, of weight 100 and 300; the second one's share, in percent, to /tmp/NAME.share.
weigh() {
	mkdir $CG/light $CG/heavy || fail "cannot make cgroups"
	echo 100 >$CG/light/cpu.weight
	echo 300 >$CG/heavy/cpu.weight
	hogs 8 light
	hogs 8 heavy
	sleep 1
	local light heavy
	light=$(usage light) heavy=$(usage heavy)
	if [ $# = 2 ]; then view $((SECONDS_EACH - 2)) "$2"; else sleep $((SECONDS_EACH - 2)); fi
	light=$(($(usage light) - light)) heavy=$(($(usage heavy) - heavy))
	end_hogs
	rmdir $CG/light $CG/heavy
	awk -v a=$light -v b=$heavy 'BEGIN { printf "%.1f\n", 100 * b / (a + b) }' >"/tmp/$1.share"
}

echo "== $(uname -sr), $(scx_magpie topology | head -n 1)"
[ -z "$CLOCK" ] || echo "   Emulated: the clock counts instructions, so idle time passes at once, and load takes its time."
echo +cpu >$CG/cgroup.subtree_control
start_magpie --latency-hist
say "scx_magpie is attached: it schedules all ordinary tasks from now on"
begin_view

title "1. Idle"
look "util: the machine has next to nothing to do; each wakeup finds an idle CPU."
view 6
still_enabled

title "2. Half load: 8 threads that work for 2 ms, and wait to be woken"
look "found: most wakeups find an idle CPU, and after a look at few."
watch magpie.half "$HALF"
expect "utilization, %" "$(stat magpie.half util)" 25 70
expect "wakeups that found an idle CPU, %" "$(stat magpie.half success_rate)" 80 100

title "3. Full load: 16 threads"
look "stolen: a CPU that runs out of work takes a task that waits elsewhere."
watch magpie.full "$FULL"
expect "utilization, %" "$(stat magpie.full util)" 70 100
expect "tasks stolen" "$(stat magpie.full stolen)" 1 1000000

title "4. Twice as much as the CPUs can do: 32 threads"
look "nr_scan: 0. No CPU is idle, and so no wakeup spends time on the search."
watch magpie.twice "$TWICE" 2
expect "utilization, %" "$(stat magpie.twice util)" 85 100
expect "CPUs that a wakeup may look at" "$(stat magpie.twice nr_scan)" 0 0

title "5. Half load, alongside a container of 8 busy tasks that may use 2 CPUs (cpu.max)"
look "the container's CPU time: 200 % of a CPU, and no more. It is throttled."
contain magpie 4
still_enabled
expect "CPU time of the container, % of a CPU" "$(cat /tmp/magpie.contained)" 170 210

title "6. Two groups of 8 busy tasks, cpu.weight 100 and 300"
look "their CPU time: one to three."
weigh magpie 4
expect "the heavier group's share of the CPUs, %" "$(cat /tmp/magpie.share)" 68 82

title "7. Away: the scheduler is detached, and tasks go on under the kernel's own, EEVDF"
look "the view: no scheduler."
still_enabled
no_error_events
stop_magpie
[ -z "$ROWS" ] || sleep 4 # for that to be seen
end_view
title "Summary: what scx_magpie counted"
printf '  %-40s %8s %8s %8s\n' "scx_magpie alone" half full twice
row() {
	printf "  %-40s %8$3 %8$3 %8$3\n" "$1" "$(stat magpie.half "$2")" "$(stat magpie.full "$2")" "$(stat magpie.twice "$2")"
}
row "utilization, %" util .1f
row "nr_scan: CPUs a wakeup may look at" nr_scan s
row "search efficiency: found of scanned, %" se_eff .1f
row "tasks stolen in the LLC" steal_llc s
row "tasks stolen from other nodes" steal_far s
echo
say "sched_ext is $(state); $(grep -a EXIT $LOG | head -n 1)"
[ $WRONG = 0 ] || fail "not all was as expected: see BUT above"
say "All was as expected."

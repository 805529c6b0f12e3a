# SPDX-License-Identifier: GPL-2.0-only
# vm: --cpus 4 --llcs 2 --nodes 2 --append hpet=disable
# The machine is suspended under load, each way that it knows: right after the resume the scheduler is attached still, was not
# started anew, and the load goes on. (Without hpet=disable, or with more CPUs, a resume takes tens of seconds: until Linux
# brings them up the firmware lets them spin, and they take turns with the one that works.)
. /root/lib.sh
RAN=0
CPUS=$(nproc)

rounds() {
	wc -l </tmp/rounds
}

more_rounds() {
	[ "$(rounds)" -gt "$1" ]
}

ran_since() {
	[ "$(cpu_time_us "$1")" -gt "$2" ]
}

load_goes_on() {
	local before hog at
	before=$(rounds)
	for hog in $(cat /tmp/hogs); do
		at=$(cpu_time_us "$hog")
		wait_for 30 "$1: hog $hog to run" ran_since "$hog" "$at"
	done
	# One round may have been under way.
	wait_for 60 "$1: two rounds of hackbench" more_rounds $((before + 1))
	no_error_events
}

# suspend_by DESCRIPTION EXPECTED COMMAND...: EXPECTED is how often a CPU goes or comes at least.
suspend_by() {
	local what=$1 expected=$2 changes
	shift 2
	changes=$(cat $SCX/hotplug_seq)
	suspend "$what" "$@"
	changes=$(($(cat $SCX/hotplug_seq) - changes))
	[ $changes -ge "$expected" ] || fail "$what: $changes times a CPU went or came, not $expected"
	[ "$(nproc)" = "$CPUS" ] || fail "$what: $(nproc) CPUs after the resume"
	load_goes_on "$what"
	RAN=$((RAN + 1))
	say "$what: the load went on ($changes times a CPU went or came)"
}

# Ends before the machine sleeps, five seconds after this stage.
pm_test() {
	echo "$1" >/sys/power/pm_test
	echo mem >/sys/power/state || fail "pm_test $1: no suspension"
	echo none >/sys/power/pm_test
}

# There is nowhere to write the image of memory that is made, so the machine goes on.
hibernate() {
	! echo disk >/sys/power/state 2>/dev/null || fail "the machine hibernated"
}

start_magpie
start_rounds
load=$ROUNDS
for _ in 1 2 3; do hog; done
hog taskset 8 # CPU 3
wait_for 60 "load" more_rounds 0

CHANGES=$((2 * (CPUS - 1)))
for level in freezer processors; do
	if ! grep -qs $level /sys/power/pm_test; then
		say "pm_test $level: left out, the kernel has no CONFIG_PM_DEBUG"
	elif [ $level = freezer ]; then
		suspend_by "pm_test $level" 0 pm_test $level
	else
		suspend_by "pm_test $level" $CHANGES pm_test $level
	fi
done
if grep -qs disk /sys/power/state; then
	suspend_by "hibernation, up to the image" $CHANGES hibernate
else
	say "hibernation: left out, the kernel has none"
fi
if can_suspend_to_ram; then
	for _ in 1 2; do
		suspend_by "suspend to RAM" $CHANGES suspend_to_ram 3
	done
else
	say "suspend to RAM: left out: /sys/power/mem_sleep: $(cat /sys/power/mem_sleep 2>&1)"
fi
[ $RAN -gt 0 ] || fail "the kernel cannot suspend in any way"

touch /tmp/stop
end_hogs
wait $load || fail "hackbench: $(tail -n 3 /tmp/out)"
stop_magpie

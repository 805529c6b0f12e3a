# SPDX-License-Identifier: GPL-2.0-only
# vm: --cpus 8 --llcs 2 --nodes 2
# A CPU goes offline and comes back under load: the scheduler starts anew each time, no task is lost, the load finishes.
. /root/lib.sh

# As in lib.sh, but a task may be sent to a CPU that is just going: then the kernel picks another, and counts a fallback.
error_events() {
	grep -hE 'OFFLINE|NOT_OWNED|KEEP_LAST|DENIED|ENQ_SKIP' $SCX/root/events | tr '\n' ' '
}

restarts() {
	[ "$(grep -c 'starting anew' $LOG)" -ge "$1" ] && is_state enabled
}

start_magpie
(
	rounds=0
	while [ ! -e /tmp/stop ]; do
		hackbench -g 2 -l 20 -p >/tmp/out 2>&1 || exit 1
		rounds=$((rounds + 1))
	done
	echo $rounds >/tmp/rounds
) &
load=$!
wait_for 30 "load" pidof hackbench
restarted=0
for cpu in 6; do
	for online in 0 1; do
		no_error_events
		echo $online >/sys/devices/system/cpu/cpu$cpu/online
		restarted=$((restarted + 1))
		wait_for 60 "restart $restarted" restarts $restarted
		EVENTS=$(error_events)
		say "CPU $cpu online $online: attached again, $(scx_magpie topology | head -n 1)"
	done
done
touch /tmp/stop
wait $load || fail "hackbench: $(tail -n 3 /tmp/out)"
say "the load went on: $(cat /tmp/rounds) rounds of hackbench"
no_error_events
stop_magpie

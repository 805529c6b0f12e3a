# SPDX-License-Identifier: GPL-2.0-only
# vm: --cpus 8 --llcs 2 --nodes 2
# A CPU goes offline and comes back under load: the scheduler starts anew each time, the load finishes.
. /root/lib.sh

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
cpu=/sys/devices/system/cpu/cpu3/online
echo 0 >$cpu
wait_for 60 "restart after offline" restarts 1
say "offline: attached again, $(scx_magpie topology | head -n 1)"
echo 1 >$cpu
wait_for 60 "restart after online" restarts 2
EVENTS=$(error_events)
say "online: attached again, $(scx_magpie topology | head -n 1)"
touch /tmp/stop
wait $load || fail "hackbench: $(tail -n 3 /tmp/out)"
say "the load went on: $(cat /tmp/rounds) rounds of hackbench"
no_error_events
stop_magpie

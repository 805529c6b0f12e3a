# SPDX-License-Identifier: GPL-2.0-only
# vm: --cpus 8 --llcs 2 --nodes 2
# Tasks whose affinity changes all the time while they run, wait and sleep: none is lost; pinned in the end, none runs
# elsewhere.
. /root/lib.sh

start_magpie --timeout-ms 5000
i=0
pids=
while [ $i -lt 12 ]; do
	hog
	pids="$pids $HOG"
	i=$((i + 1))
done
(
	while [ ! -e /tmp/stop ]; do
		hackbench -g 2 -l 30 >/tmp/out 2>&1 || exit 1
	done
) &
load=$!
wait_for 30 "load" pidof hackbench

for round in 1 2 3 4 5 6; do
	for pid in $pids; do
		taskset -p $(printf %x $((1 << ((round + pid) % 8)))) "$pid" >/dev/null || fail "hog $pid is gone"
	done
done
touch /tmp/stop
wait $load || fail "hackbench: $(tail -n 3 /tmp/out)"
say "6 rounds of affinity changes, hackbench beside them"

# All pinned to CPU 5: the others stay away from them, and they all go on.
for pid in $pids; do
	taskset -p 20 "$pid" >/dev/null
	cpu_time_us "$pid" >/tmp/before.$pid
done
went_on() {
	for pid in $pids; do
		[ "$(awk '{ print $39 }' /proc/"$pid"/stat)" = 5 ] || return 1
		[ "$(cpu_time_us "$pid")" -gt "$(cat /tmp/before."$pid")" ] || return 1
	done
}
wait_for 30 "all hogs running on CPU 5" went_on
say "12 hogs on CPU 5: all run"
still_enabled
no_error_events
stop_magpie

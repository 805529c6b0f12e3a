# SPDX-License-Identifier: GPL-2.0-only
# vm: --cpus 8 --llcs 2 --nodes 2
# The loader is killed under load: the kernel's scheduler takes over and the load finishes. Then it starts again.
. /root/lib.sh

start_magpie
hackbench -g 4 -l 60 -p >/tmp/out 2>&1 &
load=$!
hog
wait_for 30 "load" pidof hackbench
kill -KILL $MAGPIE
wait_for 30 "state disabled" is_state disabled
before=$(cpu_time_us $HOG)
goes_on() {
	[ "$(cpu_time_us $HOG)" -gt "$before" ]
}
wait_for 30 "the hog running on" goes_on
wait $load || fail "hackbench: $(tail -n 3 /tmp/out)"
say "killed; the load went on: $(sed -n 's/Time: //p' /tmp/out) s"
start_magpie
stop_magpie

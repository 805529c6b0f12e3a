# SPDX-License-Identifier: GPL-2.0-only
# vm: --arch arm64 --icount 3 --turn 200
# carry: magpie-capacity
# Big tasks and CPUs of two capacities: a hog that was confined to little CPUs and is released comes to a big one within two
# ticks and stays there; four hogs have the four big CPUs beside 30 small tasks; eight use all CPUs. Morten Rasmussen's
# numbers, with the kernel's own scheduler beside us: features/capacity.
. /root/lib.sh

of() { # of NAME: a number of the report, or the first of several
	jq "[.$1] | flatten[0] // empty" /tmp/report
}

has_threads() {
	[ "$(ls /proc/$1/task | wc -l)" -ge $2 ]
}

start_magpie
# The loader reads the machine again after attaching, for half an emulated second. A turn of a busy emulated CPU lasts for
# milliseconds on a loaded host, and an idle CPU that is kicked waits until it ends: so wait until the loader answers.
wait_for 20 "an answer" scx_magpie status
for i in 1 2 3; do
	magpie-capacity --start 0-3 --warm-up 0.2 --run 0.5 >/tmp/report || fail "magpie-capacity"
	say "released: on a big CPU after $(of reached_us) us, there for $(of least_on_strongest) % of its time"
	within "$(of reached_us)" 0 8000 || fail "not on a big CPU within 2 ticks"
	within "$(of least_on_strongest)" 98 100 || fail "it did not stay"
done

cat >/tmp/small.json <<-END
	{ "tasks": { "small": { "instance": 30, "loop": -1, "runtime": 500, "timer": { "ref": "unique", "period": 40000 } } },
	  "global": { "duration": 3600, "calibration": 2350, "default_policy": "SCHED_OTHER", "logdir": "/tmp" } }
END
rt-app /tmp/small.json >/tmp/rt-app.log 2>&1 &
SMALL=$!
wait_for 20 "30 small tasks" has_threads $SMALL 30
magpie-capacity --nr 4 --warm-up 0.3 --run 1 >/tmp/report || fail "magpie-capacity"
kill $SMALL
say "4 hogs beside 30 small tasks: $(of of_ideal) % of what four big CPUs can do"
within "$(of of_ideal)" 97 101 || fail "small tasks displace hogs"

stats_of 1 magpie-capacity --nr 8 --run 100
say "8 hogs: CPUs are busy for $(json_total busy) % of the time"
within "$(json_total busy)" 97 101 || fail "CPUs idle beside 8 hogs"
no_error_events
stop_magpie

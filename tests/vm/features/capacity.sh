# SPDX-License-Identifier: GPL-2.0-only
# vm: --arch arm64 --icount 3 --turn 200 --timeout 1500
# carry: magpie-capacity
# Big tasks and CPUs of two capacities, the kernel's EEVDF beside us (Morten Rasmussen's series). Test 0: a hog that was
# confined to the little CPUs and is released comes to a big one. Then 1, 2, 4 hogs beside 30 small periodic tasks: what
# the hogs get of the big CPUs. Then the author's mixed load: where wakeups go. Emulated CPUs take turns of 200 us, or one
# that is kicked stands still for a tick. Test 0 is done MAGPIE_LOOPS times (20).
. /root/lib.sh

LOOPS=${MAGPIE_LOOPS:-20}

of() { # of NAME: a number of the report, or the first of several
	jq "[.$1] | flatten[0] // empty" /tmp/report
}

# By the clock, not by loops: emulated CPUs do the less of these the more CPUs are busy.
small_tasks() { # small_tasks SECONDS
	cat >/tmp/small.json <<-END
		{ "tasks": { "small": { "instance": 30, "loop": -1, "runtime": 500, "timer": { "ref": "unique", "period": 40000 } } },
		  "global": { "duration": $1, "calibration": 2350, "default_policy": "SCHED_OTHER", "logdir": "/tmp" } }
	END
	rt-app /tmp/small.json >/tmp/rt-app.log 2>&1 &
	SMALL=$!
	wait_for 20 "30 small tasks" has_threads $SMALL 30
}

has_threads() {
	[ "$(ls /proc/$1/task | wc -l)" -ge $2 ]
}

# test_0: prints median and last of the times until it got there, and the least share of its time that it spent there.
test_0() {
	: >/tmp/reached
	: >/tmp/shares
	for _i in $(seq $LOOPS); do
		magpie-capacity --start 0-3 --warm-up 0.2 --run 0.5 >/tmp/report || fail "magpie-capacity"
		of reached_us >>/tmp/reached
		of least_on_strongest >>/tmp/shares
	done
	sort -n /tmp/reached | awk '{ v[NR] = $1 / 1000 } END { printf "%.1f %.1f", v[int((NR + 1) / 2)], v[NR] }'
	echo " $(sort -n /tmp/shares | head -n 1)"
}

# hogs NR: % of the ideal
hogs() {
	magpie-capacity --nr $1 --warm-up 0.3 --run 2 >/tmp/report || fail "magpie-capacity"
	of of_ideal
}

measure() { # measure NAME
	test_0 >/tmp/test_0.$1
	small_tasks 3600
	for nr in 1 2 4; do
		hogs $nr >/tmp/hogs.$1.$nr
	done
	kill $SMALL
	wait $SMALL 2>/dev/null
}

measure EEVDF
start_magpie
measure magpie
say "          test 0: there after, ms        of its time there     hogs beside small tasks: % of the ideal"
say "          median     last                least, %                    1        2        4"
for name in EEVDF magpie; do
	# shellcheck disable=SC2046 # three figures each
	say "$(printf '%-9s %6s %8s %20.2f %20.2f %8.2f %8.2f' $name $(cat /tmp/test_0.$name) \
		$(cat /tmp/hogs.$name.1) $(cat /tmp/hogs.$name.2) $(cat /tmp/hogs.$name.4))"
done

# 8 hogs use all 8 CPUs.
stats_of 1 magpie-capacity --nr 8 --run 100
say "8 hogs: busy $(json_total busy) %"
within "$(json_total busy)" 98 101 || fail "CPUs idle beside 8 hogs"

# wake_cases BIGS MORE: the table, of a load of so many big tasks and twelve small ones (MORE: of these, for rt-app). Sets
# `big` and `little`: where big tasks woke.
wake_cases() {
	cat >/tmp/mixed.json <<-END
		{ "tasks": {
			"small": { $2 "instance": 12, "loop": -1, "runtime": 500, "timer": { "ref": "unique", "period": 32000 } },
			"big": { "instance": $1, "loop": -1, "runtime": 12000, "timer": { "ref": "unique", "period": 20000 } } },
		  "global": { "duration": 3600, "calibration": 2350, "default_policy": "SCHED_OTHER", "logdir": "/tmp" } }
	END
	rt-app /tmp/mixed.json >/tmp/rt-app.log 2>&1 &
	_mixed=$!
	wait_for 20 "the mixed load" has_threads $_mixed $((12 + $1))
	stats_json 1 # until they are known
	scx_magpie --monitor 4 --details >/tmp/monitor 2>/dev/null &
	_monitor=$!
	wait_for 30 "wake cases" grep -q '^misfits' /tmp/monitor
	kill $_monitor $_mixed
	wait $_monitor $_mixed 2>/dev/null
	sed -n '/^case/,$p' /tmp/monitor >/tmp/cases
	sed 's/^/  /' /tmp/cases
	little=$(awk '$1 ~ /^[5-8]$/ && $2 == "b" { n += $6 + $7 + $8 } END { print n + 0 }' /tmp/cases)
	big=$(awk '$1 ~ /^[5-8]$/ && $2 == "b" { n += $10 + $11 + $12 } END { print n + 0 }' /tmp/cases)
	say "big tasks woke on big CPUs $big times, on little ones $little times"
	[ "$big" -gt 100 ] || fail "no load"
}

say "three big tasks, small ones anywhere: at times no big CPU is idle"
wake_cases 3 ""
within "$little" 0 $((big / 20)) || fail "big tasks woke on little CPUs"
say "two big tasks, small ones on little CPUs: always one is"
wake_cases 2 '"cpus": [0, 1, 2, 3],'
# But for moments in which a kernel thread has it.
within "$little" 0 $((big / 100)) || fail "big tasks woke on little CPUs"
no_error_events
stop_magpie

read -r median last share </tmp/test_0.magpie
within "$last" 0 8 || fail "test 0: not on a big CPU within 2 ticks"
within "$share" 99 100 || fail "test 0: on a big CPU for $share % of its time"
for nr in 1 2 4; do
	within "$(cat /tmp/hogs.magpie.$nr)" "$(awk '{ print $1 - 2 }' /tmp/hogs.EEVDF.$nr)" 101 ||
		fail "$nr hogs: $(cat /tmp/hogs.magpie.$nr) % of the ideal, EEVDF's $(cat /tmp/hogs.EEVDF.$nr) %"
done

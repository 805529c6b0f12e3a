# SPDX-License-Identifier: GPL-2.0-only
# vm: --cpus 8 --llcs 2 --nodes 2 --icount 0 --turn 50
# carry: magpie-wakeup
# Twenty workers that a timer wakes in two bursts, with 2 ms to do each, want 117 % of eight CPUs: half of them wait for the
# first turns of the others, not until these sleep. The median wait is to be a quarter of what it is without first turns, at most.
. /root/lib.sh

# p50_of FLAGS...: in us.
p50_of() {
	start_magpie "$@"
	magpie-wakeup -m 2 -t 10 -c 2000 -s 4000 -r 1 --json >/tmp/wakeup.json || fail "magpie-wakeup"
	no_error_events
	stop_magpie
	P50=$(sed -n 's/.*"p50_us":\([0-9]*\).*/\1/p' /tmp/wakeup.json)
	[ -n "$P50" ] || fail "no p50 in: $(cat /tmp/wakeup.json)"
}

p50_of --first-turn-us 0
without=$P50
p50_of
say "median wait: $without us without first turns, $P50 us with them"
[ $((4 * P50)) -le "$without" ] || fail "they wait for as long"

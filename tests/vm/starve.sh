# SPDX-License-Identifier: GPL-2.0-only
# vm: --cpus 2 --llcs 1 --nodes 1
# Twelve tasks of nice 19 beside one of nice -20, which has 8668 times their weight, and a watchdog of 5 s: run out of turn, they do
# not eject the scheduler. By weight alone they would wait for minutes.
. /root/lib.sh

start_magpie --timeout-ms 5000
hog nice -n -20 taskset 2
light=
for _ in 1 2 3 4 5 6 7 8 9 10 11 12; do
	hog nice -n 19 taskset 2
	light="$light $HOG"
done
stats_json 10
say "in 10 s run out of turn: $(json_total starved)"
[ "$(json_total starved)" -gt 0 ] || fail "never run out of turn"
say "nice 19 ran, us:$(for pid in $light; do printf ' %s' "$(cpu_time_us "$pid")"; done)"
still_enabled
no_error_events
stop_magpie

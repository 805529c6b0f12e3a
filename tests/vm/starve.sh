# SPDX-License-Identifier: GPL-2.0-only
# vm: --cpus 2 --llcs 1 --nodes 1
# A task of nice 19 beside one of nice -20, which has 8668 times its weight, and a watchdog of 5 s: run out of turn, it is not
# what ejects the scheduler. By weight alone it would wait for a minute.
. /root/lib.sh

start_magpie --timeout-ms 5000
hog nice -n -20 taskset 2
hog nice -n 19 taskset 2
light=$HOG
stats_json 10
say "in 10 s run out of turn: $(json_total starved); nice 19 ran $(cpu_time_us $light) us"
[ "$(json_total starved)" -gt 0 ] || fail "never run out of turn"
still_enabled
no_error_events
stop_magpie

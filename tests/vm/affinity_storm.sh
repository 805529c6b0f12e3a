# SPDX-License-Identifier: GPL-2.0-only
# matrix: --cpus 2 --llcs 1 --nodes 1 --icount 3
# More than 600 tasks that all the time change their affinity to CPUs by chance, beside forty that do not, on two CPUs and with a
# watchdog of 5 s: each runs before it bites, wherever its last change leaves it to wait. (stress-ng starts 16 for each of
# --affinity. With a thousand on one emulated CPU a round of all takes as long: docs/experiments/order.md.)
. /root/lib.sh

start_magpie --timeout-ms 5000
stress-ng --affinity 40 --affinity-rand --affinity-delay 10 --affinity-sleep 10 --cpu 40 -t 20 >/tmp/stress 2>&1 ||
	fail "stress-ng: $(tail -n 3 /tmp/stress)"
still_enabled
say "20 s of affinity changes: no task waited for 5 s"
no_error_events
stop_magpie

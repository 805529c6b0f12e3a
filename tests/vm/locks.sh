# SPDX-License-Identifier: GPL-2.0-only
# matrix: --cpus 8 --llcs 2 --nodes 2 --icount 0 --turn 50 --timeout 600
# carry: magpie-wakeup
# Workers that sleep by a timer within a request and hold a lock of their CPU while they work are done with as many requests
# as under EEVDF: one that is preempted makes others wait, however soon they were woken.
. /root/lib.sh

# rps_of WORKERS OF EACH OF TWO TEAMS: requests a second in $RPS; what else there is to know in $SEEN.
rps_of() {
	magpie-wakeup -m 2 -t "$1" -c 1300 -s 0 -r 2 --lock --json >/tmp/wakeup.json || fail "magpie-wakeup"
	RPS=$(jq -e .rps /tmp/wakeup.json) || fail "no requests in: $(cat /tmp/wakeup.json)"
	SEEN="$RPS a second, p99 us: $(jq -r '"wakeup \(.p99_us), request \(.request_p99_us)"' /tmp/wakeup.json)"
}

rps_of 8
sixteen=$RPS
say "16 workers under EEVDF: $SEEN"
rps_of 12
twenty_four=$RPS
say "24 workers under EEVDF: $SEEN"
start_magpie
rps_of 8
say "16 workers: $SEEN"
within "$RPS" "$(awk "BEGIN { print 0.95 * $sixteen }")" 1000000 || fail "less than 0.95 of EEVDF's with 16 workers"
rps_of 12
say "24 workers: $SEEN"
within "$RPS" "$(awk "BEGIN { print 0.95 * $twenty_four }")" 1000000 || fail "less than 0.95 of EEVDF's with 24 workers"
no_error_events
stop_magpie

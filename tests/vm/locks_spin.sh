# SPDX-License-Identifier: GPL-2.0-only
# matrix: --cpus 8 --llcs 2 --nodes 2 --icount 0 --turn 50 --timeout 900
# carry: magpie-wakeup
# As locks.sh, with workers that spin for a lock until it is free. A worker that is preempted with a lock held resumes soon,
# else the others burn their slices for it. EEVDF lets them burn: 24 workers do more requests than under EEVDF, and the
# slowest hundredth takes at most half as long.
. /root/lib.sh

# requests_of WORKERS OF EACH OF TWO TEAMS, WHOSE: sets RPS, requests a second, and P99, of requests in us.
requests_of() {
	magpie-wakeup -m 2 -t "$1" -c 1300 -s 0 -r 2 --lock=spin --json >/tmp/wakeup.json || fail "magpie-wakeup"
	RPS=$(jq -e .rps /tmp/wakeup.json) && P99=$(jq -e .request_p99_us /tmp/wakeup.json) ||
		fail "no requests in: $(cat /tmp/wakeup.json)"
	say "$(($1 * 2)) workers under $2: $RPS a second, p99 us: wakeup $(jq .p99_us /tmp/wakeup.json), request $P99"
}

# ratio VALUE BASE: sets RATIO.
ratio() {
	RATIO=$(awk "BEGIN { printf \"%.3f\", $1 / $2 }")
}

requests_of 8 EEVDF
sixteen=$RPS
requests_of 12 EEVDF
twenty_four=$RPS twenty_four_p99=$P99
start_magpie
requests_of 8 scx_magpie
sixteen_now=$RPS
requests_of 12 scx_magpie
no_error_events
stop_magpie

failed=
# expect WHAT VALUE BASE LOW HIGH: the ratio is within these bounds, else it is in $failed.
expect() {
	ratio "$2" "$3"
	say "$1: $RATIO of EEVDF's"
	within "$RATIO" "$4" "$5" || failed="$failed; $1 $RATIO, not $4 to $5"
}
expect "16 workers: requests" "$sixteen_now" "$sixteen" 0.97 100
expect "24 workers: requests" "$RPS" "$twenty_four" 1.05 100
expect "24 workers: request p99" "$P99" "$twenty_four_p99" 0 0.5
[ -z "$failed" ] || fail "${failed#; }"

# SPDX-License-Identifier: GPL-2.0-only
# matrix: --cpus 8 --llcs 2 --nodes 1 --icount 2 --timeout 600
# carry: magpie-numa
# carry: magpie-wakeup
# Wake-affine: the two ends of a pipe, started on different LLCs, come together within 100 ms and stay; without it they do not.
# One that wakes many does not have them all on its own LLC.
. /root/lib.sh

# pair FLAGS...: sets APART_MS and APART, the % of round trips after 100 ms that find the two on different LLCs
pair() {
	start_magpie "$@"
	magpie-numa pairs --start 0,4 --work 100 --run 0.7 >/tmp/pair || fail "the load failed"
	APART_MS=$(sed 's/.*"apart_ms":\([0-9.e-]*\).*/\1/' /tmp/pair)
	APART=$(sed 's/.*"apart_later":\([0-9.e-]*\).*/\1/' /tmp/pair)
	no_error_events
	stop_magpie
	say "$*: on different LLCs last after $APART_MS ms; later for $APART % of the time"
}

pair --wake-affine off
within "$APART" 50 100 || fail "this shows nothing: they come together without wake-affine"
for rules in sync idle,sync; do
	pair --wake-affine $rules
	within "$APART_MS" 0 99 || fail "not together within 100 ms"
	# What else wakes may take a CPU for a moment.
	within "$APART" 0 2 || fail "they do not stay together"
done

start_magpie
magpie-wakeup -m 1 -t 6 -s 1000 -c 4000 -r 600 >/dev/null &
load=$!
stats_json 1
kill $load
say "one waker, 6 workers: busy $(json_llc 0 busy) and $(json_llc 1 busy) % of the two LLCs"
# All on one LLC would be 100 % of that and some 20 % of the other.
awk -v a="$(json_llc 0 busy)" -v b="$(json_llc 1 busy)" 'BEGIN { exit !(a + b > 60 && a < 90 && b < 90 && a / (a + b) > 0.25 && a / (a + b) < 0.75) }' ||
	fail "piled up on one LLC, or too little load or too much to tell"
no_error_events
stop_magpie

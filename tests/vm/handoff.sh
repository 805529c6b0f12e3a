# SPDX-License-Identifier: GPL-2.0-only
# matrix: --cpus 8 --llcs 2 --nodes 2 --icount --timeout 600
# carry: magpie-numa
# Hand-off: two that wake each other over pipes, and sleep at once, share a CPU; and do not with --handoff-us 0. Writers to
# pipes (hackbench), which go on to write, keep theirs.
. /root/lib.sh

# pair FLAGS...: sets SHARE, the % of wakeups that were handed off.
pair() {
	start_magpie "$@"
	stats_of 0.5 magpie-numa pairs --start 0,4 --work 1 --run 600
	share
	say "$*: of $((HANDOFF + SEARCH)) wakeups of a pair $SHARE % handed off"
	no_error_events
	stop_magpie
}

share() {
	HANDOFF=$(json_total handoff)
	SEARCH=$(json_total search)
	SHARE=$((100 * HANDOFF / (HANDOFF + SEARCH)))
}

pair --handoff-us 0
[ "$SHARE" = 0 ] || fail "handed off all the same"
pair --handoff-us 100
[ "$SHARE" -ge 90 ] || fail "most were searched for"

start_magpie --handoff-us 100
stats_of 0.5 sh -c 'while hackbench -g 1 -l 100 -p; do :; done'
share
say "hackbench: of $((HANDOFF + SEARCH)) wakeups $SHARE % handed off"
# Readers that wake a writer and find their pipe empty do sleep.
[ "$SHARE" -le 20 ] || fail "writers to pipes were believed to sleep"
no_error_events
stop_magpie

# SPDX-License-Identifier: GPL-2.0-only
# vm: --cpus 8 --llcs 2 --nodes 2 --icount 2 --timeout 500
# carry: magpie-numa
# Wake-affine and known do not fight (Mel Gorman's back-off): pairs of processes that wake each other, their memory on
# different nodes. With the back-off they change nodes by a fifth at most of what they do without, and get no less done.
. /root/lib.sh

# pairs_with BACKOFF: sets MOVES, TRIPS and RETURNS
pairs_with() {
	start_magpie --numa-backoff "$1"
	magpie-numa pairs --pairs 2 --memory 0,1 --start 0,4 --work 200 --run 3 >/tmp/pairs || fail "the load failed"
	MOVES=$(sed 's/.*"node_moves":\([0-9]*\).*/\1/' /tmp/pairs)
	TRIPS=$(sed 's/.*"round_trips":\([0-9]*\).*/\1/' /tmp/pairs)
	no_error_events
	stop_magpie
	say "--numa-backoff $1: $TRIPS round trips, members woke on another node $MOVES times"
}

pairs_with 0
moves=$MOVES trips=$TRIPS
[ "$moves" -ge 20 ] || fail "this shows nothing: they do not fight without the back-off either"
pairs_with 4
[ $((MOVES * 5)) -le "$moves" ] || fail "cross-node moves fall by less than 80 %"
# Runs differ by up to 8 %, with the back-off or without: 11510 to 12465 round trips.
[ $((TRIPS * 100)) -ge $((trips * 90)) ] || fail "less work done"

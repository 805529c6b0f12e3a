# SPDX-License-Identifier: GPL-2.0-only
# vm: --cpus 8 --llcs 2 --nodes 2
# A thousand tasks that may use CPU 0 only, and all other CPUs idle (Steve Sistare counts what looking costs): no
# thief is led to them, nothing stalls.
. /root/lib.sh

start_magpie
scx_magpie --monitor 1 --json >/tmp/all.json 2>/dev/null &
wait_for 60 "statistics" has_lines /tmp/all.json 1
taskset 1 hackbench -g 25 -f 20 -l 5 -T -p >/tmp/hackbench 2>&1 || fail "hackbench"
still_enabled
lines=$(wc -l </tmp/all.json)
wait_for 60 "the last interval" has_lines /tmp/all.json $((lines + 1))
queued=$(json_sum queued) miss=$(json_sum steal_miss)
say "$(grep Time /tmp/hackbench): put in line $queued times; other CPUs looked for work $(json_sum steal) times, $miss victims in vain"
[ "$queued" -ge 1000 ] || fail "no thousand tasks waited"
[ $((miss * 20)) -le "$queued" ] || fail "thieves are led to tasks that may not move"
no_error_events
stop_magpie

# SPDX-License-Identifier: GPL-2.0-only
# vm: --cpus 8 --llcs 2 --nodes 2
# Statistics add up, in text and JSON, from --stats and --monitor alike.
. /root/lib.sh

start_magpie --stats 1
hackbench -g 2 -l 4000 -p >/dev/null 2>&1 &
load=$!
stats_json 2
kill $load
sum=0
for name in target prev recent scan beyond failed; do
	sum=$((sum + $(json_total $name)))
done
search=$(json_total search)
say "searches $search, by what they found $sum"
[ "$search" -gt 100 ] || fail "no searches counted: $JSON"
# CPUs count on while they are read.
within "$sum" $((search * 99 / 100)) $((search * 101 / 100)) || fail "kinds do not add up to searches"
llcs=$(($(json_llc 0 search) + $(json_llc 1 search)))
[ "$llcs" = "$search" ] || fail "LLCs add up to $llcs, not $search"
wait_for 10 "a table by --stats" grep -q '^total' $LOG
grep -q '^1 ' $LOG || fail "no row of LLC 1"
scx_magpie --help-stats | grep -q 'searches that found no idle CPU' || fail "--help-stats"
no_error_events
stop_magpie

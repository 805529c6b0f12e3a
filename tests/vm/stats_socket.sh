# SPDX-License-Identifier: GPL-2.0-only
# vm: --cpus 2 --llcs 1 --nodes 1
# Nothing that happens to the socket of statistics, or to its clients, ends the scheduler; what waits for a scheduler says so.
. /root/lib.sh
SOCKET=/run/scx/root/stats
MONITOR=/tmp/monitor.log

lines() {
	grep -c "$@" $LOG
}

has_waited() {
	[ "$(grep -c "waiting for scx_magpie to be attached" $MONITOR)" = "$1" ]
}

# --monitor waits, for the first scheduler as for the next.
scx_magpie --monitor 0.1 >$MONITOR 2>&1 &
monitor=$!
wait_for 10 "a word that it waits" has_waited 1
sleep 2
[ "$(wc -l <$MONITOR)" = 1 ] || fail "not one line: $(cat $MONITOR)"
say "$(cat $MONITOR)"
start_magpie
wait_for 10 "a table by --monitor" grep -q '^total' $MONITOR
kill -9 $MAGPIE
wait $MAGPIE 2>/dev/null
wait_for 10 "a word that it waits again" has_waited 2
kill $monitor

# A killed scheduler leaves its socket to the next. --stats does not wait for its own scheduler. Clients that go away, between
# question and answer too, are no warnings.
[ -S $SOCKET ] || fail "no socket to take over"
wait_for 10 "state disabled" is_state disabled
start_magpie --stats 0.1
for delay in 0.2 0.3 0.4; do
	timeout -s KILL $delay scx_magpie --monitor 0.001 >/dev/null 2>&1
done
stats_json 0.2
wait_for 10 "a table by --stats" grep -q '^total' $LOG
still_enabled
stop_magpie
[ "$(lines -E 'WARN|INFO.*wait|retry')" = 0 ] || fail "warnings, or words that it waits"
[ -e $SOCKET ] && fail "the socket is left"

# goes_on_without TEXT: schedules, after one warning, and maybe one of the control socket and of failures, which are in the same
# folder.
goes_on_without() {
	start_magpie --stats 0.1
	wait_for 10 "a warning" grep -q "WARN continuing without statistics: .*$1.*: root must be able to create the socket" $LOG
	hackbench -g 1 -l 20 >/tmp/out 2>&1 || fail "hackbench: $(tail -n 3 /tmp/out)"
	still_enabled
	[ "$(grep WARN $LOG | grep -vcE "without 'set', 'reload' and 'status'|will not show failures")" = 1 ] || fail "not one warning"
	say "$(grep WARN $LOG)"
	stop_magpie
}

rm -r /run/scx
touch /run/scx
scx_magpie --monitor 1 >$MONITOR 2>&1 && fail "--monitor waits where no socket can be"
[ "$(wc -l <$MONITOR)" = 1 ] || fail "not one line: $(cat $MONITOR)"
say "$(cat $MONITOR)"
goes_on_without "Not a directory"
rm /run/scx
mkdir /run/scx
mount -t tmpfs -o ro none /run/scx
goes_on_without "Read-only file system"

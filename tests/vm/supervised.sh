# SPDX-License-Identifier: GPL-2.0-only
# vm: --cpus 4 --llcs 2 --nodes 1 --timeout 600
# Flags for supervisors such as Kubernetes. --wait: the next scheduler is loaded, answers, and is attached as soon as the old one
# ends; it waits for nobody else, and not for ever. --follow-config: a file that changes is reloaded. --give-up: after SysRq-S, or
# the third failure, no start is allowed. A group other than root's may read statistics, and no more.
. /root/lib.sh
FILE=/root/flags.toml

says() {
	wait_for 60 "'$2' in $1: $(tail -n 1 "$1")" grep -q -- "$2" "$1"
}

# Without the flag: how long it takes.
start_magpie
rm -f /tmp/gap
watch_gap &
watcher=$!
stop_magpie
start_magpie
wait $watcher
say "stopped and started: $(cat /tmp/gap) s without a scheduler"
cold=$(cat /tmp/gap)

scx_magpie --wait 1 >/tmp/late 2>&1
[ $? = 5 ] || fail "waits for ever: $(cat /tmp/late)"
grep -q "another sched_ext scheduler is attached (magpie" /tmp/late || fail "not refused: $(cat /tmp/late)"
scx_magpie --wait 60 >/tmp/next 2>&1 &
next=$!
says /tmp/next "waiting until the attached scheduler (magpie"
kill -TERM $next
wait $next || fail "exit status $? of one that waits and is stopped: $(cat /tmp/next)"

# The sockets of the next one are those of the old one, unless each has a folder: here it takes them over.
unshare -m sh -c 'mkdir -p /tmp/run && mount --bind /tmp/run /run/scx && exec scx_magpie --wait 60 --config '$FILE' --follow-config' >/tmp/next 2>&1 &
echo '# nothing' >$FILE
next=$!
says /tmp/next "waiting until the attached scheduler (magpie"
nsenter -t $next -m scx_magpie status | grep -q '^waiting: loaded' || fail "one that waits does not say so"
nsenter -t $next -m scx_magpie set slice-us=5000 2>&1 | grep -q "not attached yet" || fail "one that waits can be changed"
still_enabled
rm -f /tmp/gap
watch_gap &
watcher=$!
stop_magpie_for_next() {
	kill -INT $MAGPIE
	wait $MAGPIE || fail "exit status $?"
}
stop_magpie_for_next
wait $watcher
say "--wait: $(cat /tmp/gap) s without a scheduler"
within "$(cat /tmp/gap)" 0 "$cold" || fail "the gap is not shorter"
MAGPIE=$next
LOG=/tmp/next
says $LOG "attached: 4 CPUs"

echo 'slice-us = 5000' >$FILE.new
mv $FILE.new $FILE
says $LOG "slice-us: 3000 -> 5000"
echo 'slice-us = 5' >$FILE
says $LOG "WARN the configuration is not reloaded, and nothing has changed: $FILE:1: invalid value '5'"
[ "$(grep -c WARN $LOG)" = 1 ] || fail "warns again and again"
stop_magpie

# ends_with STATUS TEXT: the scheduler that was started ends so.
ends_with() {
	wait $MAGPIE
	_status=$?
	[ $_status = "$1" ] || fail "exit status $_status, not $1"
	tail -n 1 $LOG | grep -q "$2" || fail "no '$2'"
}
LOG=/tmp/magpie.log
rm -rf /run/scx/*
start_magpie --give-up
echo S >/proc/sysrq-trigger
ends_with 12 "sysrq-S"
scx_magpie --give-up >$LOG 2>&1 &
MAGPIE=$!
ends_with 13 "it stays detached after three failures within ten minutes, or SysRq-S, the last .*sysrq-S"
start_magpie
stop_magpie
rm -rf /run/scx/*
for _ in 1 2 3; do
	start_magpie --give-up
	kill -KILL $MAGPIE
	wait $MAGPIE 2>/dev/null
	wait_for 30 "state disabled" is_state disabled
done
for _ in 1 2; do
	scx_magpie --give-up >$LOG 2>&1 &
	MAGPIE=$!
	ends_with 13 "it stays detached after three failures within ten minutes, or SysRq-S, the last .*killed, or crashed"
done
is_state disabled || fail "attached after three failures"
say "$(tail -n 1 $LOG)"

# The group is the process's.
rm -rf /run/scx
scx_magpie() {
	exec /usr/bin/setpriv --regid 9811 --clear-groups scx_magpie "$@"
}
start_magpie
unset -f scx_magpie
nobody() {
	/usr/bin/setpriv --reuid 9811 --regid "$1" --clear-groups scx_magpie status >/tmp/out 2>&1
}
nobody 9811 && fail "the group may use the control socket"
nobody 9812 && fail "everybody may use the control socket"
/usr/bin/setpriv --reuid 9811 --regid 9811 --clear-groups timeout 20 scx_magpie --monitor 1 --json 2>/tmp/out | head -n 1 | grep -q '^{' ||
	fail "the group reads no statistics: $(cat /tmp/out)"
/usr/bin/setpriv --reuid 9811 --regid 9812 --clear-groups timeout 20 scx_magpie --monitor 1 >/tmp/out 2>&1
[ $? = 3 ] || fail "everybody reads statistics: $(cat /tmp/out)"
stop_magpie

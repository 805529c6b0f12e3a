# SPDX-License-Identifier: GPL-2.0-only
# vm: --icount --cpus 2 --llcs 1 --nodes 1
# The configuration file, what is set while the scheduler runs, and reloads: each takes effect, or is refused and changes nothing.
. /root/lib.sh
FILE=/etc/scx_magpie.toml

# refused STATUS TEXT COMMAND...: says so in one line.
refused() {
	local status=$1 text=$2
	shift 2
	"$@" >/tmp/out 2>&1
	[ $? = "$status" ] || fail "exit status is not $status: $*: $(cat /tmp/out)"
	grep -q "$text" /tmp/out && [ "$(wc -l </tmp/out)" = 1 ] || fail "not '$text' in one line: $*: $(cat /tmp/out)"
	say "$(cat /tmp/out)"
}

# in_force KEY VALUE ORIGIN
in_force() {
	scx_magpie config >/tmp/config 2>&1 || fail "config: $(cat /tmp/config)"
	grep -q "^$1 = $2  *# $3\$" /tmp/config || fail "not $1 = $2 by $3: $(grep "^$1 " /tmp/config)"
}

switches() {
	awk '/^nonvoluntary_ctxt_switches/ { print $2 }' /proc/$HOG/status
}

# Microseconds for which one of the hogs runs at a time, on average of a second, in SLICE.
measure_slice() {
	local time=$(cpu_time_us $HOG) switches=$(switches)
	sleep 1
	SLICE=$((($(cpu_time_us $HOG) - time) / ($(switches) - switches + 1)))
	say "slices of $SLICE us: $1"
}

refused 11 "not running: sched_ext is disabled; no failures since boot" scx_magpie status
refused 11 "not running" scx_magpie set slice-us=5000
echo 'slice_u = 3000' >$FILE
refused 2 "$FILE:1: unknown key 'slice_u': the nearest one is 'slice-us'" scx_magpie
printf '# ours\nslice_us = "2ms"\n' >$FILE
# The kernel says enabled a moment before the socket is there.
serves() {
	scx_magpie status
}

start_magpie --handoff-us 30us
wait_for 10 "the socket" serves
in_force slice-us '"2ms"' "$FILE:2"
in_force handoff-us '"30us"' "command line"
scx_magpie status >/tmp/out || fail "status says that it does not run"
say "$(cat /tmp/out)"
[ "$(wc -l </tmp/out)" = 1 ] && grep -q "^running since .* flags not default: 2, starts: 1," /tmp/out || fail "a strange status"
[ "$(stat -c %a /run/scx/root/control)" = 600 ] || fail "others than root may connect"

hog taskset 2
hog taskset 2
measure_slice "2000 by the file"
within $SLICE 1000 4500 || fail "not as the file says, rounded up to a tick"
scx_magpie set slice_us=5000 || fail "not set"
measure_slice "5000"
within $SLICE 4600 9000 || fail "set has no effect"
scx_magpie set slice_us=40ms >/tmp/out || fail "not set"
measure_slice "40000"
within $SLICE 20000 60000 || fail "set has no effect"
end_hogs
grep -q "slice-us: 5000 -> 40ms" $LOG || fail "the change is not logged"

refused 2 "invalid value '99' for '--slice-us <US>': 99 is not in 100..=100000" scx_magpie set handoff-us=1 slice_us=99
refused 2 "'timeout-ms' cannot change while the scheduler runs" scx_magpie set timeout-ms=5s
printf 'slice-us = 1000\nsteal = 3\n' >$FILE
refused 2 "$FILE:2: invalid value '3' for '--steal <STEAL>'" scx_magpie reload
kill -HUP $MAGPIE
wait_for 10 "a warning" grep -q "WARN the configuration is not reloaded, and nothing has changed: $FILE:2" $LOG
in_force slice-us '"40ms"' set
in_force handoff-us '"30us"' "command line"

# All that may change, under a load; then by a signal.
hackbench -g 2 -l 500 >/tmp/hackbench 2>&1 &
load=$!
scx_magpie set profile=latency steal=off wake-affine=off handoff-us=0 no-scan-limit=true small-llc-boost=off latency-hist=true \
	no-wakeup-preempt=true util-interval=100ms log-level=debug >/dev/null || fail "not set"
scx_magpie set --reset steal=llc >/dev/null || fail "not set"
in_force log-level '"info"' default
scx_magpie set --reset >/dev/null || fail "not reset"
rm $FILE
kill -HUP $MAGPIE
wait_for 10 "the default slice" sh -c 'scx_magpie config | grep "^slice-us = 3000  *# default"'
wait $load || fail "hackbench: $(tail -n 3 /tmp/hackbench)"
still_enabled
no_error_events

# What takes a new start: never without a scheduler; what was set is forgotten.
scx_magpie set slice-us=5000 >/dev/null
printf 'timeout-ms = 5000\nslice-us = 4000\n' >$FILE
enabled=$(cat $SCX/enable_seq)
scx_magpie reload >/tmp/out || fail "not reloaded"
grep -q "the scheduler is loaded again" /tmp/out || fail "no word of a new start: $(cat /tmp/out)"
wait_for 60 "another scheduler" sh -c "[ \$(cat $SCX/enable_seq) = $((enabled + 1)) ]"
wait_for 10 "a second start" sh -c 'scx_magpie status | grep "starts: 2,"'
in_force timeout-ms 5000 "$FILE:1"
in_force slice-us 4000 "$FILE:2"
still_enabled

# A restart has the file's value.
scx_magpie set slice-us=5000 >/dev/null
stop_magpie
start_magpie
wait_for 10 "the socket" serves
in_force slice-us 4000 "$FILE:2"
kill -9 $MAGPIE
wait $MAGPIE 2>/dev/null
wait_for 10 "state disabled" is_state disabled
refused 11 "not running" scx_magpie status
start_magpie
wait_for 10 "the socket of a killed scheduler taken over" serves
stop_magpie
[ ! -e /run/scx/root/control ] || fail "the socket is left"

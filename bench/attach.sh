# SPDX-License-Identifier: GPL-2.0-only
# Attaching and detaching any scheduler; sourced by rounds.sh and callbacks.sh, as root on a kernel with sched_ext.
#
#	attach COMMAND LINE --> state enabled: 0, and $pid     not in half a minute, or it ended: 1, and it is gone
#	detach              --> state disabled, by Ctrl-C, else killed

STATE=/sys/kernel/sched_ext/state
# What is written meanwhile. Root runs programs on it, so nobody else may choose its name, or write there.
BENCH=$(mktemp -d) || exit 1
export BENCH
SCHEDULER_LOG=$BENCH/scheduler.log
trap 'rm -rf "$BENCH"' EXIT

# wait_state STATE: half a minute for the state, and less if it was to be enabled and the scheduler has ended.
wait_state() {
	_left=300
	until [ "$(cat $STATE)" = "$1" ]; do
		_left=$((_left - 1))
		if [ $_left = 0 ] || { [ "$1" = enabled ] && ! kill -0 "$pid" 2>/dev/null; }; then
			return 1
		fi
		sleep 0.1
	done
}

attach() {
	$1 >$SCHEDULER_LOG 2>&1 &
	pid=$!
	wait_state enabled && return
	kill -KILL $pid 2>/dev/null
	wait $pid 2>/dev/null
	return 1
}

detach() {
	kill -INT $pid 2>/dev/null
	wait_state disabled || kill -KILL $pid 2>/dev/null
	wait $pid 2>/dev/null
}

# The last thing that the scheduler said.
last_words() {
	tail -n 1 $SCHEDULER_LOG
}

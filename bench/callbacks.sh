# SPDX-License-Identifier: GPL-2.0-only
# What each scheduler's callbacks cost (bench/run --callbacks does it, in a VM where an instruction is a nanosecond).
#
#	callbacks.sh SCHEDULER...    a SCHEDULER is a command line
#
# Prints a line of JSON for each scheduler and load.
set -u

STATE=/sys/kernel/sched_ext/state
ulimit -n 4096

# wait_state STATE: half a minute for it.
wait_state() {
	_left=300
	until [ "$(cat $STATE)" = "$1" ]; do
		_left=$((_left - 1))
		[ $_left != 0 ] || return 1
		sleep 0.1
	done
}

# measure LOAD COMMAND...
measure() {
	_load=$1
	shift
	if _figures=$(magpie-callbacks -- "$@" 2>/tmp/bench.err); then
		echo "{\"scheduler\":\"$name\",\"cpus\":$(nproc),\"load\":\"$_load\",\"figures\":$_figures}"
	else
		echo "callbacks.sh: $name, $_load: $(tail -n 1 /tmp/bench.err)" >&2
	fi
}

for scheduler in "$@"; do
	name=${scheduler##*/}
	$scheduler >/tmp/scheduler.log 2>&1 &
	pid=$!
	if wait_state enabled; then
		measure pipe perf bench sched pipe -l 5000
		# Where one sends itself an interrupt it may lose its emulated CPU, and what others do then would count as its own.
		[ "$(nproc)" != 1 ] || measure hackbench hackbench -g 1 -l 50 -p
	else
		echo "callbacks.sh: $name did not attach: $(tail -n 1 /tmp/scheduler.log)" >&2
	fi
	kill -INT $pid 2>/dev/null
	wait_state disabled || kill -KILL $pid 2>/dev/null
	wait $pid 2>/dev/null
done

# Who was interrupted says so by its status.
exit 0

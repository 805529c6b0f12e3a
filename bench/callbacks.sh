# SPDX-License-Identifier: GPL-2.0-only
# What each scheduler's callbacks cost (bench/run --callbacks does it, in a VM where an instruction is a nanosecond).
#
#	callbacks.sh SCHEDULER...    a SCHEDULER is a command line
#
# Prints a line of JSON for each scheduler and load.
set -u

. "$(dirname "$0")/attach.sh"
ulimit -n 4096

# measure LOAD COMMAND...
measure() {
	_load=$1
	shift
	if _figures=$(magpie-callbacks -- "$@" 2>$BENCH/err); then
		jq -nc --arg scheduler "$name" --arg load "$_load" "{\$scheduler, cpus: $(nproc), \$load, figures: $_figures}"
	else
		echo "callbacks.sh: $name, $_load: $(tail -n 1 $BENCH/err)" >&2
	fi
}

for scheduler in "$@"; do
	name=${scheduler##*/}
	if ! attach "$scheduler"; then
		echo "callbacks.sh: $name did not attach: $(last_words)" >&2
		continue
	fi
	measure pipe perf bench sched pipe -l 5000
	# Where one sends itself an interrupt it may lose its emulated CPU, and what others do then would count as its own.
	[ "$(nproc)" != 1 ] || measure hackbench hackbench -g 1 -l 50 -p
	detach
done

# Who was interrupted says so by its status.
exit 0

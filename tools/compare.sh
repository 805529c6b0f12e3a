# SPDX-License-Identifier: GPL-2.0-only
# What `make demo` compares, in a VM of two CPUs: each load for a second under EEVDF, then under scx_magpie, twice in turns. Prints
# a row for each with the range of the two rounds, and whether scx_magpie is ahead, level or behind.
. /root/lib.sh
ROUNDS=2

# note ROW VALUE: of the scheduler that has the machine.
note() {
	[ -n "$2" ] && [ "$2" != null ] || fail "$1: no figure under $WHOSE"
	echo "$2" >>"/tmp/$WHOSE.$1"
}

# json COMMAND...: what it prints to /tmp/json.
json() {
	timeout -s KILL 120 "$@" -r 1 --json >/tmp/json || fail "$* ended with status $?"
}

loads() {
	json magpie-wakeup -m 2 -t 2 -c 500 -s 1000
	note wakeup "$(jq .p99_us /tmp/json)"
	json magpie-wakeup -m 1 -t 6 -c 1300 -s 0 --lock=spin
	note locks "$(jq .rps /tmp/json)"
	note hackbench "$(hackbench -g 2 -l 100 -p | sed -n 's/^Time: //p')"
	json taskset 1 magpie-longrun --forks 1
	note part "$(jq .part /tmp/json)"
	note wait "$(jq .longest_wait_ms /tmp/json)"
	json taskset 1 magpie-longrun --frames 7000,16600 --forks 1
	note frames "$(jq '100 * .frames_on_time / .frames_due' /tmp/json)"
}

# row NAME more|less UNIT TEXT: more or less is better.
row() {
	awk -v better="$2" -v unit="$3" -v text="$4" '
		NR == FNR { add(0, $1); next }
		{ add(1, $1) }
		function add(which, value) {
			if (!(which in low) || value + 0 < low[which]) low[which] = value + 0
			if (!(which in high) || value + 0 > high[which]) high[which] = value + 0
		}
		function range(which, a, b) {
			a = number(low[which])
			b = number(high[which])
			return (a == b ? a : a " to " b) (unit == "" ? "" : " " unit)
		}
		function number(value) { return sprintf(value < 1000 ? "%.3g" : "%.0f", value) }
		END {
			# By the middles of the ranges; less than 5 % apart, or ranges that overlap, are no difference.
			eevdf = low[0] + high[0]
			ours = low[1] + high[1]
			times = better == "more" ? ours / eevdf : eevdf / ours
			level = (low[0] <= high[1] && low[1] <= high[0]) || (times < 1.05 && times > 0.95)
			verdict = level ? "level" : times > 1 ? sprintf("%.1f times better", times) : sprintf("behind: %.2f of EEVDF", times)
			printf "  %-60s %18s %18s   %s\n", text, range(0), range(1), verdict
		}' "/tmp/eevdf.$1" "/tmp/magpie.$1"
}

for round in $(seq $ROUNDS); do
	WHOSE=eevdf
	loads
	start_magpie
	WHOSE=magpie
	loads
	no_error_events
	stop_magpie
	say "round $round of $ROUNDS: done"
done
echo
printf '  %-60s %18s %18s\n' "two CPUs, $(uname -sr | cut -d . -f 1,2)" EEVDF scx_magpie
row wakeup less us "a woken thread waits for a CPU at 94 % load, p99"
row locks more "" "six threads that spin for locks: requests a second"
row hackbench less s "80 processes that send messages through pipes: time"
row part more % "a program that computes, alongside one that starts others"
row wait less ms "... its longest wait"
row frames more % "... if it draws 60 frames a second: those on time"

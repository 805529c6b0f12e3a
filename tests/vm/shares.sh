# SPDX-License-Identifier: GPL-2.0-only
# vm: --cpus 4 --llcs 2 --nodes 2 --icount 0 --turn 50 --timeout 500
# Five hogs on four CPUs: each gets four fifths of one within 5 %, whichever CPU it started on; with nice levels mixed each gets
# its part by weight within 12 %. Counted from 10 s on, for a minute at most: a virtual CPU may stand still for tenths of seconds.
. /root/lib.sh

# Writes each hog's part of what all used since the start to /tmp/shares; false: one is further off than TOLERANCE.
by_weight() {
	for hog in $HOGS; do
		echo "${hog#*:} $(($(cpu_time_us "${hog%:*}") - $(cat /tmp/before."${hog%:*}")))"
	done >/tmp/used
	awk -v tolerance="$1" '
		{ weight[NR] = $1; used[NR] = $2; weights += $1; sum += $2 }
		END {
			for (i = 1; i <= NR; i++) {
				off = used[i] / sum / (weight[i] / weights) - 1
				printf "  weight %4d: %.3f of the time, %+.1f %%\n", weight[i], used[i] / sum, 100 * off
				if (off > tolerance || -off > tolerance) bad = 1
			}
			exit bad
		}' /tmp/used >/tmp/shares
}

# shares TOLERANCE: of $HOGS, a list of PID:WEIGHT
shares() {
	for hog in $HOGS; do
		cpu_time_us "${hog%:*}" >/tmp/before."${hog%:*}"
	done
	passed=0
	until [ $passed -ge 10 ] && by_weight "$1"; do
		[ $passed -lt 60 ] || break
		sleep 5
		passed=$((passed + 5))
	done
	say "after $passed s:"
	cat /tmp/shares
	by_weight "$1" || fail "not by weight"
	end_hogs
}

# more WEIGHT [COMMAND PREFIX...]: one hog more
more() {
	_weight=$1
	shift
	hog "$@"
	HOGS="$HOGS $HOG:$_weight"
}

start_magpie
HOGS=
for _ in 1 2 3 4 5; do
	more 100
done
shares 0.05

HOGS=
for _ in 1 2 3 4; do
	more 100
done
for _ in 1 2 3; do
	more 51 nice -n 3
done
more 155 nice -n -2
shares 0.12
no_error_events
stop_magpie

# SPDX-License-Identifier: GPL-2.0-only
# vm: --icount --cpus 4 --llcs 2 --nodes 2
# Five hogs on four CPUs: each gets four fifths of one over 6 s, within 5 %, whichever CPU it started on; with nice levels
# mixed each gets its part by weight, within 8 %.
. /root/lib.sh

# shares TOLERANCE PID:WEIGHT...: each one's part of what they used in 6 s, against its part of the weights.
shares() {
	tolerance=$1
	shift
	for hog in "$@"; do
		echo "$(cpu_time_us "${hog%:*}")" >/tmp/before."${hog%:*}"
	done
	sleep 6
	for hog in "$@"; do
		echo "${hog#*:} $(($(cpu_time_us "${hog%:*}") - $(cat /tmp/before."${hog%:*}")))"
	done >/tmp/used
	awk -v tolerance="$tolerance" '
		{ weight[NR] = $1; used[NR] = $2; weights += $1; sum += $2 }
		END {
			for (i = 1; i <= NR; i++) {
				off = used[i] / sum / (weight[i] / weights) - 1
				printf "  weight %4d: %.3f of the time, %+.1f %%\n", weight[i], used[i] / sum, 100 * off
				if (off > tolerance || -off > tolerance) bad = 1
			}
			exit bad
		}' /tmp/used >/tmp/shares
	bad=$?
	cat /tmp/shares
	[ $bad -eq 0 ] || fail "not by weight"
}

start_magpie
hogs=
for _ in 1 2 3 4 5; do
	hog
	hogs="$hogs $HOG:100"
done
say "equal:"
shares 0.05 $hogs
end_hogs

hogs=
for nice in 0 0 0 0 3 3 3 -2; do
	hog nice -n $nice
	case $nice in
	0) hogs="$hogs $HOG:100" ;;
	3) hogs="$hogs $HOG:51" ;;
	-2) hogs="$hogs $HOG:155" ;;
	esac
done
say "mixed:"
shares 0.08 $hogs
end_hogs
no_error_events
stop_magpie

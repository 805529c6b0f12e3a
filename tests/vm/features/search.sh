# SPDX-License-Identifier: GPL-2.0-only
# vm: --icount --cpus 8 --llcs 1 --nodes 1 --timeout 1800
# The search with and without its bound as load rises (Chen Yu's SIS_UTIL). The metrics are those of pairs that pass
# messages, as many as the given share of the CPUs; the times those of hackbench with as many senders and receivers, for it
# wakes more, medians of MAGPIE_RUNS runs, interleaved. One instruction a nanosecond: times are work. Fails unless nr_scan
# follows utilization and at 200 % at least 80 % fewer CPUs are looked at.
. /root/lib.sh

RUNS=${MAGPIE_RUNS:-3}

# Is nr_scan what the kernel's formula makes of the utilization of the same line, small LLC boosted? The latter is rounded.
follows() {
	awk -v util="$1" -v nr_scan="$2" '
		function of(util,  x, y) {
			x = int(util * 1024 / 100)
			y = 1024 - int(x * x * 117 * 117 / (10000 * 1024))
			y = int(8 * (y < 0 ? 0 : y) / 1024) * 4
			return y > 8 ? 8 : y
		}
		BEGIN { exit !(nr_scan <= of(util - 0.1) && nr_scan >= of(util + 0.1)) }'
}

# row BOUND PAIRS: the metrics while the load runs.
row() {
	stats_of 0.6 hackbench -g $2 -f 1 -l 10000000 -p -T
	util=$(json_total util) nr_scan=$(json_total nr_scan) search=$(json_total search) scanned=$(json_total scanned)
	follows "$util" "$nr_scan" || fail "nr_scan $nr_scan at $util %"
	printf '  %-5s %5d %% %9.1f %8d %9d %9d %9.1f %8.1f %10.1f %13.1f\n' $1 $(($2 * 100 / 8)) "$util" "$nr_scan" "$search" \
		"$scanned" "$(json_total se_eff)" "$(json_total dom_eff)" "$(json_total fast_rate)" "$(json_total success_rate)"
	eval "per_search_$1=$((1000 * scanned / (search + 1)))"
}

say "bound  load  sum_util%  nr_scan    search   scanned   se_eff% dom_eff% fast_rate% success_rate%"
run=0
while [ $run -lt "$RUNS" ]; do
	for bound in off on; do
		if [ $bound = on ]; then
			start_magpie
		else
			start_magpie --no-scan-limit
		fi
		for pairs in 2 4 6 8 12 16; do
			[ $run -gt 0 ] || row $bound $pairs
			hackbench -g 1 -f $pairs -l $((60000 / pairs / pairs)) -p -T >/tmp/hackbench 2>&1 || fail "hackbench"
			sed -n 's/Time: //p' /tmp/hackbench >>/tmp/times.$bound.$pairs
		done
		no_error_events
		stop_magpie
	done
	run=$((run + 1))
done

say "hackbench, s:  load     off      on  on/off"
for pairs in 2 4 6 8 12 16; do
	off=$(median /tmp/times.off.$pairs) on=$(median /tmp/times.on.$pairs)
	printf '  %17d %% %7.3f %7.3f %7s\n' $((pairs * 100 / 8)) "$off" "$on" "$(awk "BEGIN { printf \"%.3f\", $on / $off }")"
done
# shellcheck disable=SC2154 # set by eval
say "CPUs gone over in a search at 200 %, thousandths: off $per_search_off, on $per_search_on"
[ $((per_search_on * 5)) -le "$per_search_off" ] || fail "not 80 % fewer"

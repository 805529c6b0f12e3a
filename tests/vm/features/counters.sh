# SPDX-License-Identifier: GPL-2.0-only
# vm: --cpus 40 --llcs 2 --nodes 2 --icount 0 --turn 50 --timeout 3600
# carry: magpie-wakeup
# The counters by which docs/how-it-works.md follows a wakeup, of a second each: 20 workers of half a millisecond on 40 CPUs,
# woken by two threads, and 80, woken by four. Fails unless each search is counted once.
. /root/lib.sh

# adds_up TOTAL NAME...: so do these, but for events between the looks at two counters.
adds_up() {
	_sum=0 _total=$(json_total "$1")
	for _name in "$@"; do
		_sum=$((_sum + $(json_total "$_name")))
	done
	within $((_sum - _total)) $((_total - 20)) $((_total + 20)) || fail "$*: $((_sum - _total)), not $_total"
}

column() {
	# The first interval sees the load come.
	stats_of 1 magpie-wakeup -c 500 -s 600 -j 50 -r 600 "$@"
	for name in $NAMES; do
		json_total "$name" >>"/tmp/$name"
	done
	for llc in 0 1; do
		json_llc $llc util >>/tmp/util.$llc
		json_llc $llc nr_scan >>/tmp/nr_scan.$llc
	done
	adds_up search target prev recent scan beyond failed
	adds_up domain_search scan beyond failed
}

NAMES="util search target prev recent scan beyond failed domain_search scanned handoff affine local queued preempt kick ipi own
	steal steal_miss stolen stolen_wait_us balance keep empty se_eff fast_rate success_rate busy find"
start_magpie
column -m 2 -t 10
column -m 4 -t 20
for name in util.0 nr_scan.0 util.1 nr_scan.1 $NAMES; do
	printf '  %-16s %9s %9s\n' "$name" $(sed 's/\(\.[0-9]\{2\}\).*/\1/' "/tmp/$name")
done
no_error_events
stop_magpie

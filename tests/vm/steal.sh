# SPDX-License-Identifier: GPL-2.0-only
# vm: --cpus 8 --llcs 2 --nodes 2
# Eight hogs pinned to CPU 0 and released: stolen within the LLC and beyond, they run on all CPUs.
. /root/lib.sh

start_magpie
pids=
for _ in 1 2 3 4 5 6 7 8; do
	hog taskset 1
	pids="$pids $HOG"
done
scx_magpie --monitor 1 --json >/tmp/all.json 2>/dev/null &
wait_for 30 "statistics" has_lines /tmp/all.json 2
for pid in $pids; do
	taskset -p ff "$pid" >/dev/null
	cpu_time_us "$pid" >/tmp/before."$pid"
done
# One CPU gives eight hogs an eighth each. Looking costs CPU time too, hence not more than this.
all_run() {
	for pid in $pids; do
		[ $(($(cpu_time_us "$pid") - $(cat /tmp/before."$pid"))) -ge 3000000 ] || return 1
	done
}
now
start=$NOW
wait_for 60 "3 s of CPU time for each" all_run
now
took=$((NOW - start))
say "3 s of CPU time for each of eight hogs within $took s"
[ $took -le 12 ] || fail "not spread: on one CPU it takes 24 s"
say "stolen within the LLC $(json_sum steal_llc), from another node $(json_sum steal_far)"
[ "$(json_sum steal_llc)" -gt 0 ] || fail "nothing stolen within the LLC"
[ "$(json_sum steal_far)" -gt 0 ] || fail "nothing stolen from the other node"
no_error_events
stop_magpie

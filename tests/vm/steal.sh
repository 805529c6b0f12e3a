# SPDX-License-Identifier: GPL-2.0-only
# vm: --cpus 8 --llcs 2 --nodes 2
# Eight hogs pinned to CPU 0 and released: stolen, within the LLC and beyond, until each CPU has one.
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
done
spread() {
	for pid in $pids; do
		awk '{ print $39 }' /proc/"$pid"/stat
	done | sort -u >/tmp/cpus
	[ "$(wc -l </tmp/cpus)" = 8 ]
}
wait_for 20 "eight hogs on eight CPUs" spread
wait_for 20 "a look at it" has_lines /tmp/all.json 5
total() {
	grep -o "\"total\":{[^}]*}" /tmp/all.json | grep -o "\"$1\":[0-9]*" | cut -d: -f2 | awk '{ n += $1 } END { print n }'
}
say "stolen within the LLC $(total steal_llc), from another node $(total steal_far)"
[ "$(total steal_llc)" -gt 0 ] || fail "nothing stolen within the LLC"
[ "$(total steal_far)" -gt 0 ] || fail "nothing stolen from the other node"
no_error_events
stop_magpie

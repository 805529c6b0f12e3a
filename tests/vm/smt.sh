# SPDX-License-Identifier: GPL-2.0-only
# vm: --cpus 8 --llcs 1 --nodes 1 --smt 2
# SMT: four hogs on four cores of two CPUs get a core each.
. /root/lib.sh

one_core_each() {
	for pid in $pids; do
		cat /sys/devices/system/cpu/cpu"$(awk '{ print $39 }' /proc/"$pid"/stat)"/topology/core_id
	done | sort -u >/tmp/cores
	[ "$(wc -l </tmp/cores)" = 4 ]
}

start_magpie
pids=
for _ in 1 2 3 4; do
	hog
	pids="$pids $HOG"
done
wait_for 20 "four hogs on four cores" one_core_each
say "cores with a hog: $(tr '\n' ' ' </tmp/cores)"
no_error_events
stop_magpie

# SPDX-License-Identifier: GPL-2.0-only
# vm: --cpus 16 --llcs 1 --nodes 1 --smt 2
# SMT: five hogs started one after the other on eight idle cores of two CPUs get a core each. By chance they would in 41 %
# of rounds; what else wakes meanwhile may spoil one, so 10 of 12 are asked for.
. /root/lib.sh

ran() {
	[ "$(cpu_time_us "$1")" -gt 0 ]
}

round() {
	for _ in 1 2 3 4 5; do
		hog
		wait_for 20 "the hog to run" ran "$HOG"
		cat /sys/devices/system/cpu/cpu"$(awk '{ print $39 }' /proc/"$HOG"/stat)"/topology/core_id
	done | sort -u | wc -l
}

start_magpie
spread=0
for _ in 1 2 3 4 5 6 7 8 9 10 11 12; do
	[ "$(round)" != 5 ] || spread=$((spread + 1))
	end_hogs
done
say "a core each in $spread of 12 rounds"
[ $spread -ge 10 ] || fail "not spread over the cores"
no_error_events
stop_magpie

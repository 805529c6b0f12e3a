# SPDX-License-Identifier: GPL-2.0-only
# vm: --cpus 16 --llcs 1 --nodes 1 --smt 2 --icount 2 --turn 50
# SMT: five hogs started one after the other on eight idle cores of two CPUs get a core each. By chance they would in 41 %
# of rounds; what else wakes may spoil some on a busy host: 7 of 12 are asked for. Then four of the cores have one CPU busy
# with a pinned hog: three more hogs take three of the other four, of which this shell needs one.
. /root/lib.sh

ran() {
	[ "$(cpu_time_us "$1")" -gt 0 ]
}

# round N: how many cores N hogs got.
round() {
	for _ in $(seq "$1"); do
		hog
		wait_for 20 "the hog to run" ran "$HOG"
		cat /sys/devices/system/cpu/cpu"$(awk '{ print $39 }' /proc/"$HOG"/stat)"/topology/core_id
	done | sort -u | grep -vxE "$TAKEN" | wc -l
}

start_magpie
TAKEN=none
spread=0
for _ in 1 2 3 4 5 6 7 8 9 10 11 12; do
	[ "$(round 5)" != 5 ] || spread=$((spread + 1))
	end_hogs
done
say "a core each in $spread of 12 rounds"
[ $spread -ge 7 ] || fail "not spread over the cores"

for cpu in 1 3 5 7; do
	hog taskset $(printf %x $((1 << cpu)))
	wait_for 20 "the hog's affinity" grep -q "Cpus_allowed_list:.$cpu$" /proc/$HOG/status
done
mv /tmp/hogs /tmp/pinned
TAKEN="[0-3]"
spread=0
for _ in 1 2 3 4 5 6; do
	[ "$(round 3)" != 3 ] || spread=$((spread + 1))
	end_hogs
done
say "an idle core each, beside half busy ones, in $spread of 6 rounds"
[ $spread -ge 3 ] || fail "not on idle cores"
no_error_events
stop_magpie

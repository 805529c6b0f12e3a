# SPDX-License-Identifier: GPL-2.0-only
# vm: --arch arm64 --clusters 2
# On arm64, little CPUs beside big ones: the capacities are seen, CPUs of two clusters are not taken for one core, and
# the scheduler attaches, stays while it has work, and detaches. It counts where big and little tasks wake, unless told to
# take all CPUs for equal.
. /root/lib.sh

command -v scx_magpie >/dev/null || fail "no scx_magpie for arm64: run make build-arm64"
scx_magpie topology >/tmp/topology || fail "scx_magpie topology: exit status $?"
grep -q "^capacity 430: CPUs 0-3; capacity 1024: CPUs 4-7 (cpu_capacity)$" /tmp/topology || fail "capacities: $(cat /tmp/topology)"
[ "$(cat /sys/devices/system/cpu/cpu[04]/topology/core_id | uniq)" = 0 ] || fail "core ids do not start again"
grep -q "^8 CPUs, 1 LLCs, 1 nodes, 1 CPUs a core$" /tmp/topology || fail "cores or LLCs: $(cat /tmp/topology)"
say "$(sed -n 2p /tmp/topology)"

start_magpie
for mode in -p -T; do
	hackbench -g 2 -l 100 $mode >/tmp/out 2>&1 || fail "hackbench $mode: $(tail -n 3 /tmp/out)"
	say "hackbench -g 2 $mode: $(sed -n 's/Time: //p' /tmp/out) s"
	still_enabled
done
no_error_events
stats_json 0.5
json '.wake_cases."1"' >/dev/null || fail "no wake cases"
stop_magpie

start_magpie --no-capacity
stats_json 0.5
json '.wake_cases == {}' >/dev/null || fail "wake cases, though all CPUs are taken for equal"
no_error_events
stop_magpie

# SPDX-License-Identifier: GPL-2.0-only
# vm: --cpus 1 --llcs 1 --nodes 1
# vm: --cpus 4 --llcs 4 --nodes 4
# vm: --cpus 4 --llcs 4 --nodes 1
# vm: --cpus 8 --llcs 2 --nodes 1 --smt 2
# matrix: --kernel 6.18 --cpus 64 --llcs 4 --nodes 2 --timeout 600
# Machines of other shapes: attaches, uses all CPUs, carries load.
. /root/lib.sh

nr_cpus=$(grep -c ^processor /proc/cpuinfo)
scx_magpie topology >/tmp/topology || fail "topology"
say "$(head -n 1 /tmp/topology)"
[ "$(grep -o 'CPU [0-9 ]*$' /tmp/topology | wc -w)" -gt "$nr_cpus" ] || fail "CPUs missing: $(cat /tmp/topology)"

start=$(cut -d' ' -f1 /proc/uptime)
start_magpie
took=$(awk "BEGIN { print $(cut -d' ' -f1 /proc/uptime) - $start }")
say "start to enabled: $took s"

hackbench -g 1 -l 40 -p >/tmp/out 2>&1 || fail "hackbench: $(tail -n 3 /tmp/out)"
say "hackbench: $(sed -n 's/Time: //p' /tmp/out) s"

# As many hogs as CPUs: each finds a CPU of its own. (16 at most: with 64 busy CPUs the emulator gives each a turn of 4 ms in
# a quarter of a second, and reading a figure takes half a minute.)
nr_hogs=$((nr_cpus < 16 ? nr_cpus : 16))
for _ in $(seq $nr_hogs); do
	hog
done
busy() {
	stats_json 1
	within "$(json_total util)" $((97 * nr_hogs / nr_cpus)) 101
}
wait_for 60 "a CPU for each hog" busy
still_enabled
no_error_events
stop_magpie

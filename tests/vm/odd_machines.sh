# SPDX-License-Identifier: GPL-2.0-only
# vm: --cpus 4 --llcs 1 --nodes 1 --smt 2 --no-l3 --append test.machine=4,1,1,2,package
# vm: --cpus 4 --llcs 2 --nodes 2 --no-l3 --append test.machine=4,2,2,1,package
# vm: --cpus 4 --llcs 2 --nodes 2 --empty-node --append test.machine=4,2,2,1,L3,3
# vm: --cpus 4 --llcs 2 --nodes 2 --memory-on 1 --append test.machine=4,2,2,1,L3
# vm: --cpus 4 --llcs 1 --nodes 2 --append test.machine=4,2,2,1,L3
# vm: --cpus 8 --llcs 2 --nodes 1 --spare 2 --append test.machine=6,2,1,1,L3
# vm: --cpus 8 --llcs 2 --nodes 2 --spare 4 --append test.machine=4,1,1,1,L3,2
# vm: --cpus 4 --llcs 1 --nodes 1 --smt 2 --append 'nosmt test.machine=2,1,1,1,L3'
# Machines that are not regular: the topology is as the shape says, and the scheduler carries load. test.machine gives CPUs,
# LLCs, nodes with CPUs, CPUs a core, what LLCs are, and nodes in all where some have no CPUs.
. /root/lib.sh

IFS=, read -r cpus llcs nodes smt kind all_nodes <<EOF
$(sed 's/.*test\.machine=\([^ ]*\).*/\1/' /proc/cmdline)
EOF
scx_magpie topology >/tmp/topology || fail "topology"
expected="$cpus CPUs, $llcs LLCs, $nodes nodes, $smt CPUs a core"
say "$(head -n 1 /tmp/topology), LLCs of kind $(sed -n 's/.*LLC .* (\(.*\)):.*/\1/p' /tmp/topology | sort -u)"
grep -qx "$expected" /tmp/topology || fail "not $expected: $(cat /tmp/topology)"
[ "$(grep -c "LLC .* ($kind): [0-9]* CPUs" /tmp/topology)" = "$llcs" ] || fail "not of kind $kind: $(cat /tmp/topology)"
if [ -n "$all_nodes" ]; then
	[ "$(ls -d /sys/devices/system/node/node* | wc -l)" = "$all_nodes" ] || fail "the machine does not have $all_nodes nodes"
fi

start_magpie
hackbench -g 2 -l 50 >/tmp/out 2>&1 || fail "hackbench: $(tail -n 3 /tmp/out)"
say "hackbench: $(sed -n 's/Time: //p' /tmp/out) s"
still_enabled
no_error_events
stop_magpie

# SPDX-License-Identifier: GPL-2.0-only
# vm: --cpus 8 --llcs 2 --nodes 2 --icount 0 --turn 50 --timeout 500
# matrix: --cpus 16 --llcs 4 --nodes 4 --icount 1 --timeout 500
# carry: magpie-numa
# A task goes to its memory: processes whose memory was bound to node 1, started on node 0 and released, run on node 1 for
# 95 % of the time and more after 2 s, with the machine half busy. Without the sampler they do not: that home is found from
# memory, not from where they have run. One CPU at a time executes, those that look at memory, too: hence
# --numa-sample-share. In turns of 50 us the loader samples in time, however busy the host is; with four nodes it
# does not by that clock, which 16 CPUs share: that shape needs a quiet host.
. /root/lib.sh
NODES=$(ls -d /sys/devices/system/node/node[0-9]* | wc -l)
NODE0=$(cat /sys/devices/system/node/node0/cpulist)

# on_node N FILE: how much of its time a load says that it ran there
on_node() {
	jq ".nodes.\"$1\" // 0" "$2"
}

# homing WARM_UP RUN: of the hogs, half as many as CPUs, two have their memory on node 1. Writes /tmp/bound.N
homing() {
	_pids=
	for _i in 1 2; do
		magpie-numa hog --memory 1 --start "$NODE0" --warm-up "$1" --run "$2" >/tmp/bound.$_i &
		_pids="$_pids $!"
	done
	for _i in $(seq $(($(nproc) / 2 - 2))); do
		magpie-numa hog --start "$NODE0" --warm-up "$1" --run "$2" >/tmp/free.$_i &
		_pids="$_pids $!"
	done
	wait $_pids || fail "a load failed"
}

start_magpie --numa-sample-share 40
homing 2 1
for i in 1 2; do
	share=$(on_node 1 /tmp/bound.$i)
	say "$NODES nodes: process $i with memory on node 1 ran there for $share % of the time after 2 s"
	within "$share" 95 100 || fail "not at home"
done
no_error_events
stop_magpie
[ "$NODES" = 2 ] || exit 0

start_magpie --numa-sample-share 0
homing 0.5 0.5
for i in 1 2; do
	share=$(on_node 1 /tmp/bound.$i)
	say "without the sampler process $i ran on node 1 for $share % of the time"
	within "$share" 0 50 || fail "this shows nothing: it comes to node 1 anyway"
done
no_error_events
stop_magpie

# SPDX-License-Identifier: GPL-2.0-only
# vm: --cpus 8 --llcs 2 --nodes 2 --icount 0 --turn 50 --timeout 600
# carry: magpie-wakeup
# On one CPU a thread that has 0.1 ms of work each 10 ms waits for less than a third of a slice, alongside two threads that
# always have 10 ms of work: p90, from the time at which a timer should wake the thread that wakes it. The same in a cgroup
# three deep, next to the cgroup of the two, of equal weight.
. /root/lib.sh
CG=/sys/fs/cgroup

# p90_in GROUP OPTION...: on CPU 0, in us.
p90_in() {
	echo 0 >"$1/cgroup.procs"
	shift
	taskset 1 magpie-wakeup "$@" -r 2 --cpu-time --from-due --json | jq .p90_us
}

# expect_prompt WHERE LIGHT HEAVY: in these cgroups.
expect_prompt() {
	p90_in "$3" -m 2 -t 1 -c 10000 -s 0 >/tmp/heavy &
	_heavy=$!
	p90_in "$2" -m 1 -t 1 -c 100 -s 9900 >/tmp/light &
	wait $! $_heavy
	read -r light </tmp/light && read -r heavy </tmp/heavy || fail "no p90"
	say "$1: light $light us, heavy $heavy us"
	within "$light" 0.001 1000 || fail "the light one waits for too long"
}

mkdir -p $CG/a/b/light $CG/a/b/heavy || fail "mkdir"
for group in $CG $CG/a $CG/a/b; do
	echo +cpu >$group/cgroup.subtree_control || fail "no weights below $group"
done
start_magpie
expect_prompt "plain" $CG $CG
expect_prompt "three deep" $CG/a/b/light $CG/a/b/heavy
no_error_events
stop_magpie

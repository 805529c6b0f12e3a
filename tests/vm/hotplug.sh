# SPDX-License-Identifier: GPL-2.0-only
# vm: --cpus 8 --llcs 2 --nodes 2
# CPUs go offline and come back under load, one by one and all but one: no task is lost, those pinned to a CPU that goes go on
# elsewhere, those that wait for their cpu.max, too, and the scheduler is not started anew.
. /root/lib.sh
CPUS=/sys/devices/system/cpu
CGROUP=/sys/fs/cgroup/limited

# As in lib.sh, but a task may be sent to a CPU that is just going: then the kernel picks another, and counts a fallback. And it
# gives tasks a slice of its own where the CPU is not online.
error_events() {
	grep -hE 'NOT_OWNED|KEEP_LAST|DENIED|ENQ_SKIP' $SCX/root/events | tr '\n' ' '
}

# online CPU 0 or 1
online() {
	echo "$2" >$CPUS/cpu"$1"/online || fail "CPU $1: cannot write $2"
}

# ran_since PID MICROSECONDS
ran_since() {
	[ "$(cpu_time_us "$1")" -gt "$2" ]
}

start_magpie
echo +cpu >/sys/fs/cgroup/cgroup.subtree_control
mkdir $CGROUP
echo "20000 100000" >$CGROUP/cpu.max
(
	rounds=0
	while [ ! -e /tmp/stop ]; do
		hackbench -g 2 -l 20 -p >/tmp/out 2>&1 || exit 1
		rounds=$((rounds + 1))
	done
	echo $rounds >/tmp/rounds
) &
load=$!
for _ in 1 2 3 4; do
	hog
	echo "$HOG" >$CGROUP/cgroup.procs
done
hog taskset 0x60 # CPUs 5 and 6
pinned=$HOG
wait_for 30 "load" pidof hackbench

# More of them in make test-matrix.
ROUNDS=$((${MAGPIE_RUNS:-1} * 3))
for round in $(seq $ROUNDS); do
	cpu=$((round % 7 + 1))
	online $cpu 0
	online $cpu 1
	still_enabled
done
say "$ROUNDS times a CPU off and on"
for cpu in 1 2 3 4 5 6 7; do online $cpu 0; done
# The kernel widens what a task may use that may use no CPU any more.
for hog in $(cat /tmp/hogs); do
	at=$(cpu_time_us "$hog")
	wait_for 60 "hog $hog to run on CPU 0" ran_since "$hog" "$at"
done
for cpu in 7 6 5 4 3 2 1; do online $cpu 1; done
at=$(cpu_time_us $pinned)
wait_for 60 "the pinned hog to run" ran_since $pinned "$at"
stats_json 1
total=$(json_total nr_cpus)
[ "$total" = 8 ] || fail "$total CPUs, not 8"
end_hogs
touch /tmp/stop
wait $load || fail "hackbench: $(tail -n 3 /tmp/out)"
say "the load went on: $(cat /tmp/rounds) rounds of hackbench"
no_error_events
stop_magpie
! grep "the scheduler again" $LOG || fail "started anew"

# SPDX-License-Identifier: GPL-2.0-only
# vm: --cpus 4 --llcs 1 --nodes 1 --icount 3
# With autogroups a program of one session next to sixteen of another one has a CPU of four for itself, as under EEVDF; so it is
# with nice values of sessions (/proc/PID/autogroup), and not in a cgroup with the cpu controller.
. /root/lib.sh
CG=/sys/fs/cgroup

# share: of a CPU that the lone program has had for two seconds, in $SHARE
share() {
	_from=$(cut -d ' ' -f 1 /proc/uptime) _used=$(cpu_time_us $lone)
	sleep 2
	_used=$(($(cpu_time_us $lone) - _used))
	SHARE=$(awk "{ print $_used / 1000000 / (\$1 - $_from) }" /proc/uptime)
}

# has LOW HIGH: is it that?
has() {
	share
	within "$SHARE" "$1" "$2"
}

start_magpie
[ "$(cat /proc/sys/kernel/sched_autogroup_enabled)" = 1 ] || fail "this kernel has no autogroups"
setsid sh -c 'for _ in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16; do sh -c "while :; do :; done" & done; wait' &
build=$!
setsid sh -c 'while :; do :; done' &
lone=$!
wait_for 60 "the lone program to have a CPU" has 0.9 1.01
share
say "a program next to 16 of another session has $SHARE of a CPU"
within "$SHARE" 0.9 1.01 || fail "not a CPU"

# On the CPUs together both sessions have 3 : 1 then: nice -5 is 3121, and the lone one cannot use more than a CPU of four.
taskset -a -p 1 $lone >/dev/null
for pid in $(cat /proc/$build/task/$build/children); do
	taskset -p 1 "$pid" >/dev/null
done
echo -5 >/proc/$build/autogroup || fail "the nice value of a session"
wait_for 60 "a quarter of the CPU for the lone program" has 0.22 0.28
say "beside 16 of a session of nice -5 on one CPU: $SHARE"

echo +cpu >$CG/cgroup.subtree_control || fail "cgroup.subtree_control"
mkdir $CG/a $CG/b || fail "mkdir"
for pid in $(cat /proc/$build/task/$build/children); do
	echo "$pid" >$CG/a/cgroup.procs
done
echo $lone >$CG/b/cgroup.procs
wait_for 60 "half of the CPU for the lone program's cgroup" has 0.46 0.54
say "in cgroups of the same weight: $SHARE"
kill -9 -$build -$lone
no_error_events
stop_magpie

# SPDX-License-Identifier: GPL-2.0-only
# matrix: --cpus 4 --llcs 2 --nodes 1 --icount 0 --timeout 900
# check: record_check.py
# A recording shows what is known: two tasks pinned to CPU 1 share it, a group is throttled to a fifth of a CPU, hogs pinned to
# CPU 0 are stolen when they may leave it, and sleepers are placed on idle CPUs. record_check.py reads the trace. An
# instruction is a nanosecond: what a recording costs a load of context switches is measured in instructions, too. Without a
# recording none of its programs is in the kernel.
. /root/lib.sh
CG=/sys/fs/cgroup
TRACE=/tmp/trace.pftrace

# named NAME COMMAND PREFIX...: a hog whose task has that name.
named() {
	_name=$1
	shift
	"$@" sh -c "printf $_name >/proc/\$\$/comm; while :; do :; done" >/dev/null 2>&1 &
	HOG=$!
	echo $HOG >>/tmp/hogs
}

has_programs() {
	bpftool prog list | grep -q 'name record_'
}

is_throttled() {
	[ "$(cat $CG/limited/cpu.stat | awk '/^usage_usec/ { print $2 }')" -ge 20000 ]
}

# start_recording FILE OPTIONS...: until it records. Sets RECORDER to its pid; what it says is in /tmp/said.
start_recording() {
	: >/tmp/began
	scx_magpie record --perfetto "$@" >/tmp/said 2>/tmp/began &
	RECORDER=$!
	wait_for 60 "the recording" grep -q "recording for" /tmp/began
}

end_recording() {
	wait $RECORDER || fail "record: $(cat /tmp/began /tmp/said)"
	say "$(cat /tmp/said)"
}

# $TIME of hackbench, in seconds, the better of two.
hackbench_time() {
	TIME=$(for _ in 1 2; do hackbench -g 1 -l 100 -p | sed -n 's/^Time: //p'; done | sort -n | head -n 1)
}

# As another user: one line, and exit status 3.
status=0
chmod 755 /root
su nobody -s /bin/sh -c "scx_magpie record --perfetto /tmp/nobody" >/tmp/refused 2>&1 || status=$?
[ $status = 3 ] || fail "exit status $status without root: $(cat /tmp/refused)"
[ "$(cat /tmp/refused)" = "scx_magpie: this command needs root: run it with sudo" ] || fail "without root: $(cat /tmp/refused)"
[ ! -e /tmp/nobody ] || fail "a file without root"
scx_magpie record --perfetto /nowhere/x --seconds 0.1 >/tmp/refused 2>&1 && fail "recorded into /nowhere"
refused="scx_magpie: cannot write /nowhere/x: No such file or directory (os error 2)"
[ "$(tail -n 1 /tmp/refused)" = "$refused" ] || fail "/nowhere: $(cat /tmp/refused)"

# Under the kernel's own scheduler.
start_recording /tmp/other.pftrace --seconds 0.2
end_recording

echo +cpu >$CG/cgroup.subtree_control
start_magpie
has_programs && fail "programs of a recording before it"
hackbench_time
without=$TIME

mkdir $CG/limited
echo "20000 100000" >$CG/limited/cpu.max
named pinned-a taskset 2
named pinned-b taskset 2
named limited taskset 4
echo $HOG >$CG/limited/cgroup.procs || fail "move to limited"
wait_for 60 "the group to be throttled" is_throttled
hogs=
for _ in 1 2 3; do
	named freed taskset 1
	hogs="$hogs $HOG"
done
(
	printf sleeper >/proc/self/comm
	while :; do usleep 5000; done
) &
echo $! >>/tmp/hogs
start_recording $TRACE --seconds 1.5
has_programs || fail "no programs of the recording"
for pid in $hogs; do
	taskset -p 9 "$pid" >/dev/null || fail "taskset $pid"
done
end_recording
has_programs && fail "programs of a recording after it"
grep -q ", 0 lost, " /tmp/said || fail "events were lost"
end_hogs

# Ctrl-C ends it early, and the file is complete.
start_recording /tmp/early.pftrace --seconds 600
kill -INT $RECORDER
end_recording

# What it costs, and that it ends at its size.
start_recording /tmp/cost.pftrace --seconds 600
hackbench_time
kill -INT $RECORDER
end_recording
ratio=$(awk "BEGIN { printf \"%.2f\", $TIME / $without }")
say "hackbench takes $ratio times as long while it is recorded ($TIME s, $without s)"
within "$ratio" 0.8 1.3 || fail "a recording costs too much"
hackbench -g 4 -l 100000 -p >/dev/null 2>&1 &
load=$!
start_recording /tmp/full.pftrace --seconds 600 --max-size 1
end_recording
kill $load
wait $load 2>/dev/null
grep -q -- "--max-size reached" /tmp/said || fail "no end at --max-size"
size=$(wc -c </tmp/full.pftrace)
within "$size" 1000000 1100000 || fail "--max-size 1: $size bytes"
still_enabled
no_error_events
stop_magpie
gzip $TRACE /tmp/early.pftrace /tmp/other.pftrace
for file in $TRACE /tmp/early.pftrace /tmp/other.pftrace; do
	send $file.gz
done

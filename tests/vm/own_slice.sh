# SPDX-License-Identifier: GPL-2.0-only
# vm: --cpus 1 --llcs 1 --nodes 1 --icount 0 --turn 50
# matrix: --kernel 7.3 --cpus 1 --llcs 1 --nodes 1 --icount 0 --turn 50
# carry: magpie-slice
# carry: magpie-wakeup
# Programs that ask for a slice of their own (sched_attr.sched_runtime): two hogs, one of 0.5 ms, share the CPU equally, and
# neither runs for much longer than that at a time; a hog of 20 ms lets another run for as long as ever and runs longer itself.
# A wakee with 0.5 ms does not wait for the slices of hogs. Fork and exec inherit it, 0 takes it back.
. /root/lib.sh

# runs PID: how often it began to run.
runs() {
	awk '{ print $3 }' /proc/"$1"/schedstat
}

# pair: of the hogs A and B over 3 s: PART, A's part of the time in %, and A_US, B_US, the mean length of a run.
pair() {
	a=$(cpu_time_us $A) b=$(cpu_time_us $B) ra=$(runs $A) rb=$(runs $B)
	sleep 3
	a=$(($(cpu_time_us $A) - a)) b=$(($(cpu_time_us $B) - b)) ra=$(($(runs $A) - ra)) rb=$(($(runs $B) - rb))
	PART=$((100 * a / (a + b))) A_US=$((a / ra)) B_US=$((b / rb))
	say "$1: $PART % of the time, runs of $A_US us; the other $B_US us"
	end_hogs
}

# two US: hogs, the first with this slice.
two() {
	hog magpie-slice "$1"
	A=$HOG
	hog
	B=$HOG
}

start_magpie
two 0
pair "as all"
within $PART 48 52 || fail "not half"
within $A_US 2500 4500 || fail "not the default slice"

two 500
pair "0.5 ms"
within $PART 48 52 || fail "not half"
within $A_US 400 800 || fail "runs are not 0.5 ms"
within $B_US 400 1000 || fail "the other one runs for longer than the shortest slice that waits"

two 20000
pair "20 ms"
within $PART 48 52 || fail "not half"
within $A_US 2500 21000 || fail "runs are not longer"

# exec, and fork, inherit; --reset-on-fork does not, and 0 takes it back.
for how in "magpie-slice 500 sh -c" "magpie-slice 500 --reset-on-fork sh -c" "magpie-slice 500 magpie-slice 0 sh -c"; do
	$how 'while :; do :; done & echo $! >/tmp/pid; wait' &
	PARENT=$!
	wait_for 10 "a child" test -s /tmp/pid
	A=$(cat /tmp/pid)
	echo $A >>/tmp/hogs
	rm /tmp/pid
	hog
	B=$HOG
	pair "the child of ${how% sh*}"
	case $how in
	"magpie-slice 500 sh -c") within $A_US 400 800 || fail "the child did not inherit it" ;;
	*) within $A_US 2500 4500 || fail "the child has it" ;;
	esac
	wait $PARENT
done

# The wakee runs for 2 ms, and its wakeups are sync (a pipe), so that it has no credit.
hog
hog
p99() {
	"$@" magpie-wakeup -m 1 -t 1 -c 2000 -s 5000 -r 4 --pipe --json >/tmp/json || fail "magpie-wakeup"
	jq '.p99_us | floor' /tmp/json
}
LONG=$(p99)
SHORT=$(p99 magpie-slice 300)
say "a wakee by a pipe alongside two hogs: p99 $LONG us; with 0.3 ms $SHORT us"
[ $((2 * SHORT)) -lt "$LONG" ] || fail "the wakee with a short slice does not preempt"
end_hogs

stats_of 1 magpie-slice 500 sh -c 'while :; do :; done'
say "runs with a slice of their own in a second: $(json_total own_slice)"
within "$(json_total own_slice)" 1 1000000 || fail "not counted"
no_error_events
stop_magpie

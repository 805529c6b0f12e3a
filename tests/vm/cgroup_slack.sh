# SPDX-License-Identifier: GPL-2.0-only
# vm: --cpus 8 --llcs 1 --nodes 1 --icount 0 --turn 50 --timeout 900
# carry: magpie-wakeup
# A group that needs less than its quota is not throttled, although its threads work at once on all CPUs: what a CPU has taken of
# the quota and does not use is little. And a limit that is raised or removed lets throttled tasks run within a tick.
. /root/lib.sh
CG=/sys/fs/cgroup
RUNTIME=${MAGPIE_RUNS:-2}

# requests WHOSE QUOTA_US WORK_US: eight threads that work at once each 100 ms: p90 of a request in ms, to /tmp/p90.
requests() {
	echo "$2 100000" >$CG/limited/cpu.max || fail "cpu.max"
	sh -c "echo \$\$ >$CG/limited/cgroup.procs; exec magpie-wakeup -m 1 -t 8 -c $3 -s 100000 -r $RUNTIME --parts 1 --cpu-time --json" \
		>/tmp/json || fail "magpie-wakeup"
	jq '.request_p90_us / 1000' /tmp/json >/tmp/p90
	say "$1: $((8 * $3 / 1000)) of $(($2 / 1000)) ms: p90 of a request $(cat /tmp/p90) ms"
}

# all WHOSE
all() {
	for sizes in "60000 6000" "20000 1500" "50000 4000"; do
		requests $1 $sizes
		cp /tmp/p90 "/tmp/$1-${sizes% *}"
	done
}

# starts MS TO GROUP: the hog, which is throttled, runs again less than MS after the limit of the group is set to TO.
starts() {
	wait_for 20 "the hog to be throttled" is_throttled
	before=$(cpu_time_us $HOG)
	since=$(awk '{ print $1 * 1000 }' /proc/uptime)
	echo "$2" >$CG/$3/cpu.max || fail "cpu.max"
	# Not wait_for(), whose interval is longer than what is measured.
	for _ in $(seq 2000); do
		runs_on && break
		sleep 0.005
	done
	MS=$(awk "{ print \$1 * 1000 - $since }" /proc/uptime)
	say "cpu.max of $3 set to $2: it has run for 1 ms after at most $MS ms"
	within "$MS" 0 "$1" || fail "not within a few ticks"
}

is_throttled() {
	[ "$(cpu_time_us $HOG)" = "$(sleep 0.05; cpu_time_us $HOG)" ]
}

runs_on() {
	[ $(($(cpu_time_us $HOG) - before)) -ge 1000 ]
}

echo +cpu >$CG/cgroup.subtree_control
mkdir $CG/limited || fail "mkdir"
all eevdf
start_magpie
all magpie
for quota in 60000 20000 50000; do
	within "$(cat /tmp/magpie-$quota)" 0 "$(awk '{ print 1.2 * $1 + 2 }' /tmp/eevdf-$quota)" || fail "throttled with less than its quota of $quota us"
done

echo +cpu >$CG/limited/cgroup.subtree_control
mkdir $CG/limited/nested || fail "mkdir"
for of in limited limited/nested; do
	for to in "max 1000000" "900000 1000000"; do
		echo max >$CG/limited/cpu.max
		echo "20000 1000000" >$CG/$of/cpu.max
		hog
		echo $HOG >$CG/limited/nested/cgroup.procs
		starts 100 "$to" $of
		end_hogs
	done
done
no_error_events
stop_magpie

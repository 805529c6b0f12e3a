# SPDX-License-Identifier: GPL-2.0-only
# vm: --cpus 8 --llcs 1 --nodes 1 --icount 0 --turn 50 --timeout 900
# carry: magpie-wakeup
# A group that needs less than its quota is not throttled, although its threads work at once on all CPUs. And a limit that is raised or
# removed lets throttled tasks run within a tick.
. /root/lib.sh
CG=/sys/fs/cgroup
RUNTIME=${MAGPIE_RUNS:-4}
# Threads, quota and work of each, us, by 100 ms. The last three use 95 % of the quota.
LOADS="8 60000 6000:8 20000 1500:8 50000 4000:8 60000 7100:16 60000 3550:8 16000 1900"

# requests WHOSE THREADS QUOTA_US WORK_US: threads that work at once each 100 ms: p90 and p99 of a request in ms, to /tmp/WHOSE-QUOTA-WORK.
requests() {
	echo "$3 100000" >$CG/limited/cpu.max || fail "cpu.max"
	sh -c "echo \$\$ >$CG/limited/cgroup.procs; exec magpie-wakeup -m 1 -t $2 -c $4 --every -s 100000 -r $RUNTIME --parts 1 --cpu-time --json" \
		>/tmp/json || fail "magpie-wakeup"
	jq -r '"\(.request_p90_us / 1000) \(.request_p99_us / 1000)"' /tmp/json >/tmp/$1-$3-$4
	say "$1: $2 threads, $(($2 * $4 / 1000)) of $(($3 / 1000)) ms: p90, p99 of a request $(cat /tmp/$1-$3-$4) ms"
}

# each COMMAND...: with each load's parameters
each() {
	IFS=:
	for load in $LOADS; do
		unset IFS
		"$@" $load
	done
	unset IFS
}

# no_later THREADS QUOTA_US WORK_US: p90 and p99 as under EEVDF, which throttles some of these loads.
no_later() {
	read -r p90 p99 </tmp/magpie-$2-$3
	read -r eevdf90 eevdf99 </tmp/eevdf-$2-$3
	within "$p90" 0 "$(awk "BEGIN { print 1.2 * $eevdf90 + 2 }")" || fail "throttled with less than its quota of $2 us: p90"
	within "$p99" 0 "$(awk "BEGIN { print 1.2 * $eevdf99 + 2 }")" || fail "throttled with less than its quota of $2 us: p99"
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
each requests eevdf
start_magpie
each requests magpie
each no_later

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

# SPDX-License-Identifier: GPL-2.0-only
# vm: --cpus 8 --llcs 1 --nodes 1 --smt 2
# vm: --cpus 8 --llcs 2 --nodes 1
# Tasks that run for long and seldom sleep do not share what stands idle elsewhere: four hogs on two cores of four (SMT), or on
# the four CPUs of one LLC next to an idle one, are spread evenly soon after they may go anywhere. They stay so most of the time:
# this shell runs, too.
. /root/lib.sh
CPU=/sys/devices/system/cpu

# place CPU: its core under SMT, else its LLC.
place() {
	if [ "$(cat $CPU/smt/active)" = 1 ]; then
		cat $CPU/cpu"$1"/topology/core_cpus_list
	else
		cat $CPU/cpu"$1"/cache/index3/shared_cpu_list
	fi
}

# most: the most hogs that are in one place.
most() {
	for pid in $(cat /tmp/hogs); do
		place "$(awk '{ print $39 }' /proc/"$pid"/stat)"
	done | sort | uniq -c | sort -rn | awk '{ print $1; exit }'
}

spread() {
	[ "$(most)" -le "$even" ]
}

start_magpie
even=2
[ "$(cat $CPU/smt/active)" != 1 ] || even=1
for _ in 1 2 3 4; do
	hog
	taskset -p f "$HOG" >/dev/null || fail "taskset"
done
sleep 2
before=$(most)
[ "$before" = $((even * 2)) ] || fail "before: $before hogs in one place, not $((even * 2))"
now
since=$NOW
for pid in $(cat /tmp/hogs); do
	taskset -p ff "$pid" >/dev/null || fail "taskset"
done
wait_for 10 "four hogs to be spread, $even in each place at most" spread
now
say "$before hogs in one place; $even some $((NOW - since)) s after they may go anywhere"
missed=0
for _ in 1 2 3 4 5 6; do
	sleep 1
	spread || missed=$((missed + 1))
done
[ $missed -le 2 ] || fail "they do not stay: $missed looks of 6 find more in one place"
end_hogs
no_error_events
stop_magpie

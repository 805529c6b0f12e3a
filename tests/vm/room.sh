# SPDX-License-Identifier: GPL-2.0-only
# vm: --cpus 8 --llcs 1 --nodes 1 --smt 2
# vm: --cpus 8 --llcs 2 --nodes 1
# Tasks that run for long and seldom sleep do not share what stands idle elsewhere: four hogs on two cores of four (SMT), or on
# the four CPUs of one LLC next to an idle one, are spread evenly soon after they may go anywhere. They stay so most of the time:
# this shell and cat run, too.
. /root/lib.sh
CPU=/sys/devices/system/cpu
LOOKS=$(seq 20)

# place CPU: its core under SMT, else its LLC.
place() {
	if [ "$(cat $CPU/smt/active)" = 1 ]; then
		cat $CPU/cpu"$1"/topology/core_cpus_list
	else
		cat $CPU/cpu"$1"/cache/index3/shared_cpu_list
	fi
}

# look: where the hogs are now. One process, as each may displace a hog.
look() {
	cat $STATS
}

# most: the most hogs that are in one place by the look on standard input.
most() {
	while read -r line; do
		place "$(echo "${line##*) }" | cut -d ' ' -f 37)"
	done | sort | uniq -c | sort -rn | awk '{ print $1; exit }'
}

spread() {
	look >/tmp/look
	[ "$(most </tmp/look)" -le "$even" ]
}

start_magpie
even=2
STATS=
[ "$(cat $CPU/smt/active)" != 1 ] || even=1
for _ in 1 2 3 4; do
	hog
	taskset -p f "$HOG" >/dev/null || fail "taskset"
	STATS="$STATS /proc/$HOG/stat"
done
sleep 2
before=$(look | most)
[ "$before" = $((even * 2)) ] || fail "before: $before hogs in one place, not $((even * 2))"
now
since=$NOW
for pid in $(cat /tmp/hogs); do
	taskset -p ff "$pid" >/dev/null || fail "taskset"
done
wait_for 10 "four hogs to be spread, $even in each place at most" spread
now
say "$before hogs in one place; $even some $((NOW - since)) s after they may go anywhere"
for n in $LOOKS; do
	sleep 0.3
	look >/tmp/look."$n"
done
missed=0
for n in $LOOKS; do
	[ "$(most </tmp/look."$n")" -le "$even" ] || missed=$((missed + 1))
done
say "$missed looks of 20 find more in one place"
[ $missed -le 4 ] || fail "they do not stay"
end_hogs
no_error_events
stop_magpie

# SPDX-License-Identifier: GPL-2.0-only
# What `make demo` runs in the guest: attach, load, ten seconds of live statistics, detach, summary.
set -u

STATE=/sys/kernel/sched_ext/state
echo "== $(uname -sr), $(scx_magpie topology | head -n 1)"
echo "== scx_magpie --stats 1"
scx_magpie --stats 1 2>/tmp/log &
magpie=$!
left=200
until [ "$(cat $STATE)" = enabled ]; do
	left=$((left - 1))
	if [ $left = 0 ] || ! kill -0 $magpie 2>/dev/null; then
		cat /tmp/log
		echo "== the scheduler did not attach"
		exit 1
	fi
	sleep 0.1
done

echo "== load: hackbench (80 tasks over pipes) and 4 CPU hogs"
hackbench -g 2 -l 100000 -p >/dev/null 2>&1 &
for _ in 1 2 3 4; do
	sh -c 'while :; do :; done' &
done
: >/tmp/summary
scx_magpie --monitor 10 --json >>/tmp/summary 2>/dev/null &
left=400
until [ "$(wc -l </tmp/summary)" -ge 2 ]; do
	left=$((left - 1))
	[ $left -gt 0 ] || break
	sleep 0.1
done
events=$(grep -hE 'FALLBACK|OFFLINE|NOT_OWNED' /sys/kernel/sched_ext/root/events | awk '{ n += $2 } END { print n + 0 }')
was=$(cat $STATE)

kill -INT $magpie
wait $magpie
status=$?

total() {
	tail -n 1 /tmp/summary | jq ".$1"
}
echo
echo "== summary of 10 s under load"
printf '   %-34s %s\n' \
	"wakeups" "$(total search)" \
	"  placed on an idle CPU" "$(($(total search) - $(total failed)))" \
	"  CPUs looked at for each" "$(awk "BEGIN { printf \"%.2f\", $(total scanned) / ($(total search) + 1) }")" \
	"  preempted, due clearly first" "$(total preempt)" \
	"tasks stolen: LLC, node, beyond" "$(total steal_llc), $(total steal_node), $(total steal_far)" \
	"utilization" "$(total util | cut -c1-5) %" \
	"sched_ext while it ran" "$was, $events error events" \
	"sched_ext now" "$(cat $STATE): $(grep -a EXIT /tmp/log | head -n 1)"
[ "$was" = enabled ] && [ "$events" = 0 ] || exit 1
exit $status

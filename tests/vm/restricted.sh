# SPDX-License-Identifier: GPL-2.0-only
# matrix: --cpus 8 --llcs 1 --nodes 1 --icount 0 --turn 50 --timeout 600
# matrix: --cpus 8 --llcs 2 --nodes 1 --icount 0 --turn 50 --timeout 600
# carry: magpie-callbacks
# carry: magpie-wakeup
# What dispatch costs on CPUs that go idle does not grow with the tasks that wait elsewhere and may not come: beside 400 that
# may use two busy CPUs only it looks at eight tasks of each of the two, where beside 4 it looks at one: six times the cost at most,
# where a walk over the queues costs fifty times. An instruction is a nanosecond.
. /root/lib.sh

# pinned N: so many hogs in all may use CPUs 0 and 1 only.
pinned() {
	while [ "$(wc -l </tmp/hogs)" -lt "$1" ]; do
		hog taskset 3
	done
	wait_for 120 "the hogs' affinity" are_pinned "$1"
}

are_pinned() {
	[ "$(cat $(sed 's|.*|/proc/&/status|' /tmp/hogs) | grep -c '^Cpus_allowed_list:.0-1$')" = "$1" ]
}

# dispatch_beside N: NS a call while threads on the other CPUs wake and sleep at once.
dispatch_beside() {
	pinned "$1"
	taskset fc magpie-callbacks -- magpie-wakeup -m 2 -t 1 -c 20 -s 200 -j 50 -r 2 >/tmp/callbacks || fail "magpie-callbacks"
	NS=$(jq -e .callbacks.dispatch.ns /tmp/callbacks) || fail "no dispatch in: $(cat /tmp/callbacks)"
	say "beside $1 tasks: dispatch takes $NS ns, of $(jq .callbacks.dispatch.calls /tmp/callbacks) calls"
}

taskset -p fc $$ >/dev/null
: >/tmp/hogs
start_magpie
dispatch_beside 4
few=$NS
dispatch_beside 400
RATIO=$(awk "BEGIN { printf \"%.2f\", $NS / $few }")
say "$RATIO times"
within "$RATIO" 0 6 || fail "it grows with tasks that may not come"
still_enabled
no_error_events
stop_magpie

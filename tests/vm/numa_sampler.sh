# SPDX-License-Identifier: GPL-2.0-only
# vm: --cpus 4 --llcs 2 --nodes 2
# vm: --cpus 2 --llcs 1 --nodes 1
# carry: magpie-numa
# The sampler of memory is bounded, and takes no notice of processes that end: beside one with 100,000 mappings, and short ones
# one after the other, it keeps to its share of a CPU, and says nothing. (An emulated CPU's time also passes while others run.)
. /root/lib.sh

sampling() {
	grep -q magpie-numa /proc/"$MAGPIE"/task/*/comm
}

if [ ! -d /sys/devices/system/node/node1 ]; then
	start_magpie
	sampling && fail "a sampler on a machine with one node"
	stop_magpie
	say "one node: no sampler"
	exit 0
fi

# sampler NAME: a number of $JSON's statistics of memory
sampler() {
	json_total "memory_$1"
}

has_sampled() {
	stats_json 1
	[ "$(sampler cut)" -gt 0 ]
}

echo 1000000 >/proc/sys/vm/max_map_count
magpie-numa maps --count 100000 --run 600 >/tmp/maps &
maps=$!
wait_for 120 "a process with 100,000 mappings" grep -q ready /tmp/maps
mappings=$(wc -l </proc/$maps/maps)
[ "$mappings" -ge 100000 ] || fail "only $mappings mappings"

start_magpie --numa-sample-share 20 --numa-sample-ms 20
wait_for 60 "a look at it that was cut short" has_sampled
say "$mappings mappings: a look was cut short after $(sampler longest_us) us"
# As many as fit in 20 ms, and the lines of one more read.
within "$(sampler longest_us)" 1 200000 || fail "a look took $(sampler longest_us) us of 20000"

sampling || fail "no thread of that name"

(while :; do magpie-numa hog --memory 1 --mb 1 --warm-up 0 --run 0.2 >/dev/null; done) &
churn=$!
stats_json 8
say "beside short-lived processes, 8 s: $(sampler samples) looked at, $(sampler cut) looks cut short, $(sampler cost) % of a CPU"
within "$(sampler cost)" 0 30 || fail "more than 20 % of a CPU, and what one look more may take"
kill $churn $maps
! grep -E 'WARN|ERROR|memory is not' $LOG || fail "it complains"
no_error_events
stop_magpie

# With a share of 0 its thread sleeps, until it gets a share: none is started in the loop that serves.
start_magpie --numa-sample-share 0
wait_for 10 "the sampler's thread" sampling
thread=$(grep -l magpie-numa /proc/"$MAGPIE"/task/*/comm)
switches() {
	grep ^voluntary "${thread%comm}status"
}
sleeps() {
	grep -q '^State:.S' "${thread%comm}status"
}
wait_for 10 "the thread's sleep" sleeps
before=$(switches)
magpie-numa hog --memory 1 --mb 1 --warm-up 0 --run 3 >/dev/null
[ "$(switches)" = "$before" ] || fail "it wakes up though --numa-sample-share is 0: $(switches), before $before"

has_checked() {
	stats_json 1
	[ "$(sampler samples)" -gt 0 ]
}
scx_magpie set numa-sample-share=20 >/dev/null || fail "set"
magpie-numa hog --memory 1 --mb 1 --warm-up 0 --run 600 >/dev/null &
hog=$!
wait_for 60 "looks after a share was set" has_checked
[ "$(grep -l magpie-numa /proc/"$MAGPIE"/task/*/comm)" = "$thread" ] || fail "another thread"
scx_magpie set numa-sample-share=0 >/dev/null || fail "set"
wait_for 10 "the thread's sleep" sleeps
stats_json 1
[ "$(sampler samples)" = 0 ] || fail "it looks on"
kill $hog
[ "$(cat "$thread")" = magpie-numa ] || fail "the thread is gone"
stop_magpie

# SPDX-License-Identifier: GPL-2.0-only
# vm: --cpus 8 --llcs 2 --nodes 2 --icount 0 --timeout 600
# Tasks that may use one CPU only: hackbench over pipes on CPU 0 takes about as long as under EEVDF, with about as many context
# switches. select_cpu() does not see the wakeups of such tasks: enqueue() has to know that a running task woke them. Medians of
# five runs each, after three that do not count: the first ones of a boot have more switches under either.
. /root/lib.sh

switches() {
	awk '/^ctxt / { print $2 }' /proc/stat
}

# pinned_hackbench WHOSE: a line of /tmp/WHOSE-seconds and of /tmp/WHOSE-switches.
pinned_hackbench() {
	local before after
	before=$(switches)
	taskset 1 hackbench -g 1 -l 50 -p >/tmp/hackbench 2>&1 || fail "hackbench"
	after=$(switches)
	sed -n 's/Time: //p' /tmp/hackbench >>/tmp/"$1"-seconds
	echo $((after - before)) >>/tmp/"$1"-switches
}

for i in 1 2 3; do pinned_hackbench warm-up; done
for i in 1 2 3 4 5; do pinned_hackbench eevdf; done
start_magpie
for i in 1 2 3 4 5; do pinned_hackbench magpie; done
no_error_events
stop_magpie

failed=
# expect WHAT HIGH: the median is at most that many times EEVDF's, else it is in $failed.
expect() {
	local eevdf magpie ratio
	eevdf=$(median /tmp/eevdf-"$1") magpie=$(median /tmp/magpie-"$1")
	ratio=$(awk "BEGIN { printf \"%.2f\", $magpie / $eevdf }")
	say "$1: $magpie of" $(cat /tmp/magpie-"$1") "- under EEVDF $eevdf of" $(cat /tmp/eevdf-"$1") "- ratio $ratio"
	within "$ratio" 0 "$2" || failed="$failed; $1 $ratio times EEVDF's, more than $2"
}
expect seconds 1.15
expect switches 3
[ -z "$failed" ] || fail "${failed#; }"

# SPDX-License-Identifier: GPL-2.0-only
# vm: --icount 3 --cpus 2 --llcs 2 --nodes 2 --timeout 600
# kernels: ends
# The targets that the kernel holds for the governor schedutil (rq->scx.cpuperf_target) follow load: low on an idle machine, that
# of one CPU full beside a hog, low when it is gone, though no tick comes there any more. Without --cpufreq on they stay full
# here, where no CPU has a governor.
. /root/lib.sh

# target LLC LOW HIGH: waits until that of the LLC's CPU is within.
is_within() {
	stats_json 0.2
	TARGET=$(json_llc "$1" cpuperf_target)
	within "$TARGET" "$2" "$3"
}

# wait_for runs it without its output.
target() {
	wait_for 60 "a target of $2 to $3 % on CPU $1" is_within "$@"
	say "CPU $1: $TARGET %"
}

start_magpie --cpufreq on
target 1 0 15
hog taskset 2
target 1 95 100
target 0 0 50
end_hogs
target 1 0 15
no_error_events
stop_magpie

start_magpie
target 1 100 100
target 0 100 100
no_error_events
stop_magpie

# SPDX-License-Identifier: GPL-2.0-only
# vm: --cpus 8 --llcs 2 --nodes 1 --append maxcpus=2
# CPUs that were never seen come: those of an LLC that is known are used at once, an LLC that is new makes the loader start anew,
# once.
. /root/lib.sh

# As in lib.sh, but the kernel itself gives tasks a slice on a CPU that is not online yet.
error_events() {
	grep -hE 'FALLBACK|OFFLINE|NOT_OWNED|KEEP_LAST|DENIED|ENQ_SKIP' $SCX/root/events | tr '\n' ' '
}

ran() {
	[ "$(cpu_time_us "$1")" -gt 10000 ]
}

has_cpus() {
	stats_json 0.2
	[ "$(json_total nr_cpus)" = "$1" ]
}

attached() {
	[ "$(grep -c "attached: $1" $LOG)" = 1 ]
}

start_magpie
attached "2 CPUs, 1 LLCs" || fail "not two CPUs of one LLC"
for cpu in 2 3 4 5 6 7; do
	echo 1 >/sys/devices/system/cpu/cpu$cpu/online
	if [ $cpu = 4 ]; then
		wait_for 60 "a new start" attached "5 CPUs, 2 LLCs"
		EVENTS=$(error_events) # attaching under load counts some
	fi
	wait_for 60 "statistics of $((cpu + 1)) CPUs" has_cpus $((cpu + 1))
	# As many hogs as CPUs: one comes to the new CPU, which idles.
	hog
	wait_for 30 "a hog to run" ran "$HOG"
	say "CPU $cpu came: $(tail -n 1 $LOG)"
done
for cpu in 2 3 5 6 7; do
	grep -q "CPU $cpu came" $LOG || fail "CPU $cpu got no place"
done
no_error_events
end_hogs
stop_magpie

# SPDX-License-Identifier: GPL-2.0-only
# vm: --cpus 8 --llcs 1 --nodes 1 --append "nohz_full=1-7 rcu_nocbs=1-7" --icount 0 --turn 50 --timeout 600
# Programs that start on nohz_full CPUs, alongside a pinned hog on each, which must not lose its tick and get it back
# all the time. Eight loops of fork and exec start as many programs as under EEVDF.
. /root/lib.sh
SECONDS_EACH=${MAGPIE_RUNS:-4}

processes() {
	awk '/^processes/ { print $2 }' /proc/stat
}

# programs WHOSE: $PROGRAMS that eight loops start
programs() {
	loops=
	for _ in 1 2 3 4 5 6 7 8; do
		sh -c 'while :; do /bin/true; done' &
		loops="$loops $!"
	done
	sleep 1
	PROGRAMS=$(processes)
	sleep "$SECONDS_EACH"
	PROGRAMS=$(($(processes) - PROGRAMS))
	kill -KILL $loops
	wait $loops 2>/dev/null
	say "$1: $((PROGRAMS / SECONDS_EACH)) programs a second"
}

[ "$(cat /sys/devices/system/cpu/nohz_full)" = 1-7 ] || fail "no nohz_full CPUs"
for cpu in 1 2 3 4 5 6 7; do
	hog taskset -c $cpu
done
programs EEVDF
eevdf=$PROGRAMS
start_magpie
programs scx_magpie
within $((PROGRAMS * 100 / eevdf)) 95 1000 || fail "fewer programs than under EEVDF"
end_hogs
no_error_events
stop_magpie

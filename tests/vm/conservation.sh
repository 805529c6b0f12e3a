# SPDX-License-Identifier: GPL-2.0-only
# vm: --cpus 8 --llcs 2 --nodes 2 --icount 3 --append skew_tick=1 --timeout 1500
# carry: magpie-conservation
# Work conservation (seed 003_8e2080094cd19793): under mixed load no CPU is idle for more than 1 ms while a task that may run
# there waits in its LLC, nor for more than the migration cost and 1 ms while one waits in another; by the kernel's own
# trace, of 10 s times MAGPIE_RUNS. (Emulated CPUs take turns, each until the next timer of any: --timer-freq makes that 50 us.)
. /root/lib.sh

mount -t tracefs tracefs /sys/kernel/tracing 2>/dev/null
start_magpie
# Half of the CPUs busy for good, the rest by bursts: of hackbench, of tasks that fork, yield, do I/O, sleep.
for _ in 1 2 3 4; do
	hog
done
stress-ng --timer 1 --timer-freq 20000 --io 1 --hdd 1 --hdd-bytes 1M --fork 1 --switch 1 --temp-path /tmp >/tmp/out 2>&1 &
load=$!
while :; do
	hackbench -g 1 -f 5 -l 20 -p || exit
	sleep 0.05
done >/dev/null 2>&1 &
bursts=$!
magpie-conservation --seconds $((${MAGPIE_RUNS:-1} * 10)) >/tmp/json || fail "no trace"
say "$(cat /tmp/json)"
kill $load $bursts
wait $load
end_hogs
! grep -Eq '"over_limit":[1-9]' /tmp/json || fail "a CPU was idle while a task waited"
no_error_events
stop_magpie

# SPDX-License-Identifier: GPL-2.0-only
# vm: --cpus 8 --llcs 2 --nodes 2 --timeout 1500
# kernels: ends
# hackbench in all four modes and mixed CPU and I/O load: the scheduler stays, nothing goes wrong, Ctrl-C detaches.
# MAGPIE_RUNS (1) and MAGPIE_LOOPS (100) make it longer.
. /root/lib.sh

start_magpie
run=1
while [ $run -le "${MAGPIE_RUNS:-1}" ]; do
	for mode in "-p" "" "-p -T" "-T"; do
		hackbench -g 4 -l "${MAGPIE_LOOPS:-100}" $mode >/tmp/out 2>&1 || fail "hackbench $mode: $(tail -n 3 /tmp/out)"
		say "run $run: hackbench -g 4 $mode: $(sed -n 's/Time: //p' /tmp/out) s"
		still_enabled
	done
	stress-ng --cpu 4 --io 2 --hdd 1 --hdd-bytes 4M --switch 2 --yield 2 --fork 1 --timer 1 --temp-path /tmp -t 3 \
		>/tmp/out 2>&1 || fail "stress-ng: $(tail -n 3 /tmp/out)"
	say "run $run: stress-ng mixed CPU and I/O: done"
	still_enabled
	run=$((run + 1))
done
no_error_events
stop_magpie

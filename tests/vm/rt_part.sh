# SPDX-License-Identifier: GPL-2.0-only
# vm: --cpus 8 --llcs 1 --nodes 1 --icount 0 --turn 50 --timeout 900
# carry: magpie-wakeup
# Real-time tasks take 60 % of two of eight CPUs. Workers beside them get as much done as under EEVDF, which counts what a CPU has
# left (scale_rt_capacity()): a task that waits there is taken by the next CPU that has nothing to do.
. /root/lib.sh
RUNTIME=${MAGPIE_RUNS:-2}

# workers WHOSE: requests a second and p99 of a request, to /tmp/WHOSE-N.
workers() {
	for n in 8 16; do
		magpie-wakeup -m 1 -t $n -c 4000 -s 4000 -r $RUNTIME --cpu-time --json >/tmp/$1-$n || fail "magpie-wakeup"
		say "$1, $n workers: $(jq -r '"\(.rps) requests a second, p99 \(.request_p99_us / 1000) ms"' /tmp/$1-$n)"
	done
}

for cpu in 0 1; do
	taskset -c $cpu chrt -f 50 magpie-wakeup -m 1 -t 1 -c 6000 -s 4000 -r 600 >/dev/null &
done
workers eevdf
start_magpie
workers magpie
for n in 8 16; do
	jq -n -e --slurpfile eevdf /tmp/eevdf-$n --slurpfile magpie /tmp/magpie-$n '
		$magpie[0].rps >= 0.95 * $eevdf[0].rps
		and $magpie[0].request_p99_us <= 1.2 * $eevdf[0].request_p99_us' >/dev/null || fail "less than under EEVDF"
done
no_error_events
stop_magpie

# SPDX-License-Identifier: GPL-2.0-only
# matrix: --cpus 2 --llcs 1 --nodes 1 --icount 2 --timeout 900
# carry: magpie-packets
# Packets that wake a server come by interrupts of a CPU whose task never sleeps, and is not the waker: the server preempts it at
# once, as after any wakeup that is not sync, and waits no longer than under the kernel's own scheduler.
# One CPU is online, so that packets come there. Of two, select_cpu() is called for the server.
. /root/lib.sh
ROUNDS=3

# packets SCHEDULER: adds to a file of p99s.
packets() {
	magpie-packets --packets 400 >/tmp/waits || fail "magpie-packets"
	say "$1: $(cat /tmp/waits)"
	sed -n 's/.*"p99_us":\([0-9.]*\).*/\1/p' /tmp/waits >>/tmp/p99."$1"
}

echo 0 >/sys/devices/system/cpu/cpu1/online || fail "CPU 1 cannot go"
# Else a connection as fast as loopback's sends many packets at once.
echo 0 >/proc/sys/net/ipv4/tcp_tso_rtt_log
hog chrt -b 0
for _ in $(seq $ROUNDS); do
	packets kernel
	start_magpie
	packets magpie
	still_enabled
	no_error_events
	stop_magpie
done
start_magpie
stats_of 0.4 magpie-packets --packets 3000
WAKEUPS=$(json_total search)
PREEMPT=$(json_total preempt)
say "of $WAKEUPS wakeups $PREEMPT preempt, $(json_total handoff) are handed the CPU, $(json_total affine) pulled"
[ "$WAKEUPS" -ge 100 ] || fail "too few to tell"
[ "$PREEMPT" -ge $((WAKEUPS * 3 / 4)) ] || fail "what is interrupted is taken for the waker"
[ "$(json_total handoff)" = 0 ] || fail "what is interrupted hands its CPU off"
stop_magpie
# Half as much again: an instruction takes 4 ns here, and those of BPF programs are more.
within "$(median /tmp/p99.magpie)" 0 "$(awk "BEGIN { print 1.5 * $(median /tmp/p99.kernel) }")" || fail "the server waits for too long"

# SPDX-License-Identifier: GPL-2.0-only
# vm: --cpus 8 --llcs 2 --nodes 2 --icount 2 --turn 50 --timeout 1500
# carry: magpie-conservation
# Work conservation (Steve Sistare's series): under mixed load no CPU idles for more than 1 ms while a task that may run
# there waits in its LLC, nor for more than the migration cost and 1 ms while one waits in another; by the kernel's own
# trace, of MAGPIE_RUNS seconds (1), but for time in which a CPU does not take its own interrupts, or comes late when told to:
# emulated ones stand still at times. docs/design.md has the figures of 60 seconds.
. /root/lib.sh

mount -t tracefs tracefs /sys/kernel/tracing 2>/dev/null
cat >/root/load.sh <<-'END'
	# Two hogs, something that forks, something that writes; and bursts of eight tasks that wake each other.
	stress-ng --cpu 2 --cpu-method loop --fork 1 --hdd 1 --hdd-bytes 1M --temp-path /tmp &
	while hackbench -g 1 -f 4 -l 30 -p; do
		sleep 0.05
	done
END
start_magpie
magpie-conservation --seconds "${MAGPIE_RUNS:-1}" --beyond-limit-us 1100 --show 10 -- sh /root/load.sh >/tmp/out 2>/tmp/err ||
	fail "no trace: $(tail -n 3 /tmp/err)"
say "$(tail -n 1 /tmp/out)"
if tail -n 1 /tmp/out | grep -Eq '"over_limit":[1-9]'; then
	say "$(cut -c 1-180 /tmp/err)"
	fail "a CPU was idle while a task waited"
fi
# Else this shows nothing.
tail -n 1 /tmp/out | grep -Eq '"llc":.*"max_us":[1-9]' || fail "nobody ever waited while a CPU was idle, be it for a moment"
no_error_events
stop_magpie

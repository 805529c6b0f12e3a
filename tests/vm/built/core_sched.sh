# SPDX-License-Identifier: GPL-2.0-only
# vm: --cpus 8 --llcs 1 --nodes 1 --smt 2 --icount 0 --turn 50 --timeout 1200
# carry: magpie-cookies
# Core scheduling: four programs, three with a cookie of their own, whose threads spin, sleep, come and go. The machine goes on,
# each of them has its part, `status` says that cookies are in use, and no longer when they are gone.
. /root/lib.sh

status_has() {
	scx_magpie status | grep -q "core scheduling is in use"
}

status_has_not() {
	! status_has
}

# cookies WHOSE SECONDS
cookies() {
	magpie-cookies -g 4 -s 2 -l 2 -r "$2" >/tmp/$1 || fail "magpie-cookies under $1"
	say "$1: $(sort /tmp/$1 | awk '{ printf "%s %s s, latest %d us; ", $1 == 3 ? "no cookie" : "cookie " $1 + 1, $2, $3 }')"
}

zcat /proc/config.gz | grep -q CONFIG_SCHED_CORE=y || fail "not a kernel with CONFIG_SCHED_CORE"
SECONDS_EACH=${MAGPIE_RUNS:-5}
cookies eevdf $SECONDS_EACH
start_magpie
cookies magpie $SECONDS_EACH &
wait_for 30 "status to say it" status_has
wait $!
wait_for 30 "status to say it no longer" status_has_not
least=$(awk '{ print $2 }' /tmp/magpie | sort -n | head -1)
fair=$(awk '{ sum += $2 } END { print sum / NR }' /tmp/eevdf)
within "$(awk "BEGIN { print $least / $fair }")" 0.5 2 || fail "one of them has $least s, EEVDF's have $fair s"
no_error_events
stop_magpie

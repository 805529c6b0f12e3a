# SPDX-License-Identifier: GPL-2.0-only
# What the tests of the service share; sourced after lib.sh.

UNIT=scx_magpie.service

property() {
	systemctl show --value -p "$1" ${2:-$UNIT}
}

is() {
	[ "$(property "$1")" = "$2" ]
}

# In place of fail's: the journal.
journal() {
	journalctl -u $UNIT -o cat --no-pager >$LOG
}

start() {
	systemctl start $UNIT || { journal; fail "start: $(property Result)"; }
	is_state enabled || fail "started, and not attached"
}

# metrics UP: are they served, into a file, with this scx_magpie_up?
metrics() {
	wget -q -O /tmp/metrics http://127.0.0.1:9811/metrics && grep -q "^scx_magpie_up $1$" /tmp/metrics
}

# has_metrics PATTERN...: of the metrics that were served last.
has_metrics() {
	for metric in "$@"; do
		grep -q "^scx_magpie_$metric$" /tmp/metrics ||
			fail "no metric $metric: $(grep "^scx_magpie_${metric%%[{ ]*}" /tmp/metrics)"
	done
}

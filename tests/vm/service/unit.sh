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

# SPDX-License-Identifier: GPL-2.0-only
# matrix: --cpus 8 --llcs 2 --nodes 2 --icount 0 --turn 50 --timeout 900
# carry: magpie-pairs
# As many pairs of processes as CPUs answer each other over pipes. No CPU idles, so each exchange has two switches. Of EEVDF's
# exchanges it has three quarters and more here (docs/experiments/order.md). Medians of three runs each, alternately.
. /root/lib.sh

# exchanges WHOSE: a line of /tmp/WHOSE.
exchanges() {
	magpie-pairs -r 1 >/tmp/pairs.json || fail "magpie-pairs"
	jq -e .exchanges /tmp/pairs.json >>/tmp/"$1" || fail "no figure in: $(cat /tmp/pairs.json)"
}

for i in 1 2 3; do
	exchanges eevdf
	start_magpie
	exchanges magpie
	no_error_events
	stop_magpie
done
eevdf=$(median /tmp/eevdf) magpie=$(median /tmp/magpie)
ratio=$(awk "BEGIN { printf \"%.3f\", $magpie / $eevdf }")
say "$(nproc) pairs: $magpie exchanges a second, under EEVDF $eevdf: $ratio"
within "$ratio" 0.65 100 || fail "less than 0.65 of EEVDF's"

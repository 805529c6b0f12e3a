# SPDX-License-Identifier: GPL-2.0-only
# vm: --systemd --cpus 2 --llcs 1 --nodes 1
# carry: service/unit.sh
# carry: dist/scx_magpie.service:/usr/lib/systemd/system/scx_magpie.service
# carry: dist/scx_magpie-export.service:/usr/lib/systemd/system/scx_magpie-export.service
# The service under systemd, its unit as packages have it: it is started when the scheduler is attached, reloads a file that is
# right, and is not started again after SysRq-S or a refusal. The exporter says which scheduler runs, and how often it failed.
# `make vm-service` does more, with the package.
. /root/lib.sh
. /root/unit.sh

# failed STATUS: it ended so, and systemd leaves it at that.
failed() {
	[ "$(property ExecMainStatus) $(property NRestarts) $(property ActiveState)" = "$1 0 failed" ]
}

ln -s /usr/local/bin/scx_magpie /usr/bin/
start
property StatusText | grep -q "attached: .* CPUs" || fail "no status: $(property StatusText)"

echo 'slice-us = 1' >/etc/scx_magpie.toml
systemctl reload $UNIT 2>/dev/null && fail "reloaded a wrong file"
echo 'slice-us = 5000' >/etc/scx_magpie.toml
systemctl reload $UNIT || fail "reload"
scx_magpie config | grep -q '^slice-us = 5000' || fail "not reloaded: $(scx_magpie config | grep slice-us)"
is_state enabled || fail "not attached after a reload"

systemctl start scx_magpie-export.service || fail "export: start"
wait_for 60 "metrics" metrics 1
has_metrics 'scheduler_info{scheduler="magpie_.*"} 1' 'build_info{version=".*",kernel=".*"} 1' 'failures_total 0' \
	'attaches_total [1-9].*' 'cpu_pressure_seconds_total [0-9].*'

echo S >/proc/sysrq-trigger
wait_for 60 "the end by SysRq-S" is ActiveState failed
failed 12 || fail "SysRq-S: $(property ExecMainStatus) $(property NRestarts)"
is_state disabled || fail "attached after SysRq-S"
wait_for 60 "metrics without a scheduler" metrics 0
has_metrics 'scheduler_info{scheduler="EEVDF"} 1' 'failures_total 1'

echo 'slice-us = 1' >/etc/scx_magpie.toml
systemctl start $UNIT 2>/dev/null && fail "started with a wrong file"
failed 2 || fail "a wrong file: $(property ExecMainStatus) $(property NRestarts) $(property ActiveState)"

# SPDX-License-Identifier: GPL-2.0-only
# `make vm-service` runs it: what the Debian package has, under systemd. The service is started when the scheduler is attached,
# comes back when it is killed or hangs, does not when it is refused, gives up when it always dies, and leaves the kernel its
# own scheduler when it is stopped. Metrics are served. Installing the package starts nothing, an upgrade starts the service
# again if it runs, and a purge leaves nothing.
. /root/lib.sh
. /root/unit.sh

has_restarted() {
	[ "$(property NRestarts)" = "$1" ] && is ActiveState active
}

# forget: no failures until now.
forget() {
	systemctl reset-failed $UNIT
	rm -f /run/scx/scx_magpie.failures
}

# package COMMAND...: by Debian's dpkg: the shell has one of its own. No other package is installed here.
package() {
	LC_ALL=C /usr/bin/dpkg --force-depends "$@" >$LOG 2>&1 || fail "dpkg $*"
}

mkdir -p /var/lib/dpkg/info /var/lib/dpkg/updates /var/lib/dpkg/triggers /var/log
touch /var/lib/dpkg/status
package --install /root/scx-magpie.deb
is LoadState loaded || fail "systemd does not know the service: $(property LoadState)"
[ "$(property UnitFileState) $(property ActiveState)" = "disabled inactive" ] ||
	fail "installed, and the service is $(property UnitFileState), $(property ActiveState)"

say "$(systemctl --version | head -n 1)"
start
say "started: $(property StatusText)"
property StatusText | grep -q "attached: .* CPUs" || fail "no status"
capabilities=$(sed -n 's/^CapBnd:\t0*//p' /proc/"$(property MainPID)"/status)
say "capabilities: $capabilities"
[ "$capabilities" = c000080000 ] || fail "not those of the unit"
hackbench -g 2 -l 100 >/dev/null || fail "hackbench"
stats_json 1
[ "$(json_total search)" -ge 0 ] || fail "no statistics"

# The kernel has one scheduler at a time.
printf '[Service]\nExecStart=/usr/bin/sleep 1000\n' >/run/systemd/system/scx.service
systemctl daemon-reload
systemctl start scx.service || fail "another scheduler's service"
is_state disabled || fail "still attached beside another scheduler's service"
start
[ "$(property ActiveState scx.service)" = inactive ] || fail "another scheduler's service goes on"
say "takes turns with scx.service"

systemctl restart $UNIT || fail "restart"
is_state enabled || fail "not attached after a restart"
kill -9 "$(property MainPID)"
wait_for 60 "a new start after a kill" has_restarted 1
is_state enabled || fail "not attached after a kill"
say "killed: started again"

systemctl start scx_magpie-export.service || fail "export: start"
wait_for 60 "metrics" metrics 1
user=$(stat -c %u /proc/"$(property MainPID scx_magpie-export.service)")
say "$(grep -c '^scx_magpie_' /tmp/metrics) metrics, by user $user"
[ "$user" != 0 ] || fail "the exporter is root"
has_metrics 'scheduler_info{scheduler="magpie_.*"} 1' 'failures_total 1'

systemctl stop $UNIT || fail "stop"
is_state disabled || fail "stopped, and state is $(state)"
is Result success || fail "stopped: result $(property Result)"
journal
grep -q "unregistered from user space" $LOG || fail "no 'unregistered from user space'"
grep WARN $LOG && fail "warnings"
wait_for 60 "metrics without a scheduler" metrics 0
has_metrics 'scheduler_info{scheduler="EEVDF"} 1' 'failures_total 1'

# A file that is wrong is refused, one that is right is read.
start
echo 'slice-us = 1' >/etc/scx_magpie.toml
systemctl reload $UNIT 2>/dev/null && fail "reloaded a wrong file"
echo 'slice-us = 5000' >/etc/scx_magpie.toml
systemctl reload $UNIT || fail "reload"
scx_magpie config | grep -q '^slice-us = 5000' || fail "not reloaded: $(scx_magpie config | grep slice-us)"
rm /etc/scx_magpie.toml

# What the operator does is not limited.
for _ in 1 2 3 4 5 6; do
	systemctl restart $UNIT || fail "restarted too often: $(property Result)"
done
is_state enabled || fail "not attached after some restarts"

# SysRq-S is the operator's, and final.
failures=$(scx_magpie status | sed -n 's/.*failures since boot: \([0-9]*\),.*/\1/p')
echo S >/proc/sysrq-trigger
wait_for 60 "the end by SysRq-S" is ActiveState failed
[ "$(property ExecMainStatus) $(property NRestarts)" = "12 0" ] ||
	fail "SysRq-S: $(property ExecMainStatus) $(property NRestarts)"
is_state disabled || fail "attached after SysRq-S"
say "SysRq-S: $(scx_magpie status 2>&1)"
scx_magpie status 2>&1 | grep -q "failures since boot: $((failures + 1)), .*sysrq-S" || fail "status says nothing of it"

# Hangs.
mkdir -p /run/systemd/system/$UNIT.d
printf '[Service]\nWatchdogSec=3s\n' >/run/systemd/system/$UNIT.d/watchdog.conf
systemctl daemon-reload
forget
start
sleep 5
is NRestarts 0 || fail "the watchdog bites one that is alive"
kill -STOP "$(property MainPID)"
wait_for 120 "a new start after a hang" has_restarted 1
say "hangs: started again"
systemctl stop $UNIT || fail "stop"

# Refused.
echo 'slice-us = 1' >/etc/scx_magpie.toml
systemctl start $UNIT 2>/dev/null && fail "started with a wrong flag"
[ "$(property ExecMainStatus) $(property NRestarts) $(property ActiveState)" = "2 0 failed" ] ||
	fail "a wrong flag: $(property ExecMainStatus) $(property NRestarts) $(property ActiveState)"
journal
say "refused: $(grep 'scx_magpie:' $LOG | tail -n 1)"

# Always dies.
rm /etc/scx_magpie.toml
forget
start
deaths=0
while is_state enabled; do
	kill -9 "$(property MainPID)"
	deaths=$((deaths + 1))
	[ $deaths -le 5 ] || fail "started again and again"
	wait_for 60 "a new start, or none" eval "has_restarted $deaths || is ActiveState failed"
done
say "died $deaths times: $(property Result)"
[ "$(property ActiveState) $deaths $(property ExecMainStatus)" = "failed 3 13" ] ||
	fail "not given up after three failures: $(property ExecMainStatus)"
start
say "the operator starts it again"

# What runs is of the package that is installed.
pid=$(property MainPID)
package --install /root/newer.deb
[ "$(property MainPID)" != "$pid" ] || fail "the upgrade did not start the service again"
is ActiveState active || fail "after the upgrade the service is $(property ActiveState)"
is_state enabled || fail "not attached after the upgrade"
package --purge scx-magpie
is_state disabled || fail "still attached after the purge"
is LoadState not-found || fail "after the purge systemd has the service: $(property LoadState)"
left=$(find / -xdev -name '*scx*magpie*' ! -path '/usr/local/*' ! -path '/root/*' ! -path '/tmp/*' ! -path '/var/log/*')
[ -z "$left" ] || fail "left after the purge: $left"
say "installed, upgraded, purged"

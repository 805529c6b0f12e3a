# SPDX-License-Identifier: GPL-2.0-only
# `make vm-loader` runs it: scx_loader with dist/scx_loader.patch starts, switches and stops
# scx_magpie for scxctl, over D-Bus, and each mode has the flags that the patch names. Then what
# docs/operating.md says of scx_loader as it is published.
. /root/lib.sh
. /root/unit.sh

LOADER=scx_loader.service

# loader COMMAND...: by scxctl.
loader() {
	scxctl "$@" >/tmp/scxctl 2>&1 || fail "scxctl $*: $(cat /tmp/scxctl)"
}

has_values() {
	[ "$(pidof scx_magpie)" != "$before" ] && is_state enabled && scx_magpie status && scx_magpie config >/tmp/config || return 1
	for value in "$@"; do
		grep -q "^${value%%=*} = \"*${value#*=}\"* " /tmp/config || return 1
	done
}

# runs WHAT KEY=VALUE...: one that has been started since is attached, and has these values.
runs() {
	local what=$1
	shift
	wait_for 120 "$what, $*" has_values "$@"
	before=$(pidof scx_magpie)
	say "$what: $(sed 's/ *#.*//' /tmp/config | grep -E "^($(echo "$*" | sed 's/=[^ ]*//g; s/ /|/g')) " | tr '\n' ' ')"
}

is_attached() {
	grep -q "^$1" $SCX/root/ops 2>/dev/null && is_state enabled
}

# logged PATTERN: in how many lines of scx_loader's journal, which has what scx_magpie says, too.
logged() {
	journalctl -u $LOADER -o cat --no-pager | grep -cE "$1"
}

has_tried() {
	[ "$(logged "attempt $1/5")" -ge 1 ]
}

# What packages of scx_loader have. The sandbox is as tight as that of its repository, or tighter.
ln -s /usr/local/bin/scx_magpie /usr/bin/scx_magpie
cat >/usr/lib/systemd/system/$LOADER <<'END'
[Service]
Type=dbus
BusName=org.scx.Loader
ExecStart=/usr/bin/scx_loader
KillSignal=SIGINT
CapabilityBoundingSet=CAP_BPF CAP_PERFMON CAP_SYS_ADMIN CAP_SYS_NICE CAP_KILL
ProtectSystem=full
ProtectHome=yes
PrivateTmp=yes
PrivateDevices=yes
PrivateMounts=yes
ProtectClock=yes
ProtectControlGroups=yes
ProtectKernelModules=yes
ProtectKernelLogs=yes
ProtectKernelTunables=yes
RestrictAddressFamilies=AF_UNIX
RestrictRealtime=yes
LockPersonality=yes
MemoryDenyWriteExecute=yes
SystemCallFilter=@system-service bpf perf_event_open
SystemCallFilter=~@aio:EPERM @chown:EPERM @keyring:EPERM @memlock:EPERM @pkey:EPERM
SystemCallFilter=~@sandbox:EPERM @setuid:EPERM @sync:EPERM @timer:EPERM
END
cat >/usr/share/dbus-1/system-services/org.scx.Loader.service <<END
[D-BUS Service]
Name=org.scx.Loader
Exec=/bin/false
User=root
SystemdService=$LOADER
END
cat >/usr/share/dbus-1/system.d/org.scx.Loader.conf <<'END'
<busconfig>
	<policy user="root"><allow own="org.scx.Loader"/></policy>
	<policy context="default"><allow send_destination="org.scx.Loader"/></policy>
</busconfig>
END
cat >/usr/share/polkit-1/actions/org.scx.Loader.policy <<'END'
<policyconfig>
	<action id="org.scx.loader.manage-schedulers">
		<description>Manage schedulers</description>
		<message>Manage schedulers</message>
		<defaults><allow_any>no</allow_any><allow_inactive>no</allow_inactive><allow_active>auth_admin</allow_active></defaults>
	</action>
</policyconfig>
END
systemd-sysusers 2>/dev/null || fail "systemd-sysusers"
systemctl daemon-reload
systemctl start dbus.socket || fail "D-Bus"
journalctl -q -u $LOADER -o cat -f >$LOG & # for fail

loader list
grep -q magpie /tmp/scxctl || fail "not in the list: $(cat /tmp/scxctl)"
loader modes -s magpie
grep -q '\[Auto, Gaming, PowerSave, LowLatency\]' /tmp/scxctl || fail "other modes: $(cat /tmp/scxctl)"

before=
loader start -s magpie
runs "start" profile=default power=auto
[ "$(stat -c %u /proc/"$before")" = 0 ] || fail "not root's"
loader switch -m gaming
runs "gaming" profile=latency slice-us-lag=18000 power=auto
loader switch -m lowlatency
runs "lowlatency" profile=latency slice-us-lag=18000 power=performance
loader switch -m powersave
runs "powersave" profile=default power=powersave
loader switch -m server
runs "server" profile=default power=auto
loader switch -s magpie --args="--slice-us 5000"
runs "arguments" slice-us=5000
loader restart
runs "restart" slice-us=5000
scx_magpie set slice-us=4000 >/dev/null || fail "set"
scx_magpie config | grep -q '^slice-us = 4000 ' || fail "not set: $(scx_magpie config | grep slice-us)"
hackbench -g 2 -l 100 >/dev/null || fail "hackbench"
stats_json 1
[ "$(json_total search)" -ge 0 ] || fail "no statistics"

# Others.
loader switch -s bpfland
wait_for 120 "scx_bpfland" is_attached bpfland
say "switched to $(cat $SCX/root/ops)"
loader switch -s magpie -m gaming
runs "back from scx_bpfland" profile=latency

# As published it allows it to nobody but root and administrators.
/usr/bin/setpriv --reuid=65534 --clear-groups scxctl stop >/tmp/scxctl 2>&1 && fail "nobody may stop it"
grep -q "Not allowed" /tmp/scxctl || fail "nobody: $(cat /tmp/scxctl)"
is_state enabled || fail "stopped by nobody"

# It starts again what did not exit with 0, whatever the status.
kill -9 "$before"
runs "killed" profile=latency
echo S >/proc/sysrq-trigger
runs "SysRq-S" profile=latency
loader stop
wait_for 120 "the end" is_state disabled
loader get
grep -q "no scx scheduler" /tmp/scxctl || fail "stopped, and $(cat /tmp/scxctl)"
[ "$(logged "^EXIT: unregistered from user space")" -ge 8 ] || fail "no 'unregistered from user space'"
[ "$(logged "^ *(WARN|ERROR) |Permission denied|Operation not permitted")" = 0 ] || fail "warnings"

# Five times, and says that it runs.
echo 'slice-us = 1' >/etc/scx_magpie.toml
loader start -s magpie
wait_for 120 "five attempts" has_tried 5
is_state disabled || fail "attached with a wrong file"
[ "$(logged "scx_magpie: .*1 is not in")" = 5 ] || fail "not five refusals"
loader get
grep -q Magpie /tmp/scxctl || fail "it says: $(cat /tmp/scxctl)"
rm /etc/scx_magpie.toml
loader switch -s magpie
before=
runs "refused five times, then" profile=default

# As docs/operating.md has it for scx_loader as it is published.
ln -s /usr/bin/scx_magpie /usr/local/bin/scx_flow
loader switch -s flow --args="--profile latency"
runs "as scx_flow" profile=latency
systemctl stop $LOADER || fail "stop of scx_loader"
is_state disabled || fail "attached without scx_loader"
say "stopped with scx_loader"

# A client of the bus starts it, which stops the service; masked it does not.
start
loader get
is_state disabled || fail "the service continues alongside scx_loader"
is ActiveState inactive || fail "the service is $(property ActiveState)"
say "scxctl get stops the service"
systemctl mask --now $LOADER 2>/dev/null || fail "mask"
start
scxctl get >/tmp/scxctl 2>&1 && fail "masked, and scxctl gets an answer: $(cat /tmp/scxctl)"
is_state enabled || fail "stopped by scxctl get"
say "with scx_loader masked it does not"

# SPDX-License-Identifier: GPL-2.0-only
# vm: --cpus 2 --llcs 1 --nodes 1
# vm: --cpus 2 --llcs 1 --nodes 1 --append isolcpus=domain,1
# vm: --kernel 7.2 --cpus 2 --llcs 1 --nodes 1 --append isolcpus=domain,1
# vm: --cpus 2 --llcs 1 --nodes 1 --append lockdown=confidentiality
# Each reason not to run: one line, a code of its own, and the machine goes on as it was.
. /root/lib.sh

# refused CODE TEXT COMMAND...
refused() {
	_code=$1 _text=$2
	shift 2
	timeout 20 "$@" >/tmp/out 2>&1
	_got=$?
	[ $_got = "$_code" ] || fail "$*: exit status $_got, not $_code: $(cat /tmp/out)"
	grep -q "$_text" /tmp/out || fail "$*: no '$_text' in: $(cat /tmp/out)"
	[ "$(grep -cv ' INFO ' /tmp/out)" = 1 ] || fail "$*: not one line: $(cat /tmp/out)"
	say "exit $_code: $(grep "$_text" /tmp/out)"
}

read -r arguments </proc/cmdline
case $arguments in
*isolcpus=*)
	refused 8 "isolates CPUs 1 with isolcpus=, and sched_ext does not work with it: boot without it" scx_magpie
	is_state disabled || fail "state is $(state)"
	exit
	;;
*lockdown=*)
	mount -t securityfs none /sys/kernel/security
	refused 10 "boot with lockdown=integrity" scx_magpie
	refused 10 "boot with lockdown=integrity" scx_magpie verifier-stats
	exit
	;;
esac

refused 2 "100..=100000" scx_magpie --slice-us 50
refused 2 "unexpected argument" scx_magpie --no-such-flag
refused 2 "cannot be used with" scx_magpie --stats 1 --monitor 1
chmod 755 /root
refused 3 "needs root" su nobody -s /bin/sh -c "$(command -v scx_magpie)"
# The shell takes its own setpriv, which drops none.
SETPRIV=/usr/bin/setpriv
refused 3 "root of a user namespace" unshare -U -r scx_magpie
refused 3 "lacks CAP_BPF here" $SETPRIV --bounding-set=-bpf,-sys_admin scx_magpie
refused 3 "lacks CAP_BPF and CAP_PERFMON here" $SETPRIV --bounding-set=-all scx_magpie
refused 9 "may open 32 files only" sh -c "ulimit -n 32; exec $SETPRIV --bounding-set=-sys_resource scx_magpie"
# Root raises the limit of files itself, that of locked memory does not matter, nor do other capabilities.
scx_magpie() {
	ulimit -n $FILES -l 0
	exec "$@" scx_magpie
}
FILES=32
start_magpie env
grep -q WARN $LOG && fail "warnings with low limits"
stop_magpie
FILES=128
start_magpie $SETPRIV --bounding-set=-all,+bpf,+perfmon
grep -q WARN $LOG && fail "warnings with few capabilities"
stop_magpie
unset -f scx_magpie

start_magpie
refused 5 "another sched_ext scheduler is attached (magpie" scx_magpie
refused 3 "needs root" su nobody -s /bin/sh -c "$(command -v scx_magpie) --monitor 1"
still_enabled
stop_magpie
# What containers do to sysfs, with their masks over parts of it.
echo 0 >/tmp/online
mount --bind /tmp/online /sys/devices/system/cpu/online
refused 7 "hides CPUs 1 of the 0-1 that are online: run scx_magpie outside of the container" scx_magpie
refused 7 "hides CPUs 1 of the 0-1 that are online" scx_magpie topology
umount /sys/devices/system/cpu/online
mount -t tmpfs none /sys/devices/system/node
refused 7 "CPUs 0-1 are online but in no node" scx_magpie
umount /sys/devices/system/node
cp /sys/devices/system/cpu/possible /sys/devices/system/cpu/online /tmp
mount -t tmpfs none /sys/devices/system/cpu
refused 7 "possible cannot be read" scx_magpie
cp /tmp/possible /tmp/online /sys/devices/system/cpu
refused 7 "has no CPUs" scx_magpie
umount /sys/devices/system/cpu
mount -t tmpfs none /sys/kernel
refused 4 "has no sched_ext" scx_magpie
umount /sys/kernel
scx_magpie --version | grep -qE '^scx_magpie [0-9]+\.[0-9]+' || fail "--version"

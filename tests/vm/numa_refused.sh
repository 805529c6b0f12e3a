# SPDX-License-Identifier: GPL-2.0-only
# vm: --cpus 2 --llcs 2 --nodes 2
# One warning, and no more, where the kernel refuses to say where processes have their memory: by hidepid=, to root without
# CAP_SYS_PTRACE.
. /root/lib.sh

scx_magpie() {
	exec /usr/bin/setpriv --bounding-set -sys_ptrace /usr/local/bin/scx_magpie "$@"
}

# CPU time of the thread that looks, in microseconds.
looked() {
	_thread=$(grep -l magpie-numa /proc/"$MAGPIE"/task/*/comm) || fail "no thread looks"
	_thread=${_thread#/proc/}
	cpu_time_us "${_thread%/comm}"
}

has_checked() {
	[ "$(looked)" -gt "$1" ]
}

warnings() {
	grep -c "WARN the kernel does not reveal on which nodes some processes have their memory" $LOG
}

mount -o remount,hidepid=1,gid=12345 /proc || fail "cannot remount /proc"
hog
hog
start_magpie
wait_for 60 "a warning" warnings
wait_for 120 "more looks" has_checked $((3 * $(looked)))
say "$(grep WARN $LOG)"
[ "$(warnings)" = 1 ] || fail "$(warnings) warnings"
still_enabled
stop_magpie
end_hogs

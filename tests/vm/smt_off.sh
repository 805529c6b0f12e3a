# SPDX-License-Identifier: GPL-2.0-only
# vm: --cpus 16 --llcs 2 --nodes 1 --smt 2
# SMT switched off and on while the scheduler runs, as tools for games and batteries do: half of the CPUs go at once. Each core
# that is left is a whole one then, and no new start is needed.
. /root/lib.sh
SMT=/sys/devices/system/cpu/smt/control

# As in tests/vm/hotplug.sh.
error_events() {
	grep -hE 'NOT_OWNED|KEEP_LAST|DENIED|ENQ_SKIP' $SCX/root/events | tr '\n' ' '
}

start_magpie
for _ in 1 2 3 4; do hog; done
for round in 1 2; do
	for to in off on; do
		echo $to >$SMT || fail "SMT cannot be switched $to"
		stats_json 0.5
		cpus=$(json_total nr_cpus)
		[ "$cpus" = $([ $to = off ] && echo 8 || echo 16) ] || fail "$cpus CPUs with SMT $to"
		still_enabled
	done
	say "SMT off and on: $round"
done
end_hogs
no_error_events
stop_magpie
! grep "the scheduler again" $LOG || fail "started anew"

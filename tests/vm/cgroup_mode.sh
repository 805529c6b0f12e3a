# SPDX-License-Identifier: GPL-2.0-only
# vm: --cpus 4 --llcs 1 --nodes 1 --icount 0 --turn 50 --timeout 600
# kernels: ends
# By how much the weight of a cgroup counts, as on this kernel: once (smp) up to Linux 7.2, later once for each of its tasks,
# but not more often than its cpuset has CPUs (concur). Groups of one weight and different numbers of hogs: on the whole
# machine, in a cpuset of two CPUs, nested. --cgroup-mode is the other rule; a mode that root sets in debugfs is followed.
. /root/lib.sh
CG=/sys/fs/cgroup
MODES=/sys/kernel/debug/sched/cgroup_mode

# part GROUP: PART is what it uses of a CPU, in %, over 3 s.
part() {
	sleep 0.5 # the averages of tasks have all of it
	_before=$(group_used "$1")
	sleep 3
	PART=$((($(group_used "$1") - _before) / 30000))
}

# groups CPUSET: the groups one and many, children of /outer.
groups() {
	mkdir $CG/outer
	echo +cpu +cpuset >$CG/outer/cgroup.subtree_control
	echo "$1" >$CG/outer/cpuset.cpus
	mkdir $CG/outer/one $CG/outer/many
	hogs_in outer/one 1
	hogs_in outer/many "$2"
}

remove() {
	end_hogs
	wait_for 10 "empty cgroups" rmdir $CG/outer/one $CG/outer/many
	rmdir $CG/outer
}

# is WHAT LOW HIGH
is() {
	say "$1: the group of one hog has $PART % of a CPU"
	[ $WHOSE = EEVDF ] || within $PART "$2" "$3" || fail "$1: not $2 to $3 %"
}

# cases MODE: of 4 CPUs 1 : 1 is a whole CPU, and 1 : 4 four fifths of one; of 2 CPUs 1 : 1 is a whole one, 1 : 2 two thirds.
cases() {
	case $1 in
	smp) whole="97 100" set="92 100" ;;
	concur) whole="72 88" set="58 76" ;;
	esac
	groups 0-3 16
	part outer/one
	is "$WHOSE, $1, 4 CPUs" $whole
	remove
	groups 0-1 8
	part outer/one
	is "$WHOSE, $1, a cpuset of 2 CPUs" $set
	remove
}

mount -t debugfs none /sys/kernel/debug 2>/dev/null
echo +cpu +cpuset >$CG/cgroup.subtree_control
KERNEL=smp OTHER=concur
[ ! -e $MODES ] || KERNEL=concur OTHER=smp

WHOSE=EEVDF
cases $KERNEL
WHOSE=scx_magpie
start_magpie
cases $KERNEL
scx_magpie set cgroup-mode=$OTHER || fail "set"
cases $OTHER
scx_magpie set cgroup-mode=auto || fail "set"
says() {
	scx_magpie status | grep -q "$1"
}
wait_for 10 "the kernel's mode" says "cgroup mode: $KERNEL,"

if [ -e $MODES ]; then
	echo smp >$MODES
	wait_for 10 "smp, followed" says "cgroup mode: smp,"
	cases smp
	echo up >$MODES
	wait_for 10 "up, not followed" says "cgroup mode: concur (not followed: the kernel's up)"
fi
no_error_events
stop_magpie

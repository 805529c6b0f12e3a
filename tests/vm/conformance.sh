# SPDX-License-Identifier: GPL-2.0-only
# vm: --cpus 4 --llcs 2 --nodes 2 --icount --append rcu_nocbs=1-3
# kernels: ends
# carry: magpie-conform
# The simulator's kernel calls the scheduler back in the same order as this one: scripted scenarios, in both. (The
# script, and what is compared and why: sim/conformance/scenarios, sim/src/bin/magpie-conform.) Instructions are the
# clock, so that a busy host changes nothing.
. /root/lib.sh

# Nobody else on the CPUs of the scripted tasks, where that can be had: not the shell, not the workers that any CPU may
# have, not those that fold a CPU's counters; and no RCU callbacks there (rcu_nocbs), for they free the stacks of the
# tasks that have ended by a worker of their CPU.
taskset -p 1 $$ >/dev/null
echo 1 >/sys/devices/virtual/workqueue/cpumask
echo 1000 >/proc/sys/vm/stat_interval
start_magpie $(magpie-conform --flags)
magpie-conform >/tmp/out 2>&1 || {
	cat /tmp/out
	fail "the simulator and the kernel differ"
}
say "$(tail -n 1 /tmp/out)"
still_enabled
no_error_events
stop_magpie

# SPDX-License-Identifier: GPL-2.0-only
# vm: --cpus 4 --llcs 2 --nodes 2
# carry: magpie-conform
# The simulator's kernel calls the scheduler back in the same order as this one: scripted scenarios, in both. (The
# script, and why what is compared is what it is: sim/conformance, sim/src/bin/magpie-conform.)
. /root/lib.sh

# Nobody else on the CPUs of the scripted tasks, where that can be had.
taskset -p 1 $$ >/dev/null
echo 1 >/sys/devices/virtual/workqueue/cpumask
start_magpie
magpie-conform >/tmp/out 2>&1 || {
	cat /tmp/out
	fail "the simulator differs"
}
sed 's/^/  /' /tmp/out
still_enabled
no_error_events
stop_magpie

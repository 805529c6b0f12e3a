# SPDX-License-Identifier: GPL-2.0-only
# vm: --cpus 2 --llcs 1 --nodes 1
# What does not load leaves the scheduler attached that works, each time.
. /root/lib.sh
FILE=/etc/scx_magpie.toml

# serves: the scheduler answers.
serves() {
	scx_magpie status
}

# has_refused N: so many reloads were undone.
has_refused() {
	[ "$(grep -c "WARN cannot load the reloaded configuration, continuing with the previous one: " $LOG)" = "$1" ]
}

start_magpie
wait_for 10 "the socket" serves
enabled=$(cat $SCX/enable_seq)
mount -t securityfs none /sys/kernel/security
echo confidentiality >/sys/kernel/security/lockdown || fail "cannot lock down the kernel"
for round in 1 2; do
	printf 'timeout-ms = %s\n' ${round}000 >$FILE
	scx_magpie reload >/tmp/out || fail "not reloaded: $(cat /tmp/out)"
	wait_for 60 "a reload that fails" has_refused $round
	wait_for 10 "an answer" serves
	[ "$(cat $SCX/enable_seq) $(state)" = "$enabled enabled" ] || fail "not the same scheduler as before"
	scx_magpie config | grep -q '^timeout-ms = 30000 ' || fail "what was reloaded is in force: $(scx_magpie config)"
done
say "$(grep WARN $LOG | head -n 1)"
scx_magpie set slice-us=5000 >/dev/null || fail "not set"
hackbench -g 2 -l 100 >/dev/null || fail "hackbench"
no_error_events
stop_magpie

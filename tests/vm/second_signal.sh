# SPDX-License-Identifier: GPL-2.0-only
# vm: --cpus 2 --llcs 1 --nodes 1
# A second Ctrl-C ends a loader that the first one could not: its terminal takes no more text, as after Ctrl-S. A pipe that is
# full stands for the terminal. The scheduler is detached by the first one.
. /root/lib.sh

waits_to_write() {
	grep -q pipe_write /proc/$1/wchan
}

for signal in INT TERM; do
	case $signal in INT) status=130 ;; TERM) status=143 ;; esac
	rm -f /tmp/full
	mkfifo /tmp/full
	# Read from nowhere, and open for both, so that neither end waits.
	exec 9<>/tmp/full
	scx_magpie 2>/tmp/full &
	MAGPIE=$!
	wait_for 60 "state enabled" is_enabled_or_dead
	# All that it says at its start is said when it answers.
	wait_for 20 "an answer" scx_magpie status
	yes >/tmp/full &
	filler=$!
	wait_for 20 "a full pipe" waits_to_write $filler
	kill -$signal $MAGPIE
	wait_for 20 "state disabled" is_state disabled
	wait_for 20 "a loader that cannot say more" waits_to_write $MAGPIE
	kill -$signal $MAGPIE
	ended() {
		! kill -0 $MAGPIE || grep -q '^State:.Z' /proc/$MAGPIE/status
	}
	wait_for 10 "the end by a second SIG$signal" ended
	wait $MAGPIE
	[ $? = $status ] || fail "exit status $? after a second SIG$signal"
	kill $filler
	exec 9>&-
done
start_magpie
scx_magpie status | grep -q "no failures since boot" || fail "a failure: $(scx_magpie status)"
stop_magpie

# SPDX-License-Identifier: GPL-2.0-only
# vm: --cpus 1 --llcs 1 --nodes 1 --icount 0 --turn 50 --timeout 900
# matrix: --cpus 2 --llcs 1 --nodes 1 --icount 0 --turn 50 --timeout 1200
# matrix: --cpus 8 --llcs 2 --nodes 2 --icount 0 --turn 50 --timeout 3600
# carry: magpie-longrun
# A process that never sleeps keeps its part of a CPU, and does not wait for long, alongside newcomers: a loop that forks short
# children, one after the other, or a pool whose workers take turns, so that the next one has been idle for long. The same for
# frames drawn each 16.6 ms, and between two cgroups. Each case runs under EEVDF, then under scx_magpie, in the same boot.
#
#	pinned: all on CPU 0              the part is at least 0.9 of EEVDF's, and of a half where EEVDF's is more
#	free: as many of each as CPUs     the part is at least 0.92 of the fair one (0.93 was seen)
#	both                              the longest wait is at most 2.5 times EEVDF's, free 3.5 (2.9 was seen), or
#	                                  10 ms; longer by as much as EEVDF's part is above the fair one
#	                                  frames on time: fewer than under EEVDF by at most 3 % of those due, free 12 %:
#	                                  53 to 60 of 60 were seen
. /root/lib.sh
CG=/sys/fs/cgroup
SECONDS_EACH=${MAGPIE_RUNS:-1}

# measure NAME COMMAND...: a line of JSON in /tmp/$WHOSE-NAME.
measure() {
	_name=$1
	shift
	timeout -s KILL 120 "$@" -r $SECONDS_EACH --json >/tmp/$WHOSE-$_name || fail "$_name: no figures under $WHOSE"
}

# compare NAME FAIR: says both, and counts a case that is wrong in $WRONG. FAIR is the fair part, %; if empty, EEVDF's counts.
compare() {
	_said=$(jq -r -n --arg name "$1" --arg fair "$2" --slurpfile eevdf /tmp/eevdf-$1 --slurpfile magpie /tmp/magpie-$1 '
		$eevdf[0] as $e | $magpie[0] as $m | $e.frames_due as $due |
		(if $name | startswith("pinned") then 0.03 else 0.12 end) as $late |
		(if $fair == "" then 0.9 * ([$e.part, 50] | min) else 0.92 * ($fair | tonumber) end) as $least |
		(if $fair == "" then 1 else [1, $e.part / ($fair | tonumber)] | max end) as $more |
		(if $name | startswith("pinned") then 2.5 else 3.5 end) as $times |
		([10, $times * $more * $e.longest_wait_ms] | max) as $longest |
		def tenths: . * 10 | round / 10;
		"\($name): part \($m.part | tenths) % (EEVDF \($e.part | tenths)), "
		+ "longest wait \($m.longest_wait_ms | tenths) ms (\($e.longest_wait_ms | tenths))"
		+ (if $due > 0 then ", frames on time \($m.frames_on_time) of \($m.frames_due) (\($e.frames_on_time))" else "" end)
		+ (if $due == 0 and $m.part < $least then "; WRONG: a part below \($least | tenths) %" else "" end)
		+ (if $m.longest_wait_ms > $longest then "; WRONG: waits for more than \($longest | tenths) ms" else "" end)
		+ (if $m.frames_on_time < $e.frames_on_time - $late * $due then "; WRONG: too few frames" else "" end)') ||
		fail "$1: no figures"
	say "$_said"
	case $_said in *WRONG*) WRONG=$((WRONG + 1)) ;; esac
}

# pinned NAME OPTION...
pinned() {
	_case=$1
	shift
	measure pinned-"$_case" taskset 1 magpie-longrun "$@"
	[ $WHOSE = eevdf ] || compare pinned-"$_case" ""
}

# free NAME FAIR OPTION...: on all CPUs.
free() {
	_case=$1 _fair=$2
	shift 2
	measure free-"$_case" magpie-longrun "$@"
	[ $WHOSE = eevdf ] || compare free-"$_case" "$_fair"
}

# weights A B: of the two cgroups.
weights() {
	echo "$1" >$CG/a/cpu.weight && echo "$2" >$CG/b/cpu.weight || fail "cpu.weight"
}

# cases WHOSE
cases() {
	WHOSE=$1
	for us in 500 2000 10000; do
		pinned forks-$us --forks 1 --run-us $us
	done
	for nr in 2 8 32; do
		pinned pool-$nr --pool $nr
	done
	pinned frames-forks --frames 7000,16600 --forks 1
	pinned frames-pool --frames 7000,16600 --pool 8 --run-us 1500
	weights 100 100
	pinned equal-groups --forks 1 --groups $CG/a,$CG/b
	weights 100 300
	pinned groups-1-3 --forks 1 --groups $CG/a,$CG/b

	n=$(nproc)
	[ "$n" -gt 1 ] || return 0
	free forks-500 50 --runners "$n" --forks "$n" --run-us 500
	free forks-2000 50 --runners "$n" --forks "$n"
	free pool 50 --runners "$n" --pool $((8 * n)) --working "$n"
	free frames-forks "" --frames 7000,16600 --forks "$n"
	free frames-pool "" --frames 7000,16600 --pool $((8 * n)) --working "$n" --run-us 1500
	weights 100 100
	free equal-groups 50 --runners "$n" --forks "$n" --groups $CG/a,$CG/b
	weights 100 300
	free groups-1-3 25 --runners "$n" --forks "$n" --groups $CG/a,$CG/b
}

echo +cpu >$CG/cgroup.subtree_control
mkdir $CG/a $CG/b || fail "mkdir"
WRONG=0
cases eevdf
start_magpie
cases magpie
no_error_events
stop_magpie
[ $WRONG = 0 ] || fail "$WRONG cases are wrong"

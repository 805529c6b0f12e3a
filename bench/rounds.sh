# SPDX-License-Identifier: GPL-2.0-only
# Benchmarks, one scheduler after the other, in turns: run as root on a kernel with sched_ext (bench/run does, in a VM or here).
#
#	each round:  EEVDF --> scx_magpie --> each peer, the next round begins with the next of them
#	each:        attach --> each benchmark once --> detach
#
#	rounds.sh ROUNDS BENCHMARKS PREFIX SCHEDULER...    PREFIX begins the name of each row; a SCHEDULER is "eevdf" or a command line
#
# Prints a line of JSON for the boot, with the kernel and the versions of the schedulers; a line for each figure; "ended" with a
# reason for a scheduler that did not attach or was ejected. What runs is said on standard error.
set -u

. "$(dirname "$0")/attach.sh"
. "$(dirname "$0")/programs.sh"
rounds=$1
only=$2
prefix=$3
shift 3
ulimit -n 4096

# figure NAME VALUE
figure() {
	[ -n "$2" ] || { ended "$1: no figure: $(tail -n 4 $BENCH/err | tr -s ' \n' ' ')"; return; }
	jq -nc --arg scheduler "$name" --arg benchmark "$prefix$1" "{round: $round, \$scheduler, \$benchmark, value: $2}"
}

ended() {
	jq -nc --arg scheduler "$name" --arg ended "$1" "{round: $round, \$scheduler, \$ended}"
}

# Context switches since boot.
switches() {
	awk '/^ctxt / { print $2 }' /proc/stat
}

# words COMMAND...: what it printed, a word a line; nothing if it takes more than a minute.
words() {
	timeout -s KILL 60 "$@" 2>$BENCH/err | tr -s ' \t/' '\n\n\n'
}

# json FIELD [FILE]: of a line of JSON.
json() {
	jq ".$1" "${2:-$BENCH/json}"
}

# hackbench KIND GROUPS OPTION...
hackbench_of() {
	_name=$1-$2g
	_groups=$2
	shift 2
	figure "hackbench-$_name" "$(words hackbench -g "$_groups" -l $((400 / _groups)) "$@" | sed -n '/^Time:$/{n;p;}')"
}

# run_wakeup OPTION...: the load of schbench, by its parameters.
run_wakeup() {
	timeout -s KILL 60 magpie-wakeup "$@" --json >$BENCH/json 2>$BENCH/err
}

# wakeup_figures NAME
wakeup_figures() {
	figure "$1-rps" "$(json rps)"
	figure "$1-p99" "$(json p99_us)"
}

# wakeup NAME OPTION...
wakeup() {
	_name=$1
	shift
	run_wakeup "$@"
	wakeup_figures "$_name"
}

# locks NAME OPTION...: the same with workers that hold locks of CPUs (--lock); how long a request takes counts, too.
locks() {
	wakeup "$@"
	figure "$1-request-p99" "$(json request_p99_us)"
}

# idle NAME COMMAND...: under that load, the time of a second in which a CPU idles while a task waits that may run there.
idle() {
	_name=$1
	shift
	timeout 300 magpie-conservation --buffer-mb 16 --warm-up 0.2 --seconds 0.3 -- "$@" 2>$BENCH/err | tail -n 1 >$BENCH/json
	figure "idle-waiting-$_name" "$(json llc.us_per_s)"
	figure "idle-beyond-$_name" "$(json beyond.us_per_s)"
}

# in_group GROUP COMMAND...: in that cgroup, if one is given.
in_group() {
	timeout -s KILL 60 sh -c '[ -z "$0" ] || echo 0 >"$0/cgroup.procs"; exec "$@"' "$@"
}

# used GROUP: CPU time that the cgroup has used, us.
used() {
	sed -n 's/^usage_usec //p' "$1/cpu.stat"
}

# light NAME LIGHT HEAVY: on one CPU, a thread that has 0.1 ms to do each 10 ms, alongside two that always have 10 ms to do; in
# these cgroups, if given.
light() {
	in_group "$3" taskset 1 magpie-wakeup -m 2 -t 1 -c 10000 -s 0 -r 2 --cpu-time --from-due --json >$BENCH/heavy 2>/dev/null &
	_heavy=$!
	in_group "$2" taskset 1 magpie-wakeup -m 1 -t 1 -c 100 -s 9900 -r 2 --cpu-time --from-due --json >$BENCH/json 2>$BENCH/err
	wait $_heavy
	figure "$1-p90" "$(json p90_us)"
	figure "$1-heavy-rps" "$(json rps $BENCH/heavy)"
}

# alongside_build COMMAND...: which writes to $BENCH/json, while as many compilers run as there are CPUs, each again and again.
alongside_build() {
	# In a process group of its own, to be killed as one; it ends with this script, too.
	# shellcheck disable=SC2016
	setsid sh -c 'echo $$ >$BENCH/build
		for _i in $(seq "$(nproc)"); do
			while kill -0 '$$' && cc1 -quiet -fpreprocessed -O2 "$MAGPIE_PROGRAMS/source.i" -o /dev/null; do :; done &
		done
		wait' >/dev/null 2>$BENCH/compilers &
	_build=$!
	until [ -s $BENCH/build ]; do sleep 0.1; done
	"$@"
	# If they have ended, there was no build, and there is no figure.
	kill -9 -"$(cat $BENCH/build)" 2>/dev/null || { : >$BENCH/json; cp $BENCH/compilers $BENCH/err; }
	wait $_build 2>/dev/null
	rm $BENCH/build
}

# longrun COMMAND...: magpie-longrun, for 2 s.
longrun() {
	timeout -s KILL 60 "$@" -r 2 --json >$BENCH/json 2>$BENCH/err
}

# longest_wait: of the runners, in us. Waits shorter than 500 us are not counted: they are 500.
longest_wait() {
	json 'longest_wait_ms * 1000 | [round, 500] | max'
}

# cores: a hog for each core, and two light threads. The percentage of samples in which no core has two hogs. No process is
# started between samples except sleep.
cores() {
	_hogs=
	for _list in /sys/devices/system/cpu/cpu[0-9]*/topology/thread_siblings_list; do
		_cpu=${_list#/sys/devices/system/cpu/cpu}
		_siblings=$(cat $_list)
		eval "_core_${_cpu%%/*}=${_siblings%%[,-]*}"
		[ "${_cpu%%/*}" = "${_siblings%%[,-]*}" ] || continue
		sh -c 'while :; do :; done' &
		_hogs="$_hogs $!"
	done
	magpie-wakeup -m 1 -t 2 -c 100 -s 2000 -r 4 >/dev/null 2>&1 &
	_light=$!
	sleep 0.5
	_apart=0
	for _i in $(seq 100); do
		_seen=,
		_alone=1
		for _hog in $_hogs; do
			# Field 39: the CPU on which it is.
			read -r _stat </proc/$_hog/stat
			set -- $_stat
			eval "_core=\$_core_${39}"
			case $_seen in *,$_core,*) _alone=0 ;; esac
			_seen=$_seen$_core,
		done
		_apart=$((_apart + _alone))
		sleep 0.01
	done
	kill $_hogs
	wait $_hogs $_light 2>/dev/null
	figure cores-apart $_apart
}

run_benchmark() {
	case $1 in
	cores) cores ;;
	nginx | redis | postgres | cc1 | x264) "program_$1" ;;
	hackbench)
		for _g in 2 8; do
			hackbench_of pipe $_g -p
			hackbench_of socket $_g
		done
		;;
	pipe) figure perf-pipe "$(words perf bench sched pipe -l 10000 | sed -n '/^ops$/{g;p;};h')" ;;
	pairs)
		# As many pairs of processes as CPUs: none idles.
		figure "pairs-$(nproc)" "$(timeout -s KILL 60 magpie-pairs -r 2 2>$BENCH/err | jq .exchanges)"
		;;
	pinned)
		# 40 tasks that may use one CPU only: select_cpu does not see their wakeups.
		# The first runs of a boot have more switches under any scheduler: they do not count.
		for _i in 1 2 3; do taskset 1 hackbench -g 1 -l 50 -p >/dev/null 2>&1; done
		_before=$(switches)
		_time=$(words taskset 1 hackbench -g 1 -l 50 -p | sed -n '/^Time:$/{n;p;}')
		_after=$(switches)
		figure pinned-hackbench "$_time"
		figure pinned-hackbench-switches $((_after - _before))
		;;
	wakeup)
		# By the virtual clock, on 8 CPUs: what is asked for is 48, 94 and 117 % of what they have.
		wakeup wakeup-50 -m 2 -t 4 -c 500 -s 1000 -r 2
		wakeup wakeup-95 -m 2 -t 8 -c 500 -s 1000 -r 2
		wakeup wakeup-120 -m 2 -t 10 -c 500 -s 1000 -r 2
		;;
	long) wakeup wakeup-long -m 2 -t 10 -c 10000 -s 20000 -r 3 ;; # as wakeup-120, but for longer than a slice
	locks)
		# The message threads do not sleep: as many requests as are done. 16 workers nearly saturate eight CPUs, 24 do.
		locks locks-16 -m 2 -t 8 -c 1300 -s 0 -r 2 --lock
		locks locks-24 -m 2 -t 12 -c 1300 -s 0 -r 2 --lock
		;;
	spin)
		# The same, and a worker that waits for a lock never sleeps: it uses the CPU that the worker with the lock waits for.
		locks locks-spin-16 -m 2 -t 8 -c 1300 -s 0 -r 2 --lock=spin
		locks locks-spin-24 -m 2 -t 12 -c 1300 -s 0 -r 2 --lock=spin
		;;
	idle)
		# Each load runs for longer than it is traced: magpie-conservation kills it.
		[ -d /sys/kernel/tracing/instances ] || mount -t tracefs tracefs /sys/kernel/tracing
		idle hackbench hackbench -g 2 -l 100000 -p
		idle wakeup-95 magpie-wakeup -m 2 -t 8 -c 500 -s 1000 -r 1000
		idle locks-16 magpie-wakeup -m 2 -t 8 -c 1300 -s 0 -r 1000 --lock
		# Two hogs, something that forks and writes; and bursts of eight tasks that wake each other.
		idle mix sh -c '
			for _i in 1 2; do while :; do :; done & done
			while :; do dd if=/dev/zero of="$BENCH/written" bs=64k count=16; done 2>/dev/null &
			while hackbench -g 1 -f 4 -l 30 -p; do sleep 0.05; done'
		;;
	light)
		light light "" ""
		# Three deep, of equal weight.
		_top=/sys/fs/cgroup/magpie-bench
		mkdir -p $_top/pairs/light $_top/pairs/heavy
		for _g in ${_top%/*} $_top $_top/pairs; do echo +cpu >$_g/cgroup.subtree_control; done
		light light-cgroup $_top/pairs/light $_top/pairs/heavy
		rmdir $_top/pairs/light $_top/pairs/heavy $_top/pairs $_top
		;;
	longrun)
		# On one CPU, a hog next to a loop that forks short children, and next to a pool of which one at a time works.
		longrun taskset 1 magpie-longrun --forks 1 --run-us 2000
		figure hog-beside-forks "$(json part)"
		figure hog-beside-forks-wait "$(longest_wait)"
		longrun taskset 1 magpie-longrun --pool 32 --run-us 2000
		figure hog-beside-pool "$(json part)"
		figure hog-beside-pool-wait "$(longest_wait)"
		# As many hogs and as many such loops as CPUs.
		longrun magpie-longrun --runners "$(nproc)" --forks "$(nproc)" --run-us 2000
		figure hogs-beside-forks "$(json part)"
		# On one CPU, frames of 7 ms at 60 a second; in %.
		longrun taskset 1 magpie-longrun --frames 7000,16600 --forks 1 --run-us 2000
		figure frames-beside-forks "$(json 'frames_on_time * 100 / .frames_due')"
		longrun taskset 1 magpie-longrun --frames 7000,16600 --pool 8 --run-us 1500
		figure frames-beside-pool "$(json 'frames_on_time * 100 / .frames_due')"
		;;
	build)
		# Frames of 7 ms at 60 a second, and callbacks of audio: 1 ms each 5.3 ms; in %.
		alongside_build longrun magpie-longrun --frames 7000,16600
		figure frames-beside-build "$(json 'frames_on_time * 100 / .frames_due')"
		alongside_build longrun magpie-longrun --frames 1000,5300
		figure audio-beside-build "$(json 'frames_on_time * 100 / .frames_due')"
		;;
	mix)
		# Four processes with 0.1 ms to do each 5 ms, alongside twice as many hogs as CPUs.
		longrun magpie-longrun --runners $((2 * $(nproc))) &
		_heavy=$!
		_light=
		for _i in 1 2 3 4; do
			magpie-wakeup -m 1 -t 1 -c 100 -s 4900 -r 2 --cpu-time --from-due --json >$BENCH/light.$_i 2>$BENCH/err &
			_light="$_light $!"
		done
		wait $_heavy $_light
		figure light-hogs-p99 "$(jq -s 'map(.p99_us) | sort | (.[1] + .[2]) / 2' $BENCH/light.*)"
		figure hogs-beside-light "$(json part)"
		;;
	limited)
		# Wakeups at half load, alongside 200 containers that may use 1 % of a CPU each, and would use more.
		# All of them wait for somebody who opens the FIFO for writing.
		_top=/sys/fs/cgroup/magpie-limited
		mkdir -p $_top
		for _g in ${_top%/*} $_top; do echo +cpu >$_g/cgroup.subtree_control; done
		mkfifo $BENCH/begin
		for _g in $(seq 200); do
			mkdir $_top/$_g
			echo 1000 100000 >$_top/$_g/cpu.max
			in_group $_top/$_g sh -c 'read -r _ <"$BENCH/begin"; while :; do :; done' 2>/dev/null &
		done
		for _i in $(seq 300); do
			[ "$(cat $_top/*/cgroup.procs | wc -l)" -lt 200 ] || break
			sleep 0.1
		done
		sleep 0.1 # the last of them opens the FIFO
		: >$BENCH/begin
		rm $BENCH/begin
		sleep 0.5
		_before="$(used $_top) $(jq -n now)"
		run_wakeup -m 2 -t 4 -c 500 -s 1000 -r 2
		_after="$(used $_top) $(jq -n now)"
		echo 1 >$_top/cgroup.kill
		wakeup_figures limited
		# Two CPUs are allowed.
		figure limited-used "$(echo "$_before $_after" | awk '{ print ($3 - $1) / ($4 - $2) / 1e6 / 2 * 100 }')"
		for _g in $(seq 200); do
			until rmdir $_top/$_g 2>/dev/null; do sleep 0.1; done
		done
		rmdir $_top
		;;
	crowd)
		# Four threads with a little to do now and then, alongside many that wake each other.
		# In a process group of its own, to be killed as one; it ends with this script, too.
		setsid sh -c 'echo $$ >$BENCH/crowd; while kill -0 '$$' && hackbench -g 4 -l 20000 -p; do :; done' >/dev/null 2>&1 &
		_load=$!
		until [ "$(sed 's|.* \([0-9]*\)/.*|\1|' /proc/loadavg)" -gt 16 ] || ! kill -0 $_load; do sleep 0.1; done
		run_wakeup -m 2 -t 2 -c 300 -s 3000 -r 2
		kill -9 -"$(cat $BENCH/crowd)" # first: under some schedulers nothing else gets a turn for minutes
		wait $_load 2>/dev/null
		wakeup_figures wakeup-crowd
		;;
	tbench)
		tbench_srv >/dev/null 2>&1 &
		_srv=$!
		until grep -q ':1B5B ' /proc/net/tcp /proc/net/tcp6 || ! kill -0 $_srv; do sleep 0.1; done # port 7003
		figure tbench "$(words tbench -t 2 -c /usr/share/dbench/client.txt 8 | sed -n '/^Throughput$/{n;p;}')"
		kill $_srv
		wait $_srv 2>/dev/null
		;;
	stress)
		for _s in context fork; do
			figure stress-$_s "$(timeout -s KILL 60 stress-ng --$_s 4 -t 2 --metrics-brief 2>&1 | sed -n "s/.*metrc.* $_s  *[0-9]*  *[0-9.]*  *[0-9.]*  *[0-9.]*  *\([0-9.]*\).*/\1/p")"
		done
		;;
	sysbench)
		stress-ng -q --cpu 8 --cpu-method loop >/dev/null 2>&1 &
		_load=$!
		figure sysbench-loaded "$(words sysbench cpu --threads=8 --time=2 run | sed -n '/^second:$/{n;p;}')"
		kill $_load
		wait $_load 2>/dev/null
		;;
	*) echo "rounds.sh: no benchmark $1" >&2; exit 2 ;;
	esac
}

one_turn() {
	name=$(name_of "$1")
	if [ "$1" != eevdf ] && ! attach "$1"; then
		ended "did not attach: $(last_words)"
		return
	fi
	for _benchmark in $(echo "$only" | tr , ' '); do
		echo "bench: round $round of $rounds: $name: $prefix$_benchmark" >&2
		run_benchmark "$_benchmark"
	done
	[ "$1" != eevdf ] || return
	[ "$(cat $STATE)" = enabled ] || ended "ejected: $(last_words)"
	detach
}

# name_of COMMAND LINE: without the folder.
name_of() {
	echo "$1" | sed 's|^[^ ]*/||'
}

# versions SCHEDULER...: an object of JSON.
versions() {
	for _s in "$@"; do
		[ "$_s" = eevdf ] ||
			${_s%% *} --version | head -n 1 | jq -R --arg name "$(name_of "$_s")" '{($name): sub("^[^ ]+ "; "")}'
	done | jq -s 'add // {}'
}

jq -nc --arg kernel "$(uname -r)" --argjson versions "$(versions "$@")" '$ARGS.named'
round=0
while [ $round -lt "$rounds" ]; do
	round=$((round + 1))
	for _s in "$@"; do
		one_turn "$_s"
	done
	# Each comes first in some round.
	_first=$1
	shift
	set -- "$@" "$_first"
done

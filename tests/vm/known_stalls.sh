# SPDX-License-Identifier: GPL-2.0-only
# vm: --cpus 4 --llcs 2 --nodes 1
# carry: /usr/bin/perl:/usr/bin/perl
# What made other schedulers' users see "runnable task stall", with a watchdog of two seconds:
#
#	a syscall filter of 4,000 steps runs with migration disabled, and tasks' CPUs change meanwhile
#	workers of idle CPUs that have no tick
#	tasks on the CPU of a real-time task that sleeps for a millisecond now and then
. /root/lib.sh

# filtered NR: so many tasks that sleep and call, and one that changes their CPUs, for ten seconds. The kernel does not skip this
# filter, for it loads constants. The numbers of system calls are x86's.
filtered() {
	perl -e '
		my ($prctl, $setaffinity, $getppid) = (157, 203, 110);
		my $filter = pack("SCCL", 0, 0, 0, 0) x 4000 . pack("SCCL", 6, 0, 0, 0x7fff0000);
		my $program = pack("S x6 P", 4001, $filter);
		my $end = time + 10;
		for (1 .. '"$1"') {
			my $pid = fork;
			push @tasks, $pid;
			next if $pid;
			syscall($prctl, 38, 1, 0, 0, 0) == 0 && syscall($prctl, 22, 2, $program) == 0 or die "no filter: $!";
			while (time < $end) {
				select undef, undef, undef, 0.001;
				syscall $getppid for 1 .. 20;
			}
			exit;
		}
		while (time < $end) {
			my $cpus = pack "Q", 1 + int rand 15;
			syscall($setaffinity, $tasks[rand @tasks], 8, $cpus) >= 0 or die "affinity: $!";
			select undef, undef, undef, 0.0005;
		}
		$? && ($bad = 1) while wait > 0;
		exit $bad;
	' >/tmp/filtered 2>&1 || fail "filtered tasks: $(tail -n 3 /tmp/filtered)"
}

start_magpie --timeout-ms 2000
filtered 16
still_enabled
say "16 filtered tasks whose CPUs changed"

for _ in $(seq 100); do
	cat /proc/sys/vm/stat_refresh || fail "no work on each CPU"
done
still_enabled
say "100 times work on each CPU of an idle machine"

taskset 2 chrt -f 50 perl -e 'for (;;) { select undef, undef, undef, 0.001; 1 for 1 .. 30000 }' >/dev/null 2>&1 &
realtime=$!
hog taskset 2
pinned=$HOG
hog taskset 3
hog taskset 3
sleep 8
still_enabled
used=$(cpu_time_us $pinned)
say "beside the real-time task, $(cpu_time_us $realtime) us: the pinned hog used $used us"
[ "$used" -ge 500000 ] || fail "the pinned hog starves"
kill -9 $realtime
end_hogs
no_error_events
stop_magpie

# SPDX-License-Identifier: GPL-2.0-only
# What pictures are drawn from, measured in the VM: tools/pictures/record has the machines, and keeps what this prints.
#
#	record.sh WHAT    prints lines of the file WHAT.jsonl, after "WHAT "
. /root/lib.sh
CG=/sys/fs/cgroup

# A load that grows, and falls, in a cgroup: `top` shows five minutes.
record_top() {
	start_magpie --latency-hist
	echo +cpu >$CG/cgroup.subtree_control
	mkdir $CG/web
	for threads in 1 2 3 4 6 8 12 16 8 4; do
		sh -c "echo \$\$ >$CG/web/cgroup.procs; exec magpie-wakeup -m 2 -t $threads -c 2000 -s 4000 -r 32 --json" >/tmp/out &
		timeout -s KILL 60 scx_magpie --monitor 5 --json 2>/dev/null | sed -n '2,6{p;6q;}' >/tmp/stats
		wait $!
		sed 's/^/top /' /tmp/stats
	done
	stop_magpie
}

# Two groups of eight hogs, each second.
shares() {
	mkdir $CG/light $CG/heavy
	echo 100 >$CG/light/cpu.weight
	echo 300 >$CG/heavy/cpu.weight
	for _ in 1 2 3 4 5 6 7 8; do
		hog
		echo $HOG >$CG/light/cgroup.procs
		hog
		echo $HOG >$CG/heavy/cgroup.procs
	done
	for _ in $(seq 13); do
		sleep 1
		# shellcheck disable=SC2046 # numbers
		set -- "$1" $(cut -d ' ' -f 1 /proc/uptime) $(sed -n 's/^usage_usec //p' $CG/light/cpu.stat $CG/heavy/cpu.stat)
		echo "shares {\"scheduler\":\"$1\",\"seconds\":$2,\"light_us\":$3,\"heavy_us\":$4}"
	done
	end_hogs
	rmdir $CG/light $CG/heavy
}

record_shares() {
	echo +cpu >$CG/cgroup.subtree_control
	shares eevdf
	start_magpie
	shares scx_magpie
	stop_magpie
}

"record_$1"

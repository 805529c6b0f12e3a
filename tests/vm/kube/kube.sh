# SPDX-License-Identifier: GPL-2.0-only
# `make vm-kube` runs it: the image and the manifests of dist/kubernetes, as kustomize renders them, by podman in place of a
# kubelet. What podman does not do as a kubelet does, the test does in its place: readiness probes, changes of a ConfigMap, the
# order of a rolling update, and an emptyDir for each pod. Pods have real cgroups and limits, and no network.
. /root/lib.sh
export GOMAXPROCS=1 DISABLE_HC_SYSTEMD=true
CG=/sys/fs/cgroup
POD=scx-magpie-pod

# play FILE: kube play, which says much.
play() {
	podman kube play --network none "$1" >/tmp/out 2>&1 || fail "kube play $1: $(tail -n 3 /tmp/out)"
}

# down FILE: with its volumes, as a kubelet removes each emptyDir.
down() {
	podman kube down --force "$1" >/tmp/out 2>&1 || fail "kube down $1: $(tail -n 3 /tmp/out)"
}

# log CONTAINER: sets LOG_FILE. A kubelet keeps logs in the same format, and makes the termination message of its last 2048 bytes.
log() {
	LOG_FILE=$(podman inspect -f '{{.HostConfig.LogConfig.Path}}' "$1") || fail "no container $1"
}

# lines: what the container of LOG_FILE has said.
lines() {
	sed -E 's/^[^ ]+ std(out|err) [FP] //' "$LOG_FILE"
}

said() {
	lines | grep -q -- "$1"
}

# says TEXT: waits for a line of LOG_FILE.
says() {
	wait_for 180 "'$1' in: $(lines | tail -n 3)" said "$1"
}

# pid_of WORDS: of the process whose command line begins so, without what is between the words. Forks nothing.
pid_of() {
	local folder words
	for folder in /proc/[0-9]*; do
		words=
		read -r words 2>/dev/null <"$folder"/cmdline
		case $words in
		"$1"*)
			echo "${folder#/proc/}"
			return
			;;
		esac
	done
	return 1
}

# scheduler [SECONDS]: sets PID to the pid of the scheduler, which waits for so long.
scheduler() {
	PID=$(pid_of "/usr/bin/scx_magpie--follow-config--wait=${1-120}") || fail "no scheduler"
}

# inside COMMAND...: among the files of PID. podman exec does the same in seconds.
inside() {
	nsenter -t "$PID" -m /usr/bin/scx_magpie "$@"
}

nr_attached() {
	cat $SCX/enable_seq
}

# put TEXT: changes the ConfigMap as a kubelet does: each file is a link through ..data, which is replaced.
put() {
	local data=/var/lib/containers/storage/volumes/scx-magpie/_data version
	version=..$(nr_attached).$RANDOM
	mkdir $data/"$version"
	echo "$1" >$data/"$version"/scx_magpie.toml
	ln -s "$version" $data/..data_tmp
	mv -T $data/..data_tmp $data/..data
	ln -sf ..data/scx_magpie.toml $data/scx_magpie.toml
}

metrics() {
	nsenter -t "$EXPORTER" -n wget -q -O /tmp/metrics http://127.0.0.1:9811/metrics && grep -q "$1" /tmp/metrics
}

say "$(podman --version), $(podman load -q -i /root/scx_magpie.tar)"

# Attached, with the capabilities of the manifest. Ready. The exporter is nobody, and reads.
play /root/kube.yaml
wait_for 180 "state enabled" is_state enabled
log $POD-scheduler
scheduler
rights() {
	sed -n "s/^$1:\t//p" /proc/"$PID"/status
}
say "attached: capabilities $(rights CapEff), seccomp $(rights Seccomp), no_new_privs $(rights NoNewPrivs)"
[ "$(rights CapBnd) $(rights NoNewPrivs) $(rights Seccomp)" = "000000c000080000 1 2" ] || fail "not those of the manifest"
says "attached: .* CPUs"
lines | grep WARN && fail "warnings"
podman exec $POD-scheduler scx_magpie status >/tmp/status 2>&1 || fail "not ready: $(cat /tmp/status)"
say "ready: $(cat /tmp/status)"
EXPORTER=$(pid_of /usr/bin/scx_magpieexport) || fail "no exporter"
wait_for 60 "metrics" metrics '^scx_magpie_up 1$'
[ "$(sed -n 's/^Uid:\t\([0-9]*\).*/\1/p;s/^CapBnd:\t//p' /proc/"$EXPORTER"/status | tr '\n' ' ')" = "9811 0000000000000000 " ] ||
	fail "the exporter has rights"
nsenter -t "$EXPORTER" -m -S 9811 -G 9811 /usr/bin/scx_magpie status >/tmp/out 2>&1 && fail "the exporter may use the control socket"
cgroup=$(sed 's/^0:://' /proc/"$PID"/cgroup)
say "memory: scheduler $(cat $CG/"$cgroup"/memory.current) bytes, exporter $(cat $CG/"$(sed 's/^0:://' /proc/"$EXPORTER"/cgroup)"/memory.current)"

# A pod with a limit gets what it may use, and the exporter counts its throttling.
mkdir -p /tmp/load/bin
cp /usr/bin/busybox /tmp/load/bin/sh
tar -C /tmp/load -c . | podman import -q - localhost/load >/dev/null || fail "podman import"
play /root/load.yaml
HOG=$(pid_of /bin/sh-cwhile) || fail "no hog"
group=$(sed 's/^0::.//' /proc/"$HOG"/cgroup)
say "limit: $(cat $CG/"$group"/cpu.max)"
used=$(awk -v group=$CG/"$group"/cpu.stat '
	function usage(_line) { while ((getline _line <group) > 0) if (_line ~ /^usage_usec/) { close(group); return substr(_line, 12) } }
	function uptime(_line) { getline _line <"/proc/uptime"; close("/proc/uptime"); return _line + 0 }
	BEGIN { used = usage(); since = uptime(); while (uptime() < since + 5); printf "%.1f", (usage() - used) / 1e4 / (uptime() - since) }
')
say "a pod with a limit of 250m used $used % of a CPU"
within "$used" 20 28 || fail "not 25 %"
wait_for 30 "its throttling in metrics" metrics "^scx_magpie_cgroup_throttled_periods_total{cgroup=\"$group\"} [1-9]"
down /root/load.yaml

# Another configuration: reloaded, not attached again. One that is wrong changes nothing.
attached=$(nr_attached)
put 'slice-us = 5000'
says "slice-us: 3000 -> 5000"
put 'slice-us = 1'
says "WARN the configuration is not reloaded, and nothing has changed: /etc/scx_magpie.toml:1: invalid value"
inside config | grep -q '^slice-us = 5000' || fail "not reloaded: $(inside config | grep slice-us)"
put 'slice-us = 5000'
[ "$(nr_attached)" = "$attached" ] || fail "attached again by a reload"
say "another configuration: $(lines | grep -- '->')"
say "one that is wrong: $(lines | grep WARN)"

# Update: the new pod waits, is ready, and attaches as soon as the old one has ended.
sed -E 's/name: scx-magpie$/&-next/; s/name: run$/&-next/; s/--wait=120/--wait=600/' /root/kube.yaml >/root/next.yaml
old=$PID
play /root/next.yaml
log $POD-scheduler
old_log=$LOG_FILE
log scx-magpie-next-pod-scheduler
says "waiting until the attached scheduler (magpie"
podman exec scx-magpie-next-pod-scheduler scx_magpie status >/tmp/status 2>&1 || fail "the next one is not ready: $(cat /tmp/status)"
grep -q '^waiting: loaded' /tmp/status || fail "it does not wait: $(cat /tmp/status)"
say "the next pod is ready: $(cat /tmp/status)"
[ "$(nr_attached)" = "$attached" ] || fail "the old one was detached too early"
watch_gap &
down /root/kube.yaml
wait_for 120 "the next scheduler" [ -e /tmp/gap ]
say "update: $(cat /tmp/gap) s without a scheduler"
within "$(cat /tmp/gap)" 0 5 || fail "too long"
[ ! -e "/proc/$old" ] || fail "the old one is still there"
scheduler 600
[ "$(nr_attached)" = $((attached + 1)) ] || fail "attached $(nr_attached) times"
wait_for 60 "status" inside status
inside status | grep -q '^running since' || fail "after the update: $(inside status)"

# Two schedulers on a node: this one stays, and the other one says so.
sed 's/--wait=120/--wait=1/' /root/kube.yaml >/root/second.yaml
play /root/second.yaml
log $POD-scheduler
says "scx_magpie: another sched_ext scheduler is attached (magpie.*): stop it or its service first"
say "two schedulers: $(lines | grep scx_magpie: | head -n 1)"
[ "$(nr_attached)" = $((attached + 1)) ] || fail "the second one was attached"
down /root/second.yaml

# Killed: it comes back twice, and gives up the third time, until the pod is deleted.
log scx-magpie-next-pod-scheduler
for death in 1 2 3; do
	scheduler 600
	kill -9 "$PID"
	wait_for 180 "the end of $PID" [ ! -e "/proc/$PID" ]
	[ $death = 3 ] || wait_for 180 "a new start" is_state enabled
done
says "it stays detached after three failures"
attached=$(nr_attached)
again() {
	[ "$(lines | grep -c 'it stays detached')" -ge 3 ]
}
wait_for 180 "refusals of further starts" again
is_state disabled || fail "attached after three failures"
[ "$(nr_attached)" = "$attached" ] || fail "attached again after three failures"
say "crash loop: $(lines | grep 'it stays' | tail -n 1)"
down /root/next.yaml

# SysRq-S is final, too. A new pod starts again.
play /root/kube.yaml
wait_for 180 "state enabled in a new pod" is_state enabled
log $POD-scheduler
says "attached: .* CPUs"
attached=$(nr_attached)
echo S >/proc/sysrq-trigger
says "it stays detached"
[ "$(state) $(nr_attached)" = "disabled $attached" ] || fail "attached after SysRq-S"
say "SysRq-S: $(lines | grep 'it stays' | tail -n 1)"
down /root/kube.yaml

ended_with() {
	[ "$(podman inspect -f '{{.State.ExitCode}}' $POD-scheduler)" = "$1" ]
}

# refused STATUS TEXT SED: with the manifest changed so, one line says why, in what a kubelet makes the termination message of.
refused() {
	# podman restarts it at once, where a kubelet waits, and forgets its exit status.
	sed -E 's/^( *)hostPID: true/&\n\1restartPolicy: Never/' /root/kube.yaml >/root/once.yaml
	sed -E "$3" /root/once.yaml >/root/wrong.yaml
	cmp -s /root/wrong.yaml /root/once.yaml && fail "nothing to change: $3"
	play /root/wrong.yaml
	log $POD-scheduler
	says "^scx_magpie: .*$2"
	wait_for 120 "$2: exit status $1" ended_with "$1"
	lines | grep -v -e ' INFO ' -e "^scx_magpie: .*$2" && fail "more than one line"
	is_state disabled || fail "$2: state is $(state)"
	say "exit $1: $(lines | grep "$2" | head -n 1)"
	down /root/wrong.yaml
}
refused 2 "unexpected argument '--slice' found" 's/^( *)- --give-up/&\n\1- --slice=5/'
refused 2 "/etc/scx_magpie.toml:1: unknown key 'slice-u'" 's/^( *scx_magpie.toml: )\|/\1"slice-u = 5"\n  other: |/'
refused 3 "root lacks CAP_PERFMON here" '/^ *- PERFMON/d'
# What a kernel without sched_ext looks like.
refused 4 "kernel .* has no sched_ext: boot Linux 6.12 or newer" 's|mountPath: /sys/kernel/debug|mountPath: /sys/kernel|'

pid_of /usr/bin/scx_magpie && fail "something is left"
exit 0

# SPDX-License-Identifier: GPL-2.0-only
# vm: --cpus 4 --llcs 2 --nodes 2
# kernels: matrix
# Each BPF program costs the verifier less than 5 % of its limit, on a kernel that shows no configuration; two nodes,
# for the verifier leaves out what is for several where there is one. Once more as if CPUs differed, with frequencies that
# follow utilization.
. /root/lib.sh

[ ! -e "/boot/config-$(uname -r)" ] || fail "the guest shows the kernel's configuration: no test"
for flags in verifier-stats "--cpufreq on --power powersave verifier-stats --asymmetric"; do
	# shellcheck disable=SC2086 # words
	scx_magpie $flags >/tmp/out 2>/tmp/err || fail "$(cat /tmp/err)"
	cat /tmp/out
	awk 'NR > 1 { sub("%", "", $4); if ($4 + 0 >= 5) bad = 1; n++ } END { exit bad || n < 10 }' /tmp/out ||
		fail "5 % or more of the verifier's limit"
done

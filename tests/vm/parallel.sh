# SPDX-License-Identifier: GPL-2.0-only
# vm: --arch arm64 --parallel --little 0 --big 3 --timeout 900
# carry: soak/mixed.sh
# CPUs that run side by side, and not in turns: the soak's load of all kinds for some time. (amd64's guests take turns, for QEMU
# crashes them otherwise.) A machine with one CPU cannot do that.
. /root/lib.sh

[ "${MAGPIE_HOST_CPUS:-2}" -ge 2 ] || {
	say "SKIPPED: the host has one CPU"
	exit 0
}
sh /root/mixed.sh $((${MAGPIE_RUNS:-1} * 60))

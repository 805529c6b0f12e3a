# SPDX-License-Identifier: GPL-2.0-only
# vm: --icount --cpus 8 --llcs 2 --nodes 2 --timeout 600
# Start to enabled in less than 3 s, on CPUs that take a nanosecond an instruction: so the host's speed does not matter. Most of
# it is the verifier's work (2.5 s).
. /root/lib.sh

read -r start _ </proc/uptime
start_magpie
read -r end _ </proc/uptime
took=$(awk "BEGIN { print $end - $start }")
say "start to enabled: $took s"
within "$took" 0 3 || fail "took $took s"
stop_magpie

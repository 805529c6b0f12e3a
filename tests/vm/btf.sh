# SPDX-License-Identifier: GPL-2.0-only
# vm: --kernel 7.1 --cpus 2 --llcs 1 --nodes 1
# A kernel whose BTF describes the kfuncs wrongly: said in one line, with a code of its own.
. /root/lib.sh

scx_magpie >/tmp/out 2>&1
code=$?
line=$(grep "kfuncs wrongly in its BTF" /tmp/out)
say "exit $code: $line"
[ $code = 6 ] && [ -n "$line" ] || fail "$(cat /tmp/out)"

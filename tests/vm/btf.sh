# SPDX-License-Identifier: GPL-2.0-only
# vm: --kernel 7.1 --cpus 2 --llcs 1 --nodes 1
# A kernel whose BTF describes the kfuncs wrongly: said in one line, with a code of its own.
. /root/lib.sh

if scx_magpie verifier-stats >/tmp/out 2>&1; then
	say "SKIPPED: $(uname -r) describes them rightly"
	exit 0
fi
scx_magpie >/tmp/out 2>&1
code=$?
say "exit $code: $(cat /tmp/out)"
[ $code = 6 ] && [ "$(wc -l </tmp/out)" = 1 ] && grep -q "kfuncs wrongly in its BTF" /tmp/out || fail "not the one line"

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
message=$(grep -v ' INFO ' /tmp/out)
say "exit $code: $message"
[ $code = 6 ] && [ "$(echo "$message" | wc -l)" = 1 ] || fail "not one line, or not exit 6"
echo "$message" | grep -q "kfuncs wrongly in its BTF" || fail "another message"

# SPDX-License-Identifier: GPL-2.0-only
# vm: --cpus 2 --llcs 1 --nodes 1
# What another user prepares leads root to no file of its own: the folder of `export --textfile`, with links where a program might
# write; sockets; idle clients of `export --listen`.
. /root/lib.sh

as_nobody() {
	su nobody -s /bin/sh -c "$1"
}

has_metrics() {
	grep -q "^scx_magpie_up 1$" /tmp/theirs/x.prom
}

echo mine >/root/victim
chmod 644 /root/victim
as_nobody 'umask 0; mkdir /tmp/theirs && cd /tmp/theirs && ln -s /root/victim x.prom && ln -s /root/victim x.prom.new' ||
	fail "cannot prepare it"
umask 0
start_magpie
umask 022
scx_magpie export --textfile /tmp/theirs/x.prom --interval 0.5 2>/tmp/export.log &
wait_for 20 "metrics" has_metrics
[ "$(cat /root/victim)" = mine ] || fail "a link was followed: $(head -n 3 /root/victim)"
[ ! -L /tmp/theirs/x.prom ] || fail "the link is still there"
for socket in stats control; do
	wait_for 10 "the socket" test -S /run/scx/root/$socket
	mode=$(stat -c %a /run/scx/root/$socket)
	case $mode in ?00) ;; *) fail "$socket has mode $mode" ;; esac
done
[ "$(stat -c %a /run/scx/root)" = 700 ] || fail "others may enter the folder of the sockets"
as_nobody "echo x >/run/scx/scx_magpie.failures" 2>/dev/null && fail "others may write what status reads"

# As many idle clients as are served at a time, and more.
scx_magpie export --listen 9811 2>/tmp/listen.log &
wait_for 10 "the exporter" grep -q "metrics at" /tmp/listen.log
for _ in $(seq 12); do
	as_nobody 'sleep 100 | nc 127.0.0.1 9811' &
done
answers() {
	timeout 40 wget -q -O /tmp/metrics http://127.0.0.1:9811/metrics
}
wait_for 100 "an answer beside idle clients" answers
grep -q "^scx_magpie_up 1$" /tmp/metrics || fail "no metrics"
stop_magpie

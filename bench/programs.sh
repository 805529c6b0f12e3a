# SPDX-License-Identifier: GPL-2.0-only
# Programs that people run, as benchmarks; sourced by rounds.sh, whose `figure` and `words` it uses.
#
#	program_NAME --> a figure for what the program tells: requests or transactions a second, p99 in us, seconds, frames a second
#
# What they read is in $MAGPIE_PROGRAMS, made by programs.py. Servers listen on this machine only, and end with this script.

export MAGPIE_PROGRAMS="${MAGPIE_PROGRAMS:-/root/programs}"
NGINX=$BENCH/nginx
NGINX_PORT=8410
REDIS_PORT=8411
server=

trap 'stop_server; rm -rf "$BENCH"' EXIT
trap 'exit 130' INT TERM

# start COMMAND...: a server, in the background.
start() {
	"$@" >$BENCH/server 2>&1 &
	server=$!
}

# ready COMMAND...: waits until COMMAND succeeds. False if the server has ended.
ready() {
	until "$@" 2>/dev/null; do
		kill -0 "$server" 2>/dev/null || { cp $BENCH/server $BENCH/err; return 1; }
		sleep 0.05
	done
}

# Signal TERM, or the given one.
stop_server() {
	[ -n "$server" ] || return 0
	kill "-${1:-TERM}" "$server" 2>/dev/null
	wait "$server" 2>/dev/null
	server=
}

# listens PORT
listens() {
	grep -q ":$(printf %04X "$1") 0*:0000 0A" /proc/net/tcp
}

# elapsed COMMAND...: seconds of the clock.
elapsed() {
	_began=$(jq -n now)
	"$@" >/dev/null 2>$BENCH/err || return
	jq -n "now - $_began"
}

program_nginx() {
	mkdir -p $NGINX
	head -c 4096 /dev/zero | tr '\0' x >$NGINX/page
	cat >$NGINX/conf <<-END
		daemon off;
		user root;
		worker_processes auto;
		pid $NGINX/pid;
		events { worker_connections 256; }
		http {
			access_log off;
			keepalive_requests 1000000;
			client_body_temp_path $NGINX/body;
			proxy_temp_path $NGINX/proxy;
			fastcgi_temp_path $NGINX/fastcgi;
			uwsgi_temp_path $NGINX/uwsgi;
			scgi_temp_path $NGINX/scgi;
			server { listen 127.0.0.1:$NGINX_PORT; root $NGINX; }
		}
	END
	start nginx -e stderr -c $NGINX/conf
	ready listens $NGINX_PORT &&
		timeout -s KILL 60 wrk -t 4 -c 32 -d 2s --latency "http://127.0.0.1:$NGINX_PORT/page" >$BENCH/wrk 2>$BENCH/err
	stop_server
	figure nginx-rps "$(awk '/^Requests.sec:/ { print $2 }' $BENCH/wrk)"
	figure nginx-p99 "$(awk '$1 == "99%" { print $2 * ($2 ~ /us$/ ? 1 : $2 ~ /ms$/ ? 1e3 : 1e6) }' $BENCH/wrk)"
	rm -rf $NGINX $BENCH/wrk
}

program_redis() {
	start redis-server --port $REDIS_PORT --bind 127.0.0.1 --save "" --appendonly no
	ready listens $REDIS_PORT &&
		timeout -s KILL 60 redis-benchmark -p $REDIS_PORT -c 50 -n 40000 -t set,get --csv >$BENCH/redis 2>$BENCH/err
	stop_server
	# "test","rps","avg_latency_ms","min_latency_ms","p50_latency_ms","p95_latency_ms","p99_latency_ms","max_latency_ms"
	for _t in set get; do
		figure redis-$_t-rps "$(awk -F '"' "tolower(\$2) == \"$_t\" { print \$4 }" $BENCH/redis)"
		figure redis-$_t-p99 "$(awk -F '"' "tolower(\$2) == \"$_t\" { print \$14 * 1e3 }" $BENCH/redis)"
	done
	rm -f $BENCH/redis
}

# pgbench_of NAME OPTION...: p99 is that of its log of transactions.
pgbench_of() {
	_name=$1
	shift
	figure "postgres-$_name-tps" "$(words pgbench -h $POSTGRES -U postgres -n -c 16 -j 4 -l --log-prefix $POSTGRES/log "$@" postgres |
		sed -n '/^tps$/{n;n;p;}')"
	figure "postgres-$_name-p99" "$(cat $POSTGRES/log.* | cut -d ' ' -f 3 | sort -n | awk '{ us[NR] = $1 } END { print us[int(NR * 0.99) + 1] }')"
	rm -f $POSTGRES/log.*
}

# The server refuses to be root.
program_postgres() {
	POSTGRES=$(mktemp -d /dev/shm/bench.postgres.XXXXXX) || return # in memory, so that no disk is measured
	cp -r "$MAGPIE_PROGRAMS/postgres/." $POSTGRES
	chmod -R go= $POSTGRES
	chown -R nobody $POSTGRES
	start su -s /bin/sh -c "exec $(command -v postgres) -D $POSTGRES -k $POSTGRES -c listen_addresses= -c huge_pages=off" nobody
	if ready grep -q ready $POSTGRES/postmaster.pid; then
		pgbench_of select -S -T 1
		pgbench_of write -T 1
		kill -QUIT "$(head -n 1 $POSTGRES/postmaster.pid)" # not su, which would leave it a zombie
		wait "$server"
	else
		figure postgres-select-tps ""
	fi
	stop_server
	rm -rf $POSTGRES
}

program_cc1() {
	figure cc1 "$(elapsed sh -c "seq 16 | xargs -P 12 -I % cc1 -quiet -fpreprocessed -O2 '$MAGPIE_PROGRAMS/source.i' -o $BENCH/cc1.%")"
	rm -f $BENCH/cc1.*
}

program_x264() {
	figure x264-fps "$(timeout -s KILL 60 x264 --quiet --preset veryfast --threads 8 --input-res 320x192 --fps 25 -o /dev/null "$MAGPIE_PROGRAMS/clip.yuv" 2>&1 |
		sed -n 's/^encoded .* frames, \([0-9.]*\) fps.*/\1/p')"
}

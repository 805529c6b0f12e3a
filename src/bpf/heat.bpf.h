/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Cache heat: what a task that ran a moment ago left in the caches of its LLC is worth some wait. A CPU about to go idle
 * takes tasks of its own LLC as they come, and those of another once they stopped a migration cost ago, by distance. It
 * does not forget the others:
 *
 *	steal.bpf.h: a victim of another LLC ---> take_cold()   stopped_at + cost <= now? taken
 *	                                            hot: cctx->cold_in, the least that is left
 *	nothing taken, and some were hot -------> await_cold()  heat_timer of this CPU, in cold_in
 *	heat_timer: still idle? ----------------> kicked, and looks again
 *
 * So nothing waits for longer than the cost while a CPU in reach is idle.
 */
#pragma once

enum {
	MAX_HEAT_LOOKS = 16, /* waiting tasks of a victim */
};

struct heat_timer {
	struct bpf_timer timer;
};

/* By CPU. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, MAX_CPUS);
	__type(key, u32);
	__type(value, struct heat_timer);
} heat_timers SEC(".maps");

/* What it costs to come to @cpu from @llc, ns. */
static u64 migration_cost(s32 cpu, u32 llc)
{
	if (llc == cpu_layout(cpu)->llc)
		return 0;
	return llc_layout(llc)->node == cpu_node(cpu) ? tun.llc_cost_ns : tun.node_cost_ns;
}

/* In dispatch of @cpu. Takes a task of @victim that is cold for this distance. Bounded by MAX_HEAT_LOOKS. */
__noinline bool take_cold(s32 cpu, s32 victim, u64 cost)
{
	struct cpu_ctx *cctx = cpu_ctx(cpu);
	u32 looks = bpf_arena_loop_zero;
	u64 now = scx_bpf_now();
	struct task_struct *p;

	bpf_for_each(scx_dsq, p, victim, 0)
	{
		struct task_ctx *tctx = task_ctx(p);

		if (tctx && may_come(p, cpu)) {
			s64 left = tctx->stopped_at + cost - now;

			if (left <= 0) {
				if (scx_bpf_dsq_move(BPF_FOR_EACH_ITER, p, SCX_DSQ_LOCAL, 0))
					return true;
			} else if (!cctx->cold_in || (u64)left < cctx->cold_in) {
				cctx->cold_in = left;
			}
		}
		looks += bpf_arena_loop_one;
		if (looks >= MAX_HEAT_LOOKS)
			break;
	}
	return false;
}

/* In dispatch of @cpu, which took nothing: it is to look again when the first hot task that it saw has got cold. */
static void await_cold(s32 cpu, struct cpu_ctx *cctx)
{
	struct heat_timer *t;

	if (!cctx->cold_in)
		return;
	stat_inc(STAT_STEAL_HOT);
	t = bpf_map_lookup_elem(&heat_timers, &cpu);
	if (t)
		bpf_timer_start(&t->timer, cctx->cold_in, 0);
}

/* An idle CPU of the system fires it, or this one; it may be busy by now. */
static int heat_timer_fires(void *map, s32 *key, struct heat_timer *t)
{
	s32 cpu = *key;

	if (cpu_ctx(cpu)->idle) {
		stat_inc(STAT_KICK);
		scx_bpf_kick_cpu(cpu, SCX_KICK_IDLE);
	}
	return 0;
}

/* In init, which is sleepable. */
static void init_heat_timer(s32 cpu)
{
	struct heat_timer *t = bpf_map_lookup_elem(&heat_timers, &cpu);

	if (!t)
		return;
	bpf_timer_init(&t->timer, &heat_timers, CLOCK_MONOTONIC);
	bpf_timer_set_callback(&t->timer, heat_timer_fires);
}

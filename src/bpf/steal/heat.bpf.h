/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Cache heat: what a task that ran a moment ago left in the caches of its LLC is worth some wait. A CPU about to go idle
 * takes tasks of its own LLC as they come, and those of another once they stopped a migration cost ago, by distance. It
 * does not forget the others:
 *
 *	steal/steal.bpf.h: a victim of another LLC ---> take_cold()   stopped_at + cost <= now? taken
 *	                                            hot: cctx->cold_in, the least that is left
 *	nothing taken, and some were hot -------> await_cold()  looks again in cold_in (again.bpf.h)
 *
 * So nothing waits for longer than the cost while a CPU in reach is idle.
 *
 * In the same way a task that is too big for a weaker CPU is left to the stronger ones for a moment: whoever took that
 * CPU from it may be as brief as small tasks are (misfit_wait() in capacity/fit.bpf.h).
 */
#pragma once

enum {
	MAX_HEAT_LOOKS = 16, /* waiting tasks of a victim */
};

/* What it costs to come to @cpu from @llc, ns. */
static u64 migration_cost(s32 cpu, u32 llc)
{
	if (llc == cpu_layout(cpu)->llc)
		return 0;
	return llc_layout(llc)->node == cpu_node(cpu) ? tunables.llc_cost_ns : tunables.node_cost_ns;
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

		if (tctx && can_migrate_to(p, cpu)) {
			s64 left = tctx->stopped_at + cost - now;

			if (is_asym())
				left = max_s64(left, misfit_wait(tctx, cpu, now));
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
	if (!cctx->cold_in)
		return;
	stat_inc(STAT_STEAL_HOT);
	look_again(cpu, cctx->cold_in);
}

/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * pull(): a CPU takes a waiting task out of turn. It checks the first MAX_PULL_CHECKS tasks of the
 * queue, including those that may not run on it. Callers, and the task that they want:
 *
 *	steal.bpf.h     the CPU is about to go idle   PULL_IDLE      caches cold, or preferred
 *	                                                             node here; CPU strong
 *	                                                             enough, or it waited for long
 *	balance.bpf.h   the CPU is busy               PULL_BALANCE   more positive lag, or a longer
 *	                                                             wait, than the task to run here
 *	pick.bpf.h      current yielded to a task     PULL_YIELD     that task
 */
#pragma once

enum {
	/* the task to pull must have this much more lag than the task to run; between LLCs twice */
	BALANCE_GRAN_NS = 10000000,
	BALANCE_WAIT_NS = 20000000,
};

enum pull_why {
	PULL_IDLE,
	PULL_BALANCE,
	PULL_YIELD,
};

struct pull {
	u32 why;
	s32 pid;	 /* PULL_YIELD: the task */
	u64 cost;	 /* PULL_IDLE: migration_cost(), ns */
	u64 min_wait;	 /* PULL_BALANCE: it has waited for this long, ns by weight, and */
	u64 before;	 /* ... its deadline is before this, */
	u64 long_wait;	 /* ... or it has waited for this long, ns by weight */
	u32 curr_weight; /* weight of the victim's current; 0: none */
	s64 surplus;	 /* PULL_BALANCE: the load of the victim minus that of the CPU */
};

static u64 by_weight(u64 ns, u32 weight)
{
	return ns * weight / NICE_0;
}

/*
 * Return true if the victim's current is less than half as heavy as the task. Then do not pull the
 * task for its lag: it soon gets most of the victim's time.
 */
static bool outweighs(u32 weight, const struct pull *pull)
{
	return pull->curr_weight && weight / 2 > pull->curr_weight;
}

/*
 * Return true if the CPU still has no more load than the victim once it has the task. A task next
 * to a current of more than four times its weight stays: a heavy task that runs for a moment would
 * drive all light tasks away (groups of 1 to 10 would share 1 to 8).
 */
static bool evens_load(u64 weight, const struct pull *pull)
{
	return pull->surplus >= (s64)(2 * weight) && 4 * weight >= pull->curr_weight;
}

/* Return true if the preferred node of the task, which waits on @victim, is that of @cpu. */
static bool pulls_to_preferred(const struct task_ctx *tctx, s32 cpu, s32 victim, u64 now)
{
	return tctx->preferred_node == cpu_node(cpu) &&
	       wants_preferred_node(tctx, cpu_node(victim), now);
}

/* Return true if the caller wants @p, which waits on @victim. */
static bool pull_wants(const struct pull *pull, struct task_struct *p, struct task_ctx *tctx,
		       s32 cpu, s32 victim, u64 now)
{
	u64 wait = wait_time(tctx, now);
	u32 weight;

	switch (pull->why) {
	case PULL_IDLE:
		return (!pull->cost || pulls_to_preferred(tctx, cpu, victim, now) ||
			hot_remaining(tctx, cpu_ctx(victim), pull->cost, now) <= 0) &&
		       (!is_asym() || fits_cpu(tctx->task_util, cpu) || weak_wait(tctx, now) <= 0);
	case PULL_BALANCE:
		weight = task_weight(tctx);
		if (evens_load(weight, pull))
			return true;
		if (by_weight(wait, weight) < pull->min_wait)
			return false;
		if (time_before(p->scx.dsq_vtime, pull->before) && !outweighs(weight, pull))
			return true;
		return wait >= BALANCE_WAIT_NS && by_weight(wait, weight) >= pull->long_wait;
	case PULL_YIELD:
		return p->pid == pull->pid;
	}
	return false;
}

/*
 * Take the first task of @queue, a queue of @victim, that the caller wants and that may run on
 * @cpu. Return true if one was taken. In dispatch of @cpu, whose rq lock is held, and dropped while
 * the task moves. Bounded by MAX_PULL_CHECKS tasks.
 */
__noinline bool pull(s32 cpu, s32 victim, u64 queue, struct pull *pull __arg_nonnull)
{
	u32 checks = bpf_arena_loop_zero;
	u64 now = scx_bpf_now();
	struct task_struct *p;

	bpf_for_each(scx_dsq, p, queue, 0)
	{
		struct task_ctx *tctx;

		if (cpu == victim || can_migrate_to(p, cpu)) {
			tctx = task_ctx(p);
			if (tctx && pull_wants(pull, p, tctx, cpu, victim, now) &&
			    scx_bpf_dsq_move(BPF_FOR_EACH_ITER, p, SCX_DSQ_LOCAL, 0)) {
				if (pull->why == PULL_IDLE &&
				    pulls_to_preferred(tctx, cpu, victim, now))
					stat_inc(STAT_PREFERRED_STEAL);
				tctx->arrives = true;
				return true;
			}
		}
		checks += bpf_arena_loop_one;
		if (checks >= MAX_PULL_CHECKS)
			break;
	}
	return false;
}

/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * pull(): a CPU takes a waiting task out of its turn. All that move tasks between queues are
 * callers:
 *
 *	steal.bpf.h     the CPU is about to go idle   PULL_IDLE      not hot for the distance, or
 *	                                                             at home here; strong enough
 *	balance.bpf.h   the CPU is busy               PULL_BALANCE   more positive lag, or a longer
 *	                                                             wait, than what would run here
 *	pick.bpf.h      current yielded to a task     PULL_YIELD     that one
 *
 * It looks at the first MAX_PULL_LOOKS tasks, whatever their affinity, and takes the first that may
 * come.
 */
#pragma once

enum {
	/*
	 * A busy CPU takes a task with so much more lag than what it would run; twice that
	 * between LLCs.
	 */
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
	s32 pid;	 /* PULL_YIELD */
	u64 cost;	 /* PULL_IDLE: of the way, ns: migration_cost() */
	u64 min_wait;	 /* PULL_BALANCE: it has waited for so many ns, by weight */
	u64 before;	 /* PULL_BALANCE: its deadline, or it has waited ... */
	u64 long_wait;	 /* ... for so many ns, by weight */
	u32 curr_weight; /* of the victim's current */
};

static u64 by_weight(u64 ns, u32 weight)
{
	return ns * weight / (WEIGHT_DFL << WEIGHT_SHIFT);
}

/*
 * A task more than twice as heavy as the victim's current stays there: it soon has most of that
 * CPU.
 */
static bool outweighs(u32 weight, const struct pull *pull)
{
	return pull->curr_weight && weight / 2 > pull->curr_weight;
}

/* Would the task, which waits on @victim, come to its preferred node on @cpu? */
static bool comes_home(const struct task_ctx *tctx, s32 cpu, s32 victim, u64 now)
{
	return tctx->preferred_node == cpu_node(cpu) && wants_home(tctx, cpu_node(victim), now);
}

/* Does the caller want @p, which waits on @victim? */
static bool pull_wants(const struct pull *pull, struct task_struct *p, struct task_ctx *tctx,
		       s32 cpu, s32 victim, u64 now)
{
	u64 wait = wait_time(tctx, now);
	u32 weight;

	switch (pull->why) {
	case PULL_IDLE:
		return (!pull->cost || comes_home(tctx, cpu, victim, now) ||
			hot_remaining(tctx, cpu_ctx(victim), pull->cost, now) <= 0) &&
		       (!is_asym() || fits_cpu(tctx->task_util, cpu) || weak_wait(tctx, now) <= 0);
	case PULL_BALANCE:
		weight = task_weight(tctx);
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
 * @p comes from @victim to @cpu by its turn on the common scale, not by its distance to the clock.
 * Its positive lag is bounded by the credit: it shall not shut out those that wake here.
 */
static void carry_over(struct task_ctx *tctx, s32 cpu, s32 victim)
{
	const struct cpu_ctx *cctx = cpu_ctx(cpu);
	u64 earliest = cctx->vclock - to_vtime(tunables.credit_ns, task_weight(tctx));
	u64 at = tctx->vruntime + cpu_ctx(victim)->voffset - cctx->voffset;

	if (time_before(at, earliest))
		at = earliest;
	tctx->deadline += at - tctx->vruntime;
	tctx->vruntime = at;
	tctx->recent = tctx->vclock_cpu;
	tctx->vclock_cpu = cpu;
}

/*
 * In dispatch of @cpu, whose rq lock is held, and dropped while the task moves: take one of the
 * first tasks of @queue, one of @victim's. Return true if one was taken. Bounded by MAX_PULL_LOOKS.
 */
__noinline bool pull(s32 cpu, s32 victim, u64 queue, struct pull *pull __arg_nonnull)
{
	u32 looks = bpf_arena_loop_zero;
	u64 now = scx_bpf_now();
	struct task_struct *p;

	bpf_for_each(scx_dsq, p, queue, 0)
	{
		struct task_ctx *tctx;

		if (cpu == victim || can_migrate_to(p, cpu)) {
			tctx = task_ctx(p);
			if (tctx && pull_wants(pull, p, tctx, cpu, victim, now) &&
			    scx_bpf_dsq_move(BPF_FOR_EACH_ITER, p, SCX_DSQ_LOCAL, 0)) {
				if (pull->why == PULL_BALANCE)
					carry_over(tctx, cpu, victim);
				else if (comes_home(tctx, cpu, victim, now))
					stat_inc(STAT_HOME_STEAL);
				tctx->arrives = true;
				return true;
			}
		}
		looks += bpf_arena_loop_one;
		if (looks >= MAX_PULL_LOOKS)
			break;
	}
	return false;
}

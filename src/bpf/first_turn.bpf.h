/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * A first turn, soon, for each task that wakes promptly (order/deadline.bpf.h).
 *
 *	who runs was prompt, too, and the first ----> when it has had its first turn, by the timer of again.bpf.h:
 *	in line waits for its first turn              is it still so? then it lends its CPU
 *
 *	in line then:   to run    wait for their first turn    who lent    all others
 *
 * When more wake at once than there are CPUs, the last of them wait for the first turns of the others, not until these have
 * done all they have to; and those that have little to do are done within it. The price is a switch a wakeup, at most. Who
 * lends waits for these turns only: by its deadline it might wait for all others, with little left to do.
 *
 * Who wakes when a first turn is over already preempts at once (order/preempt.bpf.h).
 */
#pragma once

enum {
	TURN_LEAST_NS = 50000, /* the timer is not to come sooner */
	MAX_TURN_LOOKS = 8,
};

static bool in_first_turn(const struct cpu_ctx *cctx)
{
	return tunables.first_turn_ns && cctx->curr_prompt && cctx->curr_weight && !cctx->curr_critical;
}

/* In running on @cpu, or in its timer, where RCU has to be locked: does the first in line wait for the turn to end? */
static bool turn_is_awaited(s32 cpu, const struct cpu_ctx *cctx)
{
	struct task_struct *first;
	struct task_ctx *tctx;
	u64 queue;

	if (!in_first_turn(cctx) || !cctx->waiting)
		return false;
	first = first_queued(cpu, cctx, &queue);
	tctx = first ? task_ctx(first) : NULL;
	return tctx && tctx->fresh;
}

static void await_turn(s32 cpu, const struct cpu_ctx *cctx, u64 now)
{
	s64 left = cctx->curr_started + tunables.first_turn_ns - now;

	look_again(cpu, left > TURN_LEAST_NS ? left : TURN_LEAST_NS);
}

/* The timer of @cpu fires, wherever. Who runs may be another than when it was set. */
static void look_turn(s32 cpu)
{
	struct cpu_ctx *cctx = cpu_ctx(cpu);
	u64 now = unlocked_now();

	if (!turn_is_awaited(cpu, cctx))
		return;
	if ((s64)(cctx->curr_started + tunables.first_turn_ns - now) >= TURN_LEAST_NS) {
		await_turn(cpu, cctx, now);
		return;
	}
	stat_inc(STAT_TURN);
	preempt_curr(cpu, cctx);
	cctx->lends = true;
}

/* In dispatch: does who runs on the CPU of @cctx lend it to the @next in line? Who was to have it may be gone: stolen. */
static bool lends_to(const struct cpu_ctx *cctx, struct task_struct *next)
{
	struct task_ctx *tctx = cctx->lends ? task_ctx(next) : NULL;

	return tctx && tctx->fresh;
}

/* In enqueue of who lent the CPU of @cctx: where in @queue it is, if not at its deadline, @at. Bounded by MAX_TURN_LOOKS. */
__noinline u64 lender_place(struct cpu_ctx *cctx __arg_nonnull, u64 queue, u64 at)
{
	u32 looks = bpf_arena_loop_zero;
	struct task_struct *p;

	cctx->lends = false;
	bpf_for_each(scx_dsq, p, queue, 0)
	{
		struct task_ctx *tctx = task_ctx(p);

		if (!tctx || !tctx->fresh || looks >= MAX_TURN_LOOKS) {
			if (!looks && vtime_before(p->scx.dsq_vtime, at))
				at = p->scx.dsq_vtime - 1;
			break;
		}
		at = p->scx.dsq_vtime;
		looks += bpf_arena_loop_one;
	}
	return at;
}

/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The load of a CPU: the sum of the weights of its runnable tasks, cgroups' shares included.
 *
 *	queued_load     those in line: added by enqueue(), taken out by running(), be it on another CPU, or disable(). Whoever
 *		      finds it 0 knows that nobody waits there, nor is about to
 *	curr_weight   the one that runs
 *
 * Tasks that go straight to an idle CPU are not counted until they run.
 */
#pragma once

/* The task is about to wait in a queue of its CPU, whose rq lock is held. */
static void queue_add(const struct task_struct *p, struct task_ctx *tctx, struct cpu_ctx *cctx)
{
	u64 before;

	tctx->queued_weight = task_weight(p, tctx);
	before = __sync_fetch_and_add(&cctx->queued_load, tctx->queued_weight);
	/* It is the fetch that makes it a full barrier, for mark_waiting(). */
	barrier_var(before);
}

/* It waits no more, if it did: it runs, has left us, or is about to be put in line anew. Was it the last in its line? */
static bool queue_del(struct task_ctx *tctx)
{
	u32 weight = tctx->queued_weight;

	if (!weight)
		return false;
	tctx->queued_weight = 0;
	return __sync_fetch_and_add(&cpu_ctx(tctx->queued_cpu)->queued_load, -(u64)weight) == weight;
}

static u64 cpu_load(const struct cpu_ctx *cctx)
{
	return READ_ONCE(cctx->queued_load) + READ_ONCE(cctx->curr_weight);
}

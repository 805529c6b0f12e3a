/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The load of a CPU: the sum of the weights of its runnable tasks, cgroups' shares included.
 *
 *	line_load     those in line: added by enqueue(), taken out by running(), be it on another CPU, or disable()
 *	curr_weight   the one that runs
 *
 * Tasks that go straight to an idle CPU are not counted until they run.
 */
#pragma once

/* The task is about to wait in a queue of its CPU, whose rq lock is held. */
static void join_line(const struct task_struct *p, struct task_ctx *tctx, struct cpu_ctx *cctx)
{
	tctx->line_weight = task_weight(p, tctx);
	__sync_fetch_and_add(&cctx->line_load, tctx->line_weight);
}

/* It waits no more, if it did: it runs, has left us, or is about to be put in line anew. */
static void leave_line(struct task_ctx *tctx)
{
	if (!tctx->line_weight)
		return;
	__sync_fetch_and_add(&cpu_ctx(tctx->queued_on)->line_load, -(u64)tctx->line_weight);
	tctx->line_weight = 0;
}

static u64 cpu_load(const struct cpu_ctx *cctx)
{
	return READ_ONCE(cctx->line_load) + READ_ONCE(cctx->curr_weight);
}

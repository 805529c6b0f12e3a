/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Making way for an urgent task, which is brief: who ran will go on in microseconds, so it is not offered to idle CPUs at once.
 *
 *	enqueue   urgent task takes the CPU ----> make_way()      who runs is put in line, not offered; the timer is set
 *	          who made way is put in line --> soon_goes_on()  not if there are two, or it took too long
 *	dispatch  urgent task is done ----------> making_way ends: those that still wait are offered
 *	timer     in OFFER_NS (again.bpf.h) ----> it is not as brief as it should be: an idle CPU is kicked, and looks
 */
#pragma once

enum {
	OFFER_NS = 250000,
};

/* An urgent task takes @cpu: the running one, if there is one, will soon go on. It is offered if it does not. */
static void make_way(s32 cpu, struct cpu_ctx *cctx)
{
	if (!cctx->curr_weight)
		return;
	cctx->making_way = true;
	cctx->curr_weight = 0;
	cctx->offer_at = scx_bpf_now() + OFFER_NS;
	look_again(cpu, OFFER_NS);
}

/*
 * Is @p, which was just put in line, the one that makes way for an urgent task, which is brief? Not if there are two, nor if
 * it took so long to make way (interrupts off) that the timer has looked already.
 */
static bool soon_goes_on(const struct task_struct *p, const struct task_ctx *tctx, const struct cpu_ctx *cctx)
{
	return cctx->making_way && p == bpf_get_current_task_btf() && tctx->enqueued_at < cctx->offer_at &&
	       scx_bpf_dsq_nr_queued(SCX_DSQ_LOCAL) <= 1;
}

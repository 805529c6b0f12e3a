/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Hand-off: a waker that sleeps immediately, as with a request and its answer, leaves its CPU to
 * the wakee. To wake an idle CPU takes longer than what the waker has left to do. The kernel's hint
 * (WF_SYNC) alone does not tell, because a task that writes to a pipe may continue to write: the
 * waker must have kept to it lately.
 *
 *	select_cpu  WF_SYNC, its first wakeup since it runs, handoff_score >= HANDOFF_SCORE,
 *	            nothing waits for its CPU, and wake-affine has chosen that: local DSQ, here
 *	            otherwise: the search
 *	stopping    it sleeps within handoff_ns of that wakeup, the only one: score++
 *	            it does not: score = 0
 *	            ... though it had handed its CPU off: score = -HANDOFF_PENALTY
 *
 * Nothing can be stolen from the local DSQ. So the hand-off ends the waker's slice: if it does not
 * sleep, the next tick runs the wakee.
 */
#pragma once

enum {
	HANDOFF_SCORE = 4,
	HANDOFF_PENALTY = 32,
	HANDOFF_SAMPLE = 8,
};

/*
 * In select_cpu: is the wakee to go to the local DSQ of @target, because that is this CPU and its
 * task is about to sleep? Not for wakeups by kernel threads that serve this CPU.
 */
static bool hands_off(const struct task_ctx *tctx, s32 target, u64 wake_flags)
{
	s32 waking = bpf_get_smp_processor_id();
	struct cpu_ctx *cctx = cpu_ctx(waking);

	if (!tunables.handoff_ns || !(wake_flags & SCX_WAKE_SYNC) || !cctx->curr_weight ||
	    cctx->curr_critical)
		return false;
	if (cctx->sync_wakes < 2)
		cctx->sync_wakes++;
	/*
	 * The clock costs a tenth of the wakeup: while the score is full it is read now and then.
	 */
	cctx->sync_woke_at =
		cctx->handoff_score < HANDOFF_SCORE || cctx->nr_handoffs++ % HANDOFF_SAMPLE == 0
			? bpf_ktime_get_ns()
			: 0;
	if (cctx->sync_wakes > 1 || target != waking || cctx->queued || is_tickless(cctx) ||
	    cctx->handoff_score < HANDOFF_SCORE)
		return false;
	if (is_asym() && !fits_cpu(tctx->task_util, waking))
		return false;
	if (scx_bpf_dsq_nr_queued(SCX_DSQ_LOCAL))
		return false;
	cctx->handed_off = true;
	scx_bpf_task_set_slice(bpf_get_current_task_btf(), 0);
	return true;
}

/* In stopping of the waker: did it do as expected? If it was not timed, that it slept is enough. */
static void judge_handoff(struct task_ctx *tctx, struct cpu_ctx *cctx, bool sleeps)
{
	bool soon = !cctx->sync_woke_at ||
		    bpf_ktime_get_ns() - cctx->sync_woke_at < tunables.handoff_ns;

	if (sleeps && cctx->sync_wakes == 1 && soon)
		tctx->handoff_score += tctx->handoff_score < HANDOFF_SCORE;
	else if (cctx->handed_off)
		tctx->handoff_score = -HANDOFF_PENALTY;
	else if (tctx->handoff_score > 0)
		tctx->handoff_score = 0;
	cctx->handed_off = false;
	cctx->sync_wakes = 0;
}

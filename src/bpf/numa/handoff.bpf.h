/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Hand-off: a waker that sleeps at once, as with a request and its answer, leaves its CPU to the wakee. To wake an idle CPU
 * takes longer than what the waker has left to do. The kernel's hint (WF_SYNC) alone does not tell, for a task that writes to
 * a pipe may go on writing: the waker must have kept to it lately.
 *
 *	select_cpu  by WF_SYNC, its first wakeup since it runs, sync_sleep_score >= HANDOFF_SCORE,
 *	            nothing waits for its CPU, which wake-affine has chosen ----------------> local DSQ, here
 *	            else -------------------------------------------------------------------> the search
 *	stopping    it sleeps within handoff_ns of that wakeup, the only one: -------------> score++
 *	            it does not: -----------------------------------------------------------> score = 0
 *	            ... though it had handed its CPU off: ----------------------------------> score = -HANDOFF_PENALTY
 *
 * Nothing can be stolen from the local DSQ. So the hand-off ends the waker's slice: if it does not sleep, the next tick runs
 * the wakee.
 */
#pragma once

enum {
	HANDOFF_SCORE = 4,
	HANDOFF_PENALTY = 32,
};

/* Does this CPU's task, which is to sleep, leave it to the one that it wakes? */
static bool may_hand_off(const struct task_ctx *waker, const struct task_ctx *tctx, const struct cpu_ctx *cctx,
			 s32 waking, s32 target)
{
	if (cctx->sync_wakes > 1 || target != waking || cctx->queued || waker->sync_sleep_score < HANDOFF_SCORE)
		return false;
	if (is_asym() && !fits_cpu(tctx->task_util, waking))
		return false;
	return !scx_bpf_dsq_nr_queued(SCX_DSQ_LOCAL);
}

/*
 * In select_cpu: if so, the wakee is to go to the local DSQ of @target, which is this CPU. Not for wakeups by kernel threads
 * that serve this CPU.
 */
static bool hands_off(const struct task_ctx *tctx, s32 target, u64 wake_flags)
{
	s32 waking = bpf_get_smp_processor_id();
	struct cpu_ctx *cctx = cpu_ctx(waking);
	struct task_struct *curr;
	struct task_ctx *waker;

	if (!tunables.handoff_ns || !(wake_flags & SCX_WAKE_SYNC) || !cctx->curr_weight || cctx->curr_critical)
		return false;
	if (cctx->sync_wakes < 2)
		cctx->sync_wakes++;
	cctx->sync_woke_at = unlocked_now();
	curr = bpf_get_current_task_btf();
	waker = task_ctx(curr);
	if (!waker || !may_hand_off(waker, tctx, cctx, waking, target))
		return false;
	cctx->handed_off = true;
	scx_bpf_task_set_slice(curr, 0);
	return true;
}

/* In stopping of the waker: did it do as expected? */
static void judge_handoff(struct task_ctx *tctx, struct cpu_ctx *cctx, bool sleeps)
{
	u64 took = scx_bpf_now() - cctx->sync_woke_at;

	if (sleeps && cctx->sync_wakes == 1 && took < tunables.handoff_ns)
		tctx->sync_sleep_score += tctx->sync_sleep_score < HANDOFF_SCORE;
	else if (cctx->handed_off)
		tctx->sync_sleep_score = -HANDOFF_PENALTY;
	else if (tctx->sync_sleep_score > 0)
		tctx->sync_sleep_score = 0;
	cctx->handed_off = false;
	cctx->sync_wakes = 0;
}

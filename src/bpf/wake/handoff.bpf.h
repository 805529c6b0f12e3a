/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Hand-off: a waker that is about to sleep leaves its CPU to the wakee, because an idle CPU takes
 * longer to wake than the waker continues to run. WF_SYNC alone does not say that the waker will
 * sleep: a task that writes to a pipe may continue to write. So the waker needs a score.
 *
 *	select_cpu  this is the waker's first WF_SYNC wakeup since it started to run, its score is
 *	            full, its CPU is the target, and no task waits there: the wakee goes to the
 *	            local DSQ
 *	            otherwise: search for an idle CPU
 *	stopping    the waker sleeps within handoff_ns of its only WF_SYNC wakeup: score++, up to
 *	            full
 *	            otherwise, if the waker handed its CPU off: score = -HANDOFF_PENALTY
 *	            otherwise: score = min(score, 0)
 *
 * No CPU can steal from the local DSQ. Therefore the hand-off ends the waker's slice: if the waker
 * does not sleep, the next tick runs the wakee.
 */
#pragma once

enum {
	HANDOFF_SCORE = 4,
	HANDOFF_PENALTY = 32,
	HANDOFF_SAMPLE = 8,
};

/*
 * Hand this CPU off if current is about to sleep, and @target is this CPU: end the slice of
 * current, and return true. The wakee is then to go to the local DSQ. Never if current is a per-CPU
 * kernel thread or the loader. In select_cpu.
 */
static bool hands_off(const struct task_ctx *tctx, s32 target, u64 wake_flags)
{
	s32 waking = bpf_get_smp_processor_id();
	struct cpu_ctx *cctx = cpu_ctx(waking);

	if (!(wake_flags & SCX_WAKE_SYNC) || !cctx->curr_weight || cctx->curr_critical)
		return false;
	/* Also without hand-off: the slice timer leaves a task that sends messages to the tick. */
	if (cctx->sync_wakes < 2)
		cctx->sync_wakes++;
	if (!tunables.handoff_ns)
		return false;
	/* The clock costs a tenth of a wakeup: read it seldom while the score is full. */
	cctx->sync_woke_at =
		cctx->handoff_score < HANDOFF_SCORE || cctx->nr_handoffs++ % HANDOFF_SAMPLE == 0
			? bpf_ktime_get_ns()
			: 0;
	if (cctx->sync_wakes > 1 || target != waking || cctx->queued || is_tickless(cctx) ||
	    cctx->handoff_score < HANDOFF_SCORE)
		return false;
	if (is_asym() && !fits_cpu(tctx->task_util, waking))
		return false;
	if (is_followed(cctx))
		return false;
	cctx->handed_off = true;
	scx_bpf_task_set_slice(bpf_get_current_task_btf(), 0);
	return true;
}

/* Update the score of the waker. A wakeup that was not timed counts as in time. In stopping. */
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

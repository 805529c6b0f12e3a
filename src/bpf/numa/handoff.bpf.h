/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Hand-off: who wakes another and then sleeps at once, as with a request and its answer, leaves its CPU to it. To wake
 * an idle CPU for it takes longer than what the waker has left to do. The kernel's hint (WF_SYNC) alone does not tell, for
 * who writes to a pipe may go on writing: the waker must have kept to it lately.
 *
 *	select_cpu  by WF_SYNC, its first wakeup since it runs, sync_sleep_score >= HANDOFF_SCORE, nobody
 *	            waits for its CPU, which wake-affine has chosen ------------------------> local DSQ, here
 *	            else -------------------------------------------------------------------> the search
 *	stopping    it sleeps within handoff_ns of that wakeup, the only one: -------------> sync_sleep_score++
 *	            it does not: -----------------------------------------------------------> sync_sleep_score = 0
 *	            ... nor in HANDOFF_LOOK_NS, though it had handed its CPU off: ----------> sync_sleep_score = -HANDOFF_PENALTY
 *	timer       in HANDOFF_LOOK_NS (again.bpf.h), it is still at it: -------------------> makes way, in line, where
 *	                                                                                      idle CPUs find it
 */
#pragma once

enum {
	HANDOFF_SCORE = 4,
	HANDOFF_PENALTY = 32,
	HANDOFF_LOOK_NS = 400000, /* the woken one waits for twice as long, at most */
};

/* Does this CPU's task, which is to sleep, leave it to the one it wakes? */
static bool may_hand_off(const struct task_ctx *tctx, const struct cpu_ctx *cctx, s32 waking, s32 target)
{
	const struct task_ctx *waker;

	if (cctx->sync_wakes > 1 || target != waking || cctx->waiting)
		return false;
	if (is_asym() && !fits_cpu(tctx->task_util, waking))
		return false;
	waker = task_ctx(bpf_get_current_task_btf());
	return waker && waker->sync_sleep_score >= HANDOFF_SCORE && !scx_bpf_dsq_nr_queued(SCX_DSQ_LOCAL);
}

/*
 * In select_cpu: if so, the woken task is to go to the local DSQ of @target, which is this CPU. Nobody can steal it there:
 * the timer looks after that. Not for wakeups by who serves this CPU. Notes the wakeup for producer_lead(), too.
 */
static bool hands_off(const struct task_ctx *tctx, s32 target, u64 wake_flags)
{
	s32 waking = bpf_get_smp_processor_id();
	struct cpu_ctx *cctx = cpu_ctx(waking);

	if (!(wake_flags & SCX_WAKE_SYNC) || !cctx->curr_weight || cctx->curr_critical)
		return false;
	if (cctx->sync_wakes < 2)
		cctx->sync_wakes++;
	cctx->sync_woke_at = unlocked_now();
	if (!tunables.handoff_ns || !may_hand_off(tctx, cctx, waking, target))
		return false;
	cctx->handed_off = true;
	cctx->next_waits = true;
	if ((s64)(cctx->sync_woke_at - cctx->handoff_look_at) >= 0) {
		look_again(waking, HANDOFF_LOOK_NS);
		cctx->handoff_look_at = cctx->sync_woke_at + HANDOFF_LOOK_NS;
	}
	return true;
}

/* In stopping of the waker: did it do as expected? */
static void judge_handoff(struct task_ctx *tctx, struct cpu_ctx *cctx, bool sleeps)
{
	u64 took = scx_bpf_now() - cctx->sync_woke_at;

	if (cctx->handed_off && took >= HANDOFF_LOOK_NS)
		tctx->sync_sleep_score = -HANDOFF_PENALTY;
	else if (sleeps && cctx->sync_wakes == 1 && took < tunables.handoff_ns)
		tctx->sync_sleep_score += tctx->sync_sleep_score < HANDOFF_SCORE;
	else if (tctx->sync_sleep_score > 0)
		tctx->sync_sleep_score = 0;
	cctx->handed_off = false;
	cctx->sync_wakes = 0;
}

/* The running task of @cpu was to sleep soon, and did not? Then it makes way. When it has not had the time yet: later. */
static void look_handoff(s32 cpu)
{
	struct cpu_ctx *cctx = cpu_ctx(cpu);

	if (!cctx->handed_off)
		return;
	if ((s64)(unlocked_now() - cctx->sync_woke_at - tunables.handoff_ns) < 0)
		look_again(cpu, HANDOFF_LOOK_NS);
	else
		scx_bpf_kick_cpu(cpu, SCX_KICK_PREEMPT);
}

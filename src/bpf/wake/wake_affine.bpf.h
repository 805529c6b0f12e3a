/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Wake-affine: choose the previous or the waking CPU as target of the search, by the kernel's
 * rules. --wake-affine names the rules in force.
 *
 *	not a plain wakeup (fork), or the waking CPU not allowed      previous
 *	idle   the waking CPU is idle (an interrupt wakes), and
 *	       shares its LLC with the previous one                   previous if idle, else waking
 *	sync   WF_SYNC, the waking CPU runs a task of sched_ext, and
 *	       no task is in its queues                               waking
 *	else                                                          previous
 *
 * A pull away from the task's preferred node starts the back-off of preferred.bpf.h, for the task
 * and its waker (Mel Gorman's update_wa_numa_placement()).
 */
#pragma once

/* Return true if @waking is the target, false if @prev is. */
static bool wake_affine(s32 waking, s32 prev, bool sync)
{
	const struct cpu_ctx *cctx = cpu_ctx(waking);

	if (tunables.affine_idle && cctx->idle && share_llc(waking, prev))
		return !cpu_ctx(prev)->idle;
	return tunables.affine_sync && sync && cctx->curr_weight && !cctx->queued;
}

/* Return the target of the search for @p, which may use @prev. In select_cpu. */
static s32 affine_target(struct task_struct *p, struct task_ctx *tctx, s32 prev, u64 wake_flags)
{
	s32 waking = bpf_get_smp_processor_id();

	if (!(wake_flags & SCX_WAKE_TTWU) || waking == prev || !is_usable(waking) ||
	    !may_use(p, waking) || !wake_affine(waking, prev, wake_flags & SCX_WAKE_SYNC))
		return prev;
	stat_inc(STAT_AFFINE);
	if (is_numa() && cpu_node(waking) != cpu_node(prev)) {
		stat_inc(STAT_AFFINE_FAR);
		back_off(tctx, cpu_node(waking), cpu_ctx(waking)->curr_weight);
	}
	return waking;
}

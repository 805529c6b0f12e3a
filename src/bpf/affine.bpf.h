/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Wake-affine: near which CPU a wakeup looks for an idle one, the previous or the waking (the kernel's
 * wake_affine_idle).
 *
 *	not a plain wakeup (fork), or the waking CPU not allowed -- ---------> previous
 *	waking CPU idle (an interrupt wakes), cache shared with the previous ---> previous if idle, else waking
 *	waker about to sleep (sync), nobody waits for its CPU ------------------> waking
 *	else -------------------------------------------------------------------> previous
 */
#pragma once

/* In select_cpu. @prev is a CPU that @p may use. */
static s32 affine_target(struct task_struct *p, s32 prev, u64 wake_flags)
{
	s32 waking = bpf_get_smp_processor_id();
	struct cpu_ctx *cctx = cpu_ctx(waking);

	if (waking == prev || !(wake_flags & SCX_WAKE_TTWU) || !may_use(p, waking))
		return prev;
	if (cctx->idle && share_llc(waking, prev))
		return cpu_ctx(prev)->idle ? prev : waking;
	if (wake_flags & SCX_WAKE_SYNC && cctx->curr_weight && !cctx->waiting)
		return waking;
	return prev;
}

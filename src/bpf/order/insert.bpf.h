/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The end of enqueue: a task that found no idle CPU waits in a queue of its CPU (queue.bpf.h), an
 * idle CPU in reach is kicked to steal it (steal/overload.bpf.h), or it preempts current
 * (preempt.bpf.h).
 */
#pragma once

/*
 * In enqueue: put @p into a queue of @cpu, whose rq lock is held, with the @rest of its slice if it
 * was preempted (0: a whole one) by a task of kind @by. @preempt: it preempts current, if no idle
 * CPU takes it.
 */
static void queue_task(struct task_struct *p, struct task_ctx *tctx, s32 cpu, struct cpu_ctx *cctx,
		       u64 rest, u32 by, bool preempt, u64 enq_flags)
{
	u64 now = locked_now(cpu), at = tctx->deadline, slice = rest ?: tunables.slice_ns, queue;
	bool critical = enq_flags & SCX_ENQ_WAKEUP && is_critical(p);
	/* queue_add() overwrites it */
	bool waits = waits_already(tctx) && tctx->queued_cpu == cpu;

	queue = queue_add(p, tctx, cpu, cctx, now);
	if (time_before(cctx->last_deadline, at))
		cctx->last_deadline = at;
	if (critical) {
		at = cctx->vclock - FIRST_NS;
	} else if (cctx->first_come && !is_critical(p) && !(p->flags & PF_KTHREAD)) {
		at = waits ? p->scx.dsq_vtime : ++cctx->last_deadline;
		slice = LONG_QUEUE_SLICE_NS;
		preempt = false;
	} else if (rest || (tctx->has_credit && !is_short(tctx))) {
		at = queue_key(cpu, at, rest ? 0 : to_vtime(tunables.credit_ns, task_weight(tctx)));
	}
	tctx->resumes = rest > 0;
	/* The CPU's own queue, where others can take it. */
	scx_bpf_dsq_insert_vtime(p, queue, slice, at, enq_flags);
	if (queue == cpu) {
		mark_overloaded(cpu);
		if (by != BY_KTHREAD)
			preempt = !kick_idle_for(p, tctx, cpu, now) && preempt;
	}
	if (preempt) {
		make_way(cctx, BY_WAKEE);
		kick_cpu(cpu, SCX_KICK_PREEMPT);
	}
	stat_inc(critical ? STAT_KTHREAD : preempt ? STAT_PREEMPT : STAT_QUEUED);
}

/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Wakeup preemption, by the rule of deadline.bpf.h:
 *
 *	wakee is SCHED_BATCH, SCHED_IDLE, cpu.idle? ----------------------------> it waits
 *	current is SCHED_IDLE, cpu.idle? ---------------------------------------> it preempts
 *	sync wakeup, or current's deadline first? ------------------------------> it waits
 *	current woken by sync, not short while the wakee is, or ran a slice? ---> it preempts, else it waits
 *
 * An idle CPU that may take the wakee does, and then no task is preempted (enqueue). The wakee stays in its queue until the
 * CPU is free: current may be in the kernel for milliseconds, and nothing can be stolen from the local DSQ.
 *
 * Per-CPU kernel threads and the loader preempt everything but each other when they wake.
 */
#pragma once

/* So far before a CPU's clock that no deadline is earlier. */
#define FIRST_NS (1ULL << 60)

/*
 * How @p comes to a CPU that was idle a moment ago. That CPU may find another task while this one is under way; that one is
 * preempted then, for a task that waits behind another in the local DSQ cannot be stolen.
 *
 * If a higher class has taken the CPU by then, the kernel puts the task back by enqueue() (SCX_ENQ_IMMED, 0 before 7.1).
 */
static u64 arrival_flags(const struct task_struct *p)
{
	return SCX_ENQ_IMMED | (no_preempt(p) ? 0 : SCX_ENQ_PREEMPT);
}

/* Does @p, which wakes on the CPU of @cctx, preempt its running task? The rq lock is held. */
static bool preempts(const struct task_struct *p, struct task_ctx *tctx, const struct cpu_ctx *cctx, u64 now)
{
	if (!tunables.wakeup_preempt || !cctx->curr_weight || never_preempts(p, tctx))
		return false;
	if (cctx->curr_idle_policy)
		return true;
	if (tctx->sync_wakeup || cctx->curr_critical || !vtime_before(deadline(p, tctx), cctx->curr_deadline))
		return false;
	/* Signed, for @now may be read from another CPU's clock. */
	return cctx->curr_sync || (is_short(tctx) && !cctx->curr_short) ||
	       (s64)(now - cctx->curr_started) >= (s64)tunables.slice_ns;
}

/*
 * In enqueue of @p, a kernel thread of @cpu, whose rq lock is held: it runs at once. The task that runs there is preempted,
 * and is not offered to idle CPUs: the kernel thread is brief, and that task's caches are warm (kthread_pending).
 */
static void run_at_once(struct task_struct *p, struct cpu_ctx *cctx, u64 enq_flags)
{
	if (cctx->curr_weight && !cctx->curr_critical) {
		cctx->kthread_pending = true;
		cctx->curr_weight = 0;
		enq_flags |= SCX_ENQ_PREEMPT;
	}
	scx_bpf_dsq_insert(p, SCX_DSQ_LOCAL, tunables.slice_ns, enq_flags);
}

/*
 * Current of @cpu makes way for the first task of the queue, if that is still there when dispatch() looks. A SCHED_IDLE task
 * makes way for any other.
 */
static void preempt_curr(s32 cpu, struct cpu_ctx *cctx)
{
	cctx->curr_weight = 0; /* one at a time */
	cctx->preempted = cctx->curr_idle_policy;
	kick_cpu(cpu, SCX_KICK_PREEMPT);
}

/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Wakeup preemption:
 *
 *	wakee is SCHED_BATCH, SCHED_IDLE, cpu.idle? ----------------------------> it waits
 *	current is SCHED_IDLE, cpu.idle? ---------------------------------------> it preempts
 *	sync wakeup, or current's deadline first? ------------------------------> it waits
 *	current was preempted and has the rest of its slice, wakee not short? --> it waits
 *	current is about to sleep? ---------------------------------------------> it waits
 *	else -------------------------------------------------------------------> it preempts
 *
 * Current is about to sleep if what is left of its burst, by the estimate of deadline.bpf.h, is
 * half a slice or less. Once it has overrun that it is not. To preempt it would take two switches,
 * and those that wait for what it holds would wait, too.
 *
 * An idle CPU that may take the wakee does, and then no task is preempted (enqueue). A wakee that
 * may migrate stays in its queue until the CPU is free: current may be in the kernel for
 * milliseconds, and nothing can be stolen from the local DSQ. One that may not goes there at once.
 *
 * Per-CPU kernel threads and the loader preempt everything but each other when they wake.
 */
#pragma once

/*
 * A task that preempts none waits for the tick of what it finds on @cpu, if that can be without one
 * it does not.
 */
static bool waits_on_arrival(const struct task_struct *p, s32 cpu)
{
	return no_preempt(p) && !is_nohz_full(cpu);
}

/*
 * How @p comes to @cpu, which was idle a moment ago. That CPU may find another task while this one
 * is under way; that one is preempted then, for a task that waits behind another in the local DSQ
 * cannot be stolen.
 *
 * If a higher class has taken the CPU by then, the kernel puts the task back by enqueue()
 * (SCX_ENQ_IMMED, 0 before 7.1).
 */
static u64 arrival_flags(const struct task_struct *p, s32 cpu)
{
	return SCX_ENQ_IMMED | (waits_on_arrival(p, cpu) ? 0 : SCX_ENQ_PREEMPT);
}

/* By its estimate; @now may be read from another CPU's clock. */
static bool is_about_to_sleep(const struct cpu_ctx *cctx, u64 now)
{
	s64 left = cctx->curr_left - (s64)(now - cctx->curr_started);

	return left > 0 && left <= (s64)(tunables.slice_ns / 2);
}

/* Does @p, which wakes on @cpu, preempt the task that runs there? The rq lock is held. */
static __always_inline bool preempts(const struct task_struct *p, struct task_ctx *tctx,
				     const struct cpu_ctx *cctx, s32 cpu)
{
	if (!tunables.wakeup_preempt || !cctx->curr_weight || never_preempts(p, tctx))
		return false;
	if (cctx->curr_idle_policy)
		return true;
	if (tctx->sync_wakeup || cctx->curr_critical || (cctx->curr_resumes && !is_short(tctx)) ||
	    !time_before(tctx->deadline, cctx->curr_deadline))
		return false;
	return !is_about_to_sleep(cctx, locked_now(cpu));
}

/* Current of the CPU of @cctx makes way; one wakee preempts it at a time. */
static void make_way(struct cpu_ctx *cctx, enum preempter by)
{
	cctx->curr_weight = 0;
	cctx->preempted_by = by;
}

/*
 * In enqueue of @p, a kernel thread of @cpu, whose rq lock is held: it runs at once. The task that
 * runs there is preempted, and is not offered to idle CPUs: the kernel thread is brief, and that
 * task's caches are warm.
 */
static void run_at_once(struct task_struct *p, struct cpu_ctx *cctx, u64 enq_flags)
{
	if (cctx->curr_weight && !cctx->curr_critical) {
		make_way(cctx, BY_KTHREAD);
		enq_flags |= SCX_ENQ_PREEMPT;
	} else {
		/* Before a pinned task that is next. */
		enq_flags |= SCX_ENQ_HEAD;
	}
	scx_bpf_dsq_insert(p, SCX_DSQ_LOCAL, tunables.slice_ns, enq_flags);
}

/*
 * In enqueue of @p: what is left of its slice, if it was preempted before that was over, and in @by
 * what preempted it. 0: it is queued by its deadline. A long queue is not kept waiting for it, nor
 * does any task wait for SCHED_IDLE and cpu.idle.
 */
static u64 rest_of_slice(const struct task_struct *p, struct task_ctx *tctx,
			 const struct cpu_ctx *cctx, u32 *by)
{
	s64 left = tctx->slice_end - p->se.sum_exec_runtime;

	*by = tctx->preempted_by;
	tctx->preempted_by = BY_NONE;
	return *by && left > 0 && !cctx->first_come && !is_idle_policy(p, tctx) ? left : 0;
}

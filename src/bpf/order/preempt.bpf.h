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
 * Does @p wait for a tick rather than preempt the task that it finds on @cpu? Not where there may
 * be no tick.
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
	if (!tunables.wakeup_preempt || !is_preemptible(cctx) || never_preempts(p, tctx))
		return false;
	if (cctx->curr_idle_policy)
		return true;
	if (tctx->sync_wakeup || (cctx->curr_resumes && !is_short(tctx)) ||
	    !time_before(tctx->deadline, cctx->curr_deadline))
		return false;
	return !is_about_to_sleep(cctx, locked_now(cpu));
}

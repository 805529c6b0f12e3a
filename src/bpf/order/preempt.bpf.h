/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Wakeup preemption, decided by preempts().
 *
 * Current counts as about to sleep if at most half a slice remains of its burst, by the estimate of
 * deadline.bpf.h; it does not if it has overrun the estimate. A preemption shortly before the sleep
 * would cost two switches, and delay the tasks that wait for a lock of current.
 *
 * If an idle CPU takes the wakee, no task is preempted (queue_task()). A wakee that may migrate
 * remains in its queue until the CPU is free, because current may be in the kernel for
 * milliseconds, and a task in the local DSQ cannot be stolen. A pinned wakee goes to the local DSQ
 * immediately.
 *
 * Per-CPU kernel threads and the loader preempt any task except each other when they wake.
 */
#pragma once

/*
 * Return true if @p waits for a tick instead of preempting a task that it finds on @cpu. False if
 * @cpu is nohz_full, because it may have no tick.
 */
static bool waits_on_arrival(const struct task_struct *p, s32 cpu)
{
	return no_preempt(p) && !is_nohz_full(cpu);
}

/*
 * Return the flags for the insertion of @p on @cpu, which was idle a moment ago. If @cpu finds
 * another task meanwhile, that task is preempted (SCX_ENQ_PREEMPT), because @p could not be stolen
 * from the local DSQ behind it. If a higher class takes @cpu meanwhile, the kernel enqueues @p
 * again (SCX_ENQ_IMMED, from 7.1 on; 0 before).
 */
static u64 arrival_flags(const struct task_struct *p, s32 cpu)
{
	return SCX_ENQ_IMMED | (waits_on_arrival(p, cpu) ? 0 : SCX_ENQ_PREEMPT);
}

/* Return true if current is about to sleep, by its estimate. @now may be another CPU's time. */
static bool is_about_to_sleep(const struct cpu_ctx *cctx, u64 now)
{
	s64 left = cctx->curr_left - (s64)(now - cctx->curr_started);

	return left > 0 && left <= (s64)(tunables.slice_ns / 2);
}

/*
 * In enqueue: return true if @p, which wakes on @cpu, preempts current. The rq lock is held.
 *
 * 1. @p waits with --no-wakeup-preempt. It waits if current is critical, not a task of sched_ext,
 *    or being preempted already. It waits if it is SCHED_BATCH, SCHED_IDLE or cpu.idle.
 * 2. @p preempts a SCHED_IDLE or cpu.idle current.
 * 3. @p waits unless its deadline is before that of current. Unless its slice is shorter than that
 *    of current, as its program has asked for, it waits if its wakeup is sync, or if it is not
 *    short, and current, preempted earlier, runs the rest of its slice.
 * 4. @p waits if current is about to sleep. Otherwise @p preempts current.
 */
static __always_inline bool preempts(const struct task_struct *p, struct task_ctx *tctx,
				     const struct cpu_ctx *cctx, u64 now)
{
	if (!tunables.wakeup_preempt || !is_preemptible(cctx) || never_preempts(p, tctx))
		return false;
	if (cctx->curr_idle_policy)
		return true;
	if (!time_before(tctx->deadline, cctx->curr_deadline))
		return false;
	if (tctx->slice >= cctx->curr_slice &&
	    (tctx->sync_wakeup || (cctx->curr_resumes && !is_short(tctx))))
		return false;
	return !is_about_to_sleep(cctx, now);
}

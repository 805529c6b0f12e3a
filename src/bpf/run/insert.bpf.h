/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The insertion of a task into the queues. enqueue() determines these values:
 *
 *	deadline   the place of the task in the order                       place_again()
 *	rest       the rest of its slice, if it was preempted; else 0       place_again()
 *	preempt    the task wakes, and preempts current                     insert_task()
 */
#pragma once

/*
 * In enqueue: place @p in the order of @cpu. @woke: it slept or was throttled. Return the rest of
 * its slice if it was preempted before the end of the slice; such a task keeps its deadline if that
 * is earlier than the new one. Return 0 if it gets a new slice: in all other cases, and for
 * SCHED_IDLE and cpu.idle, because no other task should wait for their rest. The rq lock is held.
 */
static u64 place_again(struct task_struct *p, struct task_ctx *tctx, s32 cpu, bool woke)
{
	s64 left = tctx->slice_end - p->se.sum_exec_runtime;
	u64 kept;

	rebase(tctx, cpu);
	kept = tctx->deadline;
	place(p, tctx, cpu, woke);
	if (!tctx->preempted_by || left <= 0 || is_idle_policy(p, tctx))
		return 0;
	if (time_before(kept, tctx->deadline))
		tctx->deadline = kept;
	return left;
}

/*
 * In enqueue: run @p immediately, a per-CPU kernel thread or a pinned thread of the loader. Do not
 * offer current to idle CPUs: the preemption is brief, and the caches of current are warm.
 */
static void run_at_once(struct task_struct *p, struct task_ctx *tctx, s32 cpu, struct cpu_ctx *cctx,
			u64 enq_flags)
{
	if (is_preemptible(cctx)) {
		cctx->preempted_by = BY_KTHREAD;
		enq_flags |= SCX_ENQ_PREEMPT;
	} else {
		/* At the head: a pinned task may wait in the local DSQ already (is_next()). */
		enq_flags |= SCX_ENQ_HEAD;
	}
	local_add(tctx, cpu, cctx, 1); /* virtual time does not serve it */
	/* The local DSQ, because no other task comes before a critical one. */
	scx_bpf_dsq_insert(p, SCX_DSQ_LOCAL, slice_of(p), enq_flags);
}

/*
 * In enqueue: put @p into a queue of @cpu, with the @rest of its slice (0: a new slice). @critical:
 * @p is the loader, and wakes. Even if @preempt, @p does not preempt current if an idle CPU takes
 * @p. Return true if @p preempts current. The rq lock of @cpu is held.
 */
static bool queue_task(struct task_struct *p, struct task_ctx *tctx, s32 cpu, struct cpu_ctx *cctx,
		       u64 now, u64 rest, bool preempt, bool critical, u64 enq_flags)
{
	u64 at = tctx->deadline, slice = rest ?: tctx->slice, queue;

	queue = queue_add(p, tctx, cpu, cctx, now);
	if (critical) {
		at = cctx->vtime - FIRST_NS;
	} else if (rest || (tctx->has_credit && !is_short(tctx))) {
		at = queue_key(cpu, at, tctx->vruntime + request(tctx, task_weight(tctx)), rest);
	}
	tctx->resumes = rest > 0;
	/* A queue of this CPU, because the CPU is busy; idle CPUs take tasks that may migrate. */
	scx_bpf_dsq_insert_vtime(p, queue, slice, at, enq_flags);
	if (queue == cpu) {
		mark_overloaded(cpu);
		if (tctx->preempted_by != BY_KTHREAD && kick_idle_for(p, tctx, cpu, now))
			preempt = false;
	}
	if (preempt)
		kick_cpu(cpu, SCX_KICK_PREEMPT);
	return preempt;
}

/*
 * In enqueue: insert @p on @cpu, because no idle CPU was found; @rest as from place_again(). The rq
 * lock of @cpu is held.
 *
 * 1. A pinned critical task that wakes (per-CPU kernel thread, loader) runs immediately.
 * 2. On a nohz_full CPU current continues if it is alone; running() decides about its slice.
 * 3. A pinned task that preempts current, or that the CPU will pick next (is_next()), goes to the
 *    local DSQ, which needs no dispatch(). Not with SCX_ENQ_REENQ or SCX_ENQ_LAST.
 * 4. All other tasks wait in a queue, from where idle CPUs may take them, even if they preempt.
 */
static void insert_task(struct task_struct *p, struct task_ctx *tctx, s32 cpu, struct cpu_ctx *cctx,
			u64 now, u64 rest, u64 enq_flags)
{
	bool wakes = enq_flags & SCX_ENQ_WAKEUP, pinned = !is_migratable(p);
	bool critical = false, preempt;

	if (wakes && is_critical(p)) {
		if (pinned) {
			stat_inc(STAT_KTHREAD);
			run_at_once(p, tctx, cpu, cctx, enq_flags);
			return;
		}
		critical = true;
		preempt = is_preemptible(cctx);
	} else {
		preempt = wakes && preempts(p, tctx, cctx, now);
	}
	if (is_nohz_full(cpu) && enq_flags & SCX_ENQ_LAST) {
		/* The local DSQ, because current continues. */
		scx_bpf_dsq_insert(p, SCX_DSQ_LOCAL, slice_of(p), enq_flags);
	} else if (pinned && !(enq_flags & (SCX_ENQ_REENQ | SCX_ENQ_LAST)) &&
		   (preempt || is_next(cctx, tctx))) {
		if (preempt)
			enq_flags |= SCX_ENQ_PREEMPT;
		local_add(tctx, cpu, cctx, task_weight(tctx));
		/* The local DSQ, because no other CPU may take the task, and it is the next one. */
		scx_bpf_dsq_insert(p, SCX_DSQ_LOCAL, rest ?: tctx->slice, enq_flags);
	} else {
		preempt = queue_task(p, tctx, cpu, cctx, now, rest, preempt, critical, enq_flags);
	}
	if (preempt)
		cctx->preempted_by = BY_WAKEE;
	stat_inc(critical ? STAT_KTHREAD : preempt ? STAT_PREEMPT : STAT_QUEUED);
	/* Kick the CPU: it switches to the idle task, although @p has a slice again. */
	if (enq_flags & SCX_ENQ_LAST)
		kick_cpu(cpu, 0);
}

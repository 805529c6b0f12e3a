/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * How a task comes to its place in the queues, and waits there. What enqueue() knows of it:
 *
 *	deadline       its place                                                place_again()
 *	rest           what is left of its slice, if it was preempted; else 0
 *	preempt        it wakes, and current makes way for it                   insert_task()
 */
#pragma once

/*
 * In enqueue: place @p, which slept or was throttled (@woke) or not, in the order of @cpu. Return
 * what is left of its slice if it was preempted before that was over: then it keeps its deadline.
 * 0: it has a whole slice again. In FIFO mode there is no rest, nor for tasks of SCHED_IDLE and
 * cpu.idle, for which no other task is to wait.
 */
static u64 place_again(struct task_struct *p, struct task_ctx *tctx, s32 cpu, struct cpu_ctx *cctx,
		       bool woke)
{
	s64 left = tctx->slice_end - p->se.sum_exec_runtime;
	u64 kept;

	rebase(tctx, cpu);
	kept = tctx->deadline;
	place(p, tctx, cpu, woke);
	if (!tctx->preempted_by || left <= 0 || cctx->fifo || is_idle_policy(p, tctx))
		return 0;
	if (time_before(kept, tctx->deadline))
		tctx->deadline = kept;
	return left;
}

/*
 * @p, a kernel thread of this CPU, runs immediately. Current is preempted, and is not offered to
 * idle CPUs: the kernel thread is brief, and current's caches are warm.
 */
static void run_at_once(struct task_struct *p, struct cpu_ctx *cctx, u64 enq_flags)
{
	if (is_preemptible(cctx)) {
		cctx->preempted_by = BY_KTHREAD;
		enq_flags |= SCX_ENQ_PREEMPT;
	} else {
		/* Before a pinned task that is next. */
		enq_flags |= SCX_ENQ_HEAD;
	}
	/* The local DSQ, because no other task comes before it. */
	scx_bpf_dsq_insert(p, SCX_DSQ_LOCAL, tunables.slice_ns, enq_flags);
}

/*
 * In enqueue: put @p into a queue of @cpu, whose rq lock is held, with the @rest of its slice.
 * @critical: it is the loader, and wakes. Return true if @p preempts current, as @preempt says,
 * because no idle CPU takes it.
 */
static bool queue_task(struct task_struct *p, struct task_ctx *tctx, s32 cpu, struct cpu_ctx *cctx,
		       u64 rest, bool preempt, bool critical, u64 enq_flags)
{
	u64 now = locked_now(cpu), at = tctx->deadline, slice = rest ?: tunables.slice_ns, queue;
	bool waits = waits_already(tctx) && tctx->queued_cpu == cpu; /* queue_add() overwrites it */

	queue = queue_add(p, tctx, cpu, cctx, now);
	if (time_before(cctx->last_deadline, at))
		cctx->last_deadline = at;
	if (critical) {
		at = cctx->vclock - FIRST_NS;
	} else if (cctx->fifo && !is_critical(p) && !(p->flags & PF_KTHREAD)) {
		at = waits ? p->scx.dsq_vtime : ++cctx->last_deadline;
		slice = FIFO_SLICE_NS;
		preempt = false;
	} else if (rest || (tctx->has_credit && !is_short(tctx))) {
		at = queue_key(cpu, at, rest ? 0 : to_vtime(tunables.credit_ns, task_weight(tctx)));
	}
	tctx->resumes = rest > 0;
	/* The CPU's own queue, where others can take it. */
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
 * In enqueue: @p found no idle CPU, and waits for @cpu, whose rq lock is held; @rest as from
 * place_again().
 *
 * 1. A kernel thread of this CPU runs immediately when it wakes.
 * 2. On a nohz_full CPU a task that was alone continues, and running() checks its slice.
 * 3. Another task that may use this CPU only, and preempts current or is next whatever current
 *    does, goes to the local DSQ: no dispatch() has to find it.
 * 4. All others wait in a queue, from where idle CPUs may take them, also those that preempt.
 */
static void insert_task(struct task_struct *p, struct task_ctx *tctx, s32 cpu, struct cpu_ctx *cctx,
			u64 rest, u64 enq_flags)
{
	bool wakes = enq_flags & SCX_ENQ_WAKEUP, pinned = !is_migratable(p);
	bool critical = false, preempt;

	if (wakes && is_critical(p)) {
		if (pinned) {
			stat_inc(STAT_KTHREAD);
			run_at_once(p, cctx, enq_flags);
			return;
		}
		critical = true;
		preempt = is_preemptible(cctx);
	} else {
		preempt = wakes && preempts(p, tctx, cctx, cpu);
	}
	if (is_nohz_full(cpu) && enq_flags & SCX_ENQ_LAST) {
		/* The local DSQ, because it continues. */
		scx_bpf_dsq_insert(p, SCX_DSQ_LOCAL, tunables.slice_ns, enq_flags);
	} else if (pinned && !(enq_flags & (SCX_ENQ_REENQ | SCX_ENQ_LAST)) &&
		   (preempt || is_next(cpu, cctx, tctx))) {
		if (preempt)
			enq_flags |= SCX_ENQ_PREEMPT;
		/* The local DSQ, because no other CPU may take the task, and none comes first. */
		scx_bpf_dsq_insert(p, SCX_DSQ_LOCAL, rest ?: tunables.slice_ns, enq_flags);
	} else {
		preempt = queue_task(p, tctx, cpu, cctx, rest, preempt, critical, enq_flags);
	}
	if (preempt)
		cctx->preempted_by = BY_WAKEE;
	stat_inc(critical ? STAT_KTHREAD : preempt ? STAT_PREEMPT : STAT_QUEUED);
	/* It had no slice left, and now has: the CPU is about to go idle. */
	if (enq_flags & SCX_ENQ_LAST)
		kick_cpu(cpu, 0);
}

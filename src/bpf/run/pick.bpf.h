/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The choice of the next task, in dispatch, which the kernel calls only if the local DSQ is empty.
 *
 * 1. If the timer of throttled tasks has fired, queue those that are due (run/throttle.bpf.h).
 * 2. If current has yielded to a waiting task, run that task. If a task preempts current, and tasks
 *    wait, current may not continue: skip step 4.
 * 3. If balancing with another CPU is due, and a task there has more positive lag or has waited for
 *    longer, run that task (steal/balance.bpf.h).
 * 4. If current may continue, and its deadline is before that of the first waiting task, run
 *    current.
 * 5. If tasks wait, run the first one.
 * 6. Otherwise steal a task (steal/steal.bpf.h), or run a task that was queued during the search.
 *    If there is none, the CPU goes idle.
 */
#pragma once

enum {
	REQUEUE_NS = 20000000, /* between two checks of weights: a few slices */
	STARVE_CHECKS = 8,     /* checks for starving tasks in starve_ns */
};

/* In tick of @cpu: note which checks are due in the next dispatch(). */
static void set_due(s32 cpu, struct cpu_ctx *cctx, u64 now)
{
	u8 due = 0;

	if (tunables.steal && now - cctx->balanced_at >= BALANCE_NS) {
		cctx->balanced_at = now;
		cctx->balance_with = balance_victim(cpu);
		if (cctx->balance_with >= 0 &&
		    (!is_tickless(cctx) || may_take_first(cpu, cctx->balance_with)))
			due |= DUE_BALANCE;
	}
	if (cctx->queued && now - cctx->starved_at >= machine.starve_ns / STARVE_CHECKS) {
		cctx->starved_at = now;
		due |= DUE_STARVED;
	}
	if (nr_groups && cctx->queued && now - cctx->requeued_at >= REQUEUE_NS) {
		cctx->requeued_at = now;
		due |= DUE_SHARES;
	}
	cctx->due |= due;
}

/*
 * Return the context of @prev if it may run for *@slice more, with an up-to-date deadline. Return
 * NULL if @prev is NULL, sleeps, is to move to another CPU, or has no slice of cpu.max left, and
 * throttle() then decides whether it waits. The rq lock of @cpu is held.
 */
static struct task_ctx *can_keep_running(s32 cpu, struct task_struct *prev, u64 *slice)
{
	struct task_ctx *tctx;

	if (!prev || !(prev->scx.flags & SCX_TASK_QUEUED))
		return NULL;
	tctx = task_ctx(prev);
	if (!tctx)
		return NULL;
	charge(prev, tctx, cpu_ctx(cpu));
	*slice = slice_of(prev);
	if (is_limited(tctx) && !is_exempt(prev)) {
		*slice = min(take_slice(cpu, tctx->group, scx_bpf_now()), *slice);
		if (!*slice)
			return NULL;
	}
	*slice = min(*slice, cpu_ctx(cpu)->queued_slice);
	tctx->at_user = false;
	if (tctx->move_why)
		return NULL;
	set_deadline(prev, tctx, cpu_ctx(cpu));
	return tctx;
}

/*
 * Account that @cpu went idle while the kernel bypassed this scheduler (suspend) and did not call
 * update_idle(). Not inlined, to save stack in the callers. Return 0.
 */
__noinline s32 account_bypassed_idle(s32 cpu)
{
	pelt_update(cpu, cpu_ctx(cpu), scx_bpf_now(), false);
	return 0;
}

/*
 * In dispatch of @cpu, whose queues are empty, or were emptied by another CPU just now. Return true
 * if there is a task now. A steal drops the rq lock of @cpu.
 */
__noinline bool run_other(s32 cpu)
{
	struct cpu_ctx *cctx = cpu_ctx(cpu);

	if (steal(cpu))
		return true;
	/*
	 * The idle CPU was kicked, perhaps claimed, but found no task. Set its idle bit again, then
	 * look for overload bits: this CPU's half of the handshake with enqueue().
	 */
	if (is_idle_task(bpf_get_current_task_btf())) {
		if (cctx->pelt.running)
			account_bypassed_idle(cpu);
		mark_idle(cpu, cctx);
		if (work_in_reach(cpu) && steal(cpu))
			return true;
		/*
		 * Repeat a kick that had no effect, because it arrived before schedule() returned:
		 * during a steal the CPU was claimed, or the timer of throttled tasks fired. Kick
		 * also after await_insertion(), once, because a task is about to be inserted.
		 */
		cctx->checks_again = cctx->awaits_insertion && !cctx->checks_again;
		if (cctx->checks_again || READ_ONCE(cctx->throttle_timer_fired) ||
		    (cctx->idle && !map_test(&idle_map, cpu_layout(cpu)->slot)))
			kick_cpu(cpu, 0);
	}
	/* A task may have been queued here during the steal. */
	return cctx->queued &&
	       (take_queued(cpu, cctx, cpu) || take_queued(cpu, cctx, pinned_queue(cpu)));
}

/*
 * In dispatch of @cpu: move tasks of @queue forward if they starve, or if their deadline is earlier
 * now. Start with the last task, because the last ones would wait longest. Bounded by @checks
 * tasks. Return 0.
 *
 * 1. A task that has waited for starve_ns is next, whatever its weight. By its deadline it could
 *    wait for minutes alongside heavy tasks, and the kernel's watchdog ejects such a scheduler.
 * 2. A task whose weight has doubled since it was queued gets a new deadline. At that time many
 *    tasks of its group were runnable, and the others sleep now.
 */
__noinline s32 requeue_late(s32 cpu, u64 queue, u32 checks)
{
	struct cpu_ctx *cctx = cpu_ctx(cpu);
	u64 now = scx_bpf_now();
	struct task_struct *p;

	bpf_for_each(scx_dsq, p, queue, SCX_DSQ_ITER_REV)
	{
		struct task_ctx *tctx = task_ctx(p);
		u64 at = p->scx.dsq_vtime;
		bool starves;
		u32 weight;

		if (!tctx)
			break;
		weight = READ_ONCE(tctx->queued_weight); /* 0: another CPU has taken it */
		if (tctx->group)
			update_share(tctx, now);
		starves = wait_time(tctx, now) >= machine.starve_ns;
		if (starves) {
			at = cctx->vtime - FIRST_NS / 2; /* after the loader */
		} else if (weight && task_weight(tctx) / 2 >= weight) {
			set_deadline(p, tctx, cctx);
			at = tctx->deadline;
		}
		if (time_before(at, p->scx.dsq_vtime)) {
			if (starves)
				stat_inc(STAT_STARVED);
			scx_bpf_dsq_move_set_vtime(BPF_FOR_EACH_ITER, at);
			scx_bpf_dsq_move_vtime(BPF_FOR_EACH_ITER, p, queue, 0);
		}
		checks -= bpf_arena_loop_one;
		if (!checks)
			break;
	}
	return 0;
}

/*
 * In dispatch of @cpu: take the task to which current yielded. Return false if the task has moved,
 * or is behind the first MAX_PULL_CHECKS tasks of its queue.
 */
__noinline bool take_yielded(s32 cpu)
{
	struct cpu_ctx *cctx = cpu_ctx(cpu);
	struct pull want = {.why = PULL_YIELD, .pid = cctx->yield_to};

	return pull(cpu, cctx->yield_from, cctx->yield_from, &want) ||
	       (cctx->yield_from == cpu && pull(cpu, cpu, pinned_queue(cpu), &want));
}

/*
 * In dispatch: return true if current, @p, continues before @next, the first waiting task.
 *
 * 1. If neither program has asked for a slice, the earlier deadline comes first.
 * 2. Otherwise a task without negative lag comes before one with negative lag (EEVDF's
 *    eligibility). Else a task with a short slice would run one after another, until its negative
 *    lag is about as long as the slice of the other task.
 * 3. If both or neither have negative lag, the earlier deadline comes first.
 */
static bool keeps_turn(const struct task_struct *p, const struct task_ctx *tctx,
		       struct task_struct *next, const struct cpu_ctx *cctx)
{
	bool earlier = time_before(tctx->deadline, next->scx.dsq_vtime), is_ahead;
	const struct task_ctx *other;

	if (!p->se.custom_slice && !next->se.custom_slice)
		return earlier;
	other = task_ctx(next);
	if (!other)
		return earlier;
	is_ahead = time_before(cctx->vtime, tctx->vruntime);
	return is_ahead == time_before(cctx->vtime, other->vruntime) ? earlier : !is_ahead;
}

/* In dispatch of @cpu: let current, @p, continue for @slice. Its deadline is up to date. */
static void keep_running(s32 cpu, struct cpu_ctx *cctx, struct task_struct *p,
			 struct task_ctx *tctx, u64 slice)
{
	/*
	 * Current is to lose its tick. The kernel checks the slice only when it picks a task: do
	 * not keep current, so that the kernel enqueues it and picks it again.
	 */
	if (is_nohz_full(cpu) && !is_tickless(cctx) && is_alone(tctx, cpu, cctx)) {
		stat_inc(STAT_EMPTY);
		return;
	}
	stat_inc(STAT_KEEP);
	cctx->preempted_by = BY_NONE;
	begin_run(p, tctx, cctx, slice);
	if (is_tickless(cctx))
		slice = tickless_slice(tctx, cpu, cctx, slice);
	scx_bpf_task_set_slice(p, slice);
	set_slice_timer(cpu, cctx, cctx->curr_started, slice, cctx->queued);
}

/* What dispatch() is about to do. */
struct choice {
	struct task_ctx *curr;	  /* of current, if it may continue; else NULL */
	struct task_struct *next; /* the first waiting task, if current or balance() needs it */
	u64 queue;		  /* the queue that has it */
	u64 slice;		  /* of current, if it continues */
	bool keep;		  /* current continues */
};

/* Put tasks that have waited for too long, or whose shares have changed, in their places. */
static void requeue_due(s32 cpu, struct cpu_ctx *cctx, u8 due)
{
	u32 checks = due & DUE_STARVED ? MAX_STARVE_CHECKS : MAX_PULL_CHECKS;

	if (!(due & (DUE_SHARES | DUE_STARVED)) || !cctx->queued)
		return;
	requeue_late(cpu, cpu, checks);
	requeue_late(cpu, pinned_queue(cpu), checks);
}

/*
 * Choose between current (@prev; NULL if it is not a task of sched_ext) and the waiting tasks. If
 * @preempted and tasks wait, current may not continue. The rq lock of @cpu is held.
 */
static void choose(s32 cpu, struct cpu_ctx *cctx, struct task_struct *prev, bool preempted, u8 due,
		   struct choice *c)
{
	/* Another CPU may have taken the task that preempted current. */
	if (preempted)
		clear_empty_queues(cpu, cctx);
	if (!preempted || !cctx->queued)
		c->curr = can_keep_running(cpu, prev, &c->slice);
	requeue_due(cpu, cctx, due);
	/* Most often current sleeps and one queue has tasks: there is nothing to compare. */
	c->queue = cctx->queued & QUEUED_MOVABLE ? cpu : pinned_queue(cpu);
	if (cctx->queued && (c->curr || due || cctx->queued == (QUEUED_MOVABLE | QUEUED_PINNED)))
		c->next = first_queued(cpu, cctx, &c->queue);
	c->keep = c->curr && (!c->next || keeps_turn(prev, c->curr, c->next, cctx));
	if (c->keep && c->next && is_tickless(cctx)) {
		/* Current would continue without a tick. */
		c->keep = false;
		kick_cpu(cpu, SCX_KICK_PREEMPT);
	}
}

/* Return true if balancing is due, and a task of another CPU was pulled in place of the choice. */
static bool balances(s32 cpu, struct cpu_ctx *cctx, u8 due, const struct choice *c)
{
	struct task_ctx *own;

	if (!(due & DUE_BALANCE) || (!c->keep && !c->next))
		return false;
	if (c->keep)
		return balance(cpu, c->curr->deadline, NULL);
	own = task_ctx(c->next);
	/*
	 * The first task woke a short time ago, so all tasks of a crowded CPU have waited for
	 * longer. Postpone balancing to the next dispatch().
	 */
	if (own && own->has_credit) {
		cctx->due |= DUE_BALANCE;
		return false;
	}
	return balance(cpu, c->next->scx.dsq_vtime, own);
}

/*
 * In dispatch of @cpu: move the next task to the local DSQ, or let @prev continue. @prev is NULL if
 * current is not a task of sched_ext. The steps are numbered as at the head of this file.
 */
static void pick_next(s32 cpu, struct cpu_ctx *cctx, struct task_struct *prev)
{
	bool preempted = cctx->preempted_by;
	struct choice c = {};
	u8 due = cctx->due;

	/* 1. */
	if (READ_ONCE(cctx->throttle_timer_fired))
		offer_unthrottled(cpu);
	cctx->due = 0;

	/* 2. */
	if (due & DUE_YIELD && take_yielded(cpu))
		return;
	choose(cpu, cctx, prev, preempted, due, &c);

	/* 3. */
	if (balances(cpu, cctx, due, &c))
		return;
	/* A task of the local DSQ preempted current while balance() had dropped the rq lock. */
	if (!preempted && cctx->preempted_by && scx_bpf_dsq_nr_queued(SCX_DSQ_LOCAL_ON | cpu))
		return;

	/* 4, 5. */
	if (!c.keep && cctx->queued && take_queued(cpu, cctx, c.queue))
		return;
	if (c.curr) {
		keep_running(cpu, cctx, prev, c.curr, c.slice);
		return;
	}

	/* 6. */
	if (!run_other(cpu))
		stat_inc(STAT_EMPTY);
}

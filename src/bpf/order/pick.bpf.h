/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * What a CPU runs next, in dispatch. The kernel asks only if the local DSQ is empty (queue.bpf.h).
 *
 * 1. A throttled task's time has come (cgroup/throttle.bpf.h): it is put into a queue, and
 *    compared.
 * 2. Current has yielded to a task that waits: that one. It was preempted: the first of the queues.
 * 3. A look at other CPUs is due, and a task has more positive lag there (steal/balance.bpf.h).
 * 4. Current may continue, and its deadline is before the first one of the queues: current. Not in
 *    FIFO mode.
 * 5. The first task of the queues.
 * 6. Another CPU's task (steal/steal.bpf.h), or what was queued during that search; else the CPU
 *    idles.
 */
#pragma once

enum {
	REQUEUE_NS = 20000000, /* between two checks of weights: a few slices */
	STARVE_LOOKS = 8,      /* checks for tasks that starve, in starve_ns */
};

/* In tick: note what is due in the next dispatch() of @cpu. */
static void note_due(s32 cpu, struct cpu_ctx *cctx, u64 now)
{
	u8 due = 0;

	if (tunables.steal && now - cctx->balanced_at >= BALANCE_NS) {
		cctx->balanced_at = now;
		cctx->balance_with = balance_victim(cpu);
		if (cctx->balance_with >= 0 &&
		    (!is_tickless(cctx) || may_take_first(cpu, cctx->balance_with)))
			due |= DUE_BALANCE;
	}
	if (cctx->queued && now - cctx->starved_at >= machine.starve_ns / STARVE_LOOKS) {
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
 * Return the context of @prev, its deadline up to date, if it may run for *@slice more; NULL if it
 * sleeps, or is to go elsewhere or to wait for cpu.max.
 */
static struct task_ctx *can_keep_running(s32 cpu, struct task_struct *prev, u64 *slice)
{
	struct task_ctx *tctx;

	if (!prev || !(prev->scx.flags & SCX_TASK_QUEUED))
		return NULL;
	tctx = task_ctx(prev);
	if (!tctx)
		return NULL;
	charge(prev, tctx);
	if (is_limited(tctx) && !is_exempt(prev)) {
		*slice = take_slice(cpu, tctx->group, scx_bpf_now());
		if (!*slice)
			return NULL;
	}
	tctx->at_user = false;
	if (tctx->move_why)
		return NULL;
	set_deadline(prev, tctx, cpu_ctx(cpu));
	return tctx;
}

/*
 * @cpu went idle while the kernel bypassed us (suspend): update_idle() has not told of it. A
 * function of its own for the callers' stacks. Returns 0.
 */
__noinline s32 note_idled(s32 cpu)
{
	pelt_update(cpu, cpu_ctx(cpu), scx_bpf_now(), false);
	return 0;
}

/*
 * @cpu has nothing of its own left, or another CPU has just taken it. True: it has now. Stealing
 * lets go of the rq lock.
 */
__noinline bool run_other(s32 cpu)
{
	struct cpu_ctx *cctx = cpu_ctx(cpu);

	if (steal(cpu))
		return true;
	/*
	 * Kicked in vain, maybe claimed: idle again, and then comes the other half of the handshake
	 * with enqueue().
	 */
	if (is_idle_task(bpf_get_current_task_btf())) {
		if (cctx->pelt.running)
			note_idled(cpu);
		mark_idle(cpu, cctx);
		if (work_in_reach(cpu) && steal(cpu))
			return true;
		/*
		 * Claimed while stealing let go of the rq lock, or the timer of throttled tasks has
		 * come: a kick that comes before schedule() returns is forgotten then. Repeat it. Or
		 * a task is about to be inserted: look once more after await_insertion().
		 */
		cctx->awaited = cctx->awaits && !cctx->awaited;
		if (cctx->awaited || READ_ONCE(cctx->throttled_due) ||
		    (cctx->idle && !map_test(&idle_map, cpu_layout(cpu)->slot)))
			kick_cpu(cpu, 0);
	}
	/* A task may have been queued here meanwhile. */
	return cctx->queued &&
	       (take_queued(cpu, cctx, cpu) || take_queued(cpu, cctx, pinned_queue(cpu)));
}

/*
 * In dispatch of @cpu: move the tasks of @queue to where they belong by now, if that is further to
 * the front. The last tasks first, which wait longest; bounded by @looks. Return 0.
 *
 * 1. A task that has waited for starve_ns is next, whatever its weight. By weight it might wait for
 *    minutes alongside heavy tasks, and the kernel's watchdog ejects a scheduler that lets it.
 * 2. The weight of a task may have doubled: it was queued as one of many of its group, and the
 *    others sleep now. It has a new deadline.
 */
__noinline s32 requeue_late(s32 cpu, u64 queue, u32 looks)
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
		weight = task_weight(tctx);
		if (tctx->group)
			update_share(tctx);
		starves = wait_time(tctx, now) >= machine.starve_ns;
		if (starves) {
			at = cctx->vclock - FIRST_NS / 2; /* after the loader */
		} else if (task_weight(tctx) / 2 >= weight) {
			set_deadline(p, tctx, cctx);
			at = tctx->deadline;
		}
		if (time_before(at, p->scx.dsq_vtime)) {
			if (starves)
				stat_inc(STAT_STARVED);
			scx_bpf_dsq_move_set_vtime(BPF_FOR_EACH_ITER, at);
			scx_bpf_dsq_move_vtime(BPF_FOR_EACH_ITER, p, queue, 0);
		}
		looks -= bpf_arena_loop_one;
		if (!looks)
			break;
	}
	return 0;
}

/*
 * In dispatch: take the task that current of @cpu yielded to. It may not wait where it did any
 * more, or far behind others.
 */
__noinline bool take_yielded(s32 cpu)
{
	struct cpu_ctx *cctx = cpu_ctx(cpu);
	struct pull want = {.why = PULL_YIELD, .pid = cctx->yield_to};

	return pull(cpu, cctx->yield_from, cctx->yield_from, &want) ||
	       (cctx->yield_from == cpu && pull(cpu, cpu, pinned_queue(cpu), &want));
}

/* Current of @cpu continues for @slice, its deadline up to date. */
static void keep_running(s32 cpu, struct cpu_ctx *cctx, struct task_struct *p,
			 struct task_ctx *tctx, u64 slice)
{
	/* It is put back, so that the kernel looks at its slice. */
	if (is_nohz_full(cpu) && !is_tickless(cctx) && is_alone(tctx, cpu, cctx)) {
		stat_inc(STAT_EMPTY);
		return;
	}
	stat_inc(STAT_KEEP);
	cctx->preempted_by = BY_NONE;
	note_running(p, tctx, cctx, slice, true);
	if (is_tickless(cctx))
		slice = tickless_slice(tctx, cpu, cctx, slice);
	scx_bpf_task_set_slice(p, slice);
	note_slice(cpu, cctx, cctx->curr_started, slice, cctx->queued);
}

/*
 * In dispatch: what @cpu runs next, be it @prev (NULL: not a task of sched_ext), goes to its local
 * DSQ. The numbers are those of the head of this file.
 */
static void pick_next(s32 cpu, struct cpu_ctx *cctx, struct task_struct *prev)
{
	bool preempted = cctx->preempted_by, keep;
	u64 queue, slice = tunables.slice_ns, at;
	struct task_struct *next = NULL;
	struct task_ctx *tctx = NULL;
	u8 due = cctx->due;

	/* 1. */
	if (READ_ONCE(cctx->throttled_due))
		offer_unthrottled(cpu);
	cctx->due = 0;

	/* 2. */
	if (due & DUE_YIELD && take_yielded(cpu))
		return;
	/* The task that preempted it may have gone to another CPU. */
	if (preempted)
		note_taken(cpu, cctx);
	if (!preempted || !cctx->queued)
		tctx = can_keep_running(cpu, prev, &slice);
	if (due & (DUE_SHARES | DUE_STARVED) && cctx->queued && !cctx->fifo) {
		u32 looks = due & DUE_STARVED ? MAX_LONG_QUEUE : MAX_PULL_LOOKS;

		requeue_late(cpu, cpu, looks);
		requeue_late(cpu, pinned_queue(cpu), looks);
	}
	/*
	 * Most often current sleeps and one of the queues has tasks: then there is nothing to
	 * compare its first one with.
	 */
	queue = cctx->queued & QUEUED_MOVABLE ? cpu : pinned_queue(cpu);
	if (cctx->queued && (tctx || due || cctx->queued == (QUEUED_MOVABLE | QUEUED_PINNED)))
		next = first_queued(cpu, cctx, &queue);
	keep = tctx;
	at = tctx ? tctx->deadline : 0;
	if (next && (!tctx || cctx->fifo || !time_before(at, next->scx.dsq_vtime))) {
		at = next->scx.dsq_vtime;
		keep = false;
	}
	if (keep && next && is_tickless(cctx)) {
		/* It would continue without a tick. */
		keep = false;
		kick_cpu(cpu, SCX_KICK_PREEMPT);
	}

	/* 3. */
	if (due & DUE_BALANCE && (keep || next)) {
		struct task_ctx *own = keep ? NULL : task_ctx(next);

		/*
		 * It has just woken, and where many wait all have waited for longer: look again in
		 * the next dispatch().
		 */
		if (own && own->has_credit)
			cctx->due |= DUE_BALANCE;
		else if (balance(cpu, at, own))
			return;
	}
	/* Preempted by a task of the local DSQ while balance() had dropped the rq lock. */
	if (!preempted && cctx->preempted_by && scx_bpf_dsq_nr_queued(SCX_DSQ_LOCAL_ON | cpu))
		return;

	/* 4, 5. */
	if (!keep && cctx->queued && take_queued(cpu, cctx, queue))
		return;
	if (tctx) {
		keep_running(cpu, cctx, prev, tctx, slice);
		return;
	}

	/* 6. */
	if (!run_other(cpu))
		stat_inc(STAT_EMPTY);
}

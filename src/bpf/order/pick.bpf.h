/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * What a CPU runs next, in dispatch:
 *
 *	current may go on for another slice (can_keep_running) ------------> it is compared with the others
 *	a throttled task's time has come (cgroup/throttle.bpf.h) ----------> it is put into a queue, and compared
 *	now and then: a task starves here, or is owed more elsewhere
 *	(steal/balance.bpf.h) ---------------------------------------------> it
 *	current's deadline is before the first one of the queues, which
 *	are not long ------------------------------------------------------> current
 *	else --------------------------------------------------------------> the first of the queues
 *	both are empty: another CPU's task (steal/steal.bpf.h), or what
 *	came while that was looked for ------------------------------------> it, or the CPU idles
 */
#pragma once

enum {
	REQUEUE_NS = 20000000, /* how often the last tasks of the queues are looked at: a few slices */
};

/*
 * The context of @prev if it may run for *@slice more; NULL if it has gone to sleep, or is to go elsewhere or to wait for
 * cpu.max.
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
	return tctx->migrate_to || tctx->migrate_up ? NULL : tctx;
}

/*
 * @cpu went idle while the kernel bypassed us (suspend): update_idle() has not told of it. A function of its own for the callers'
 * stacks. Returns 0.
 */
__noinline s32 note_idled(s32 cpu)
{
	pelt_update(cpu, cpu_ctx(cpu), false);
	return 0;
}

/* @cpu has nothing of its own left, or another CPU has just taken it. True: it has now. Stealing lets go of the rq lock. */
static bool run_other(s32 cpu, struct cpu_ctx *cctx)
{
	if (timed_steal(cpu))
		return true;
	/* Kicked in vain, maybe claimed: idle again, and then comes the other half of the handshake with enqueue(). */
	if (is_idle_task(bpf_get_current_task_btf())) {
		if (cctx->pelt.running)
			note_idled(cpu);
		mark_idle(cpu, cctx);
		if (work_in_reach(cpu) && timed_steal(cpu))
			return true;
		/*
		 * Claimed while stealing let go of the rq lock, or the timer of throttled tasks has come: a kick that comes before
		 * schedule() returns is forgotten then. Repeat it.
		 */
		if ((cctx->idle && !map_test(&idle_map, cpu_layout(cpu)->slot)) || READ_ONCE(cctx->throttled_due))
			kick_cpu(cpu, 0);
	}
	/* A task may have been queued here meanwhile. */
	return cctx->queued && (take_queued(cpu, cctx, cpu) || take_queued(cpu, cctx, pinned_queue(cpu)));
}

/*
 * In dispatch of @cpu: tasks wait in @queue by the shares that they had when they came. The last ones may have asked for long,
 * as one of many of their group, and the others sleep now: one whose weight has doubled is put where it belongs. Bounded by
 * MAX_PULL_LOOKS. Returns 0.
 */
__noinline s32 requeue_heavier(s32 cpu, u64 queue)
{
	struct cpu_ctx *cctx = cpu_ctx(cpu);
	u32 looks = bpf_arena_loop_zero;
	struct task_struct *p;

	bpf_for_each(scx_dsq, p, queue, SCX_DSQ_ITER_REV)
	{
		struct task_ctx *tctx = task_ctx(p);
		u32 before = tctx ? task_weight(p, tctx) : 0;

		if (before) {
			update_share(p, tctx);
			if (task_weight(p, tctx) / 2 >= before) {
				scx_bpf_dsq_move_set_vtime(BPF_FOR_EACH_ITER, queue_deadline(p, tctx, cctx));
				scx_bpf_dsq_move_vtime(BPF_FOR_EACH_ITER, p, queue, 0);
			}
		}
		looks += bpf_arena_loop_one;
		if (looks >= MAX_PULL_LOOKS)
			break;
	}
	return 0;
}

/*
 * Is the first task of the queues of @cpu to be looked at before it is taken? Most often current sleeps, one of the queues has
 * tasks, and no other CPU is due: then there is nothing to compare it with. Up to 7.0 a look is an iterator over the queue, which
 * takes 220 of dispatch's 1218 instructions.
 */
static bool compares(const struct cpu_ctx *cctx, bool may_keep, u64 now)
{
	return may_keep || (cctx->overloaded && cctx->queued_pinned) || balance_due(cctx, now) ||
	       starved_due(cctx, now);
}

/* In dispatch: what @cpu runs next, be it @prev (NULL: not a task of ours), goes to its local DSQ. */
static void pick_next(s32 cpu, struct cpu_ctx *cctx, struct task_struct *prev)
{
	u64 queue = cpu, slice = tunables.slice_ns, now = scx_bpf_now(), at;
	struct task_ctx *tctx = can_keep_running(cpu, prev, &slice);
	struct task_struct *next = NULL;
	bool keep = tctx;

	if (READ_ONCE(cctx->throttled_due))
		offer_unthrottled(cpu);
	if (cctx->queued) {
		if (nr_groups && now - cctx->requeued_at >= REQUEUE_NS) {
			cctx->requeued_at = now;
			requeue_heavier(cpu, cpu);
			requeue_heavier(cpu, pinned_queue(cpu));
		}
		queue = cctx->overloaded ? cpu : pinned_queue(cpu);
		if (compares(cctx, tctx, now))
			next = first_queued(cpu, cctx, &queue);
	}
	at = tctx ? deadline(prev, tctx) : 0;
	if (next && (!tctx || cctx->preempted || cctx->first_come || !vtime_before(at, next->scx.dsq_vtime))) {
		at = next->scx.dsq_vtime;
		keep = false;
	}
	cctx->preempted = false;
	if (keep || next) {
		struct task_struct *first = keep ? NULL : next;

		if (run_starved(cpu, cctx, first, now) || balance(cpu, cctx, first, at, now))
			return;
	}
	if (!keep && cctx->queued && take_queued(cpu, cctx, queue))
		return;
	if (tctx) {
		stat_inc(STAT_KEEP);
		note_running(prev, tctx, cpu, cctx, true);
		scx_bpf_task_set_slice(prev, slice);
		return;
	}
	if (!run_other(cpu, cctx))
		stat_inc(STAT_EMPTY);
}

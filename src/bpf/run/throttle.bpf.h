/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Tasks of a group that has used up its cpu.max (bandwidth.bpf.h). Each task waits on its own CPU,
 * in a third queue, ordered by the time of the next check. No CPU scans that queue earlier, so a
 * throttled group costs nothing, however many tasks it has.
 *
 *	                 no slice left, at the boundary of user space
 *	  +---------+    throttle(), in enqueue                          +-----------+
 *	  | queued, | -------------------------------------------------> | throttled |
 *	  | runs    |                                                    | queue     |
 *	  +---------+ <------------------------------------------------- +-----------+
 *	    |     ^      timer fires, a slice is left: unthrottle(),       |     ^
 *	    |     |      in dispatch: queued by deadline                   +-----+
 *	    +-----+                                                        no slice yet: until the
 *	    no slice, but not at the boundary: continues for               end of the next period
 *	    OVERRUN_SLICE_NS, with task work requested (boundary.bpf.h)
 *
 * When the limit of a throttled group changes, all CPUs check the first MAX_RECHECKS tasks of that
 * queue at once (recheck_throttled()): if it was raised, the group runs again within a tick.
 *
 * A task that has waited for starve_ns is queued even if its group is still throttled, because the
 * kernel ejects a scheduler that lets a task wait for too long. running() finds no slice for the
 * task, and sends it back (sent_back).
 *
 * The CPU owns this queue and its tasks, under the rq lock. The timer only sets
 * throttle_timer_fired.
 */
#pragma once

enum {
	/* tasks in one dispatch; the timer fires again for the others */
	MAX_UNTHROTTLES = 8,
	MAX_RECHECKS = 256,	 /* tasks checked in one dispatch after a limit has changed */
	THROTTLE_MIN_NS = 50000, /* shortest delay of the timer */
	/* for a task without a slice that may hold a kernel lock; a tick or the timer ends it */
	OVERRUN_SLICE_NS = 500000,
};

struct throttle_timer {
	struct bpf_timer timer;
};

/* By CPU. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, MAX_CPUS);
	__type(key, u32);
	__type(value, struct throttle_timer);
} throttle_timers SEC(".maps");

/* Return true if the task is in the throttled queue, or leaves it: place() as after a sleep. */
static bool is_throttled(const struct task_ctx *tctx)
{
	return tctx->enqueued_at && tctx->queued_cpu == NO_CPU;
}

/* Make the CPU call unthrottle() in dispatch. On any CPU; no rq lock is held. */
static int throttle_timer_fires(void *map, u32 *key, struct throttle_timer *t)
{
	s32 cpu = *key;

	WRITE_ONCE(cpu_ctx(cpu)->throttle_timer_fired, true);
	kick_cpu(cpu, SCX_KICK_PREEMPT);
	return 0;
}

/* In init. */
static void init_throttle_timer(s32 cpu)
{
	struct throttle_timer *t = bpf_map_lookup_elem(&throttle_timers, &cpu);

	if (!t)
		return;
	bpf_timer_init(&t->timer, &throttle_timers, CLOCK_MONOTONIC);
	bpf_timer_set_callback(&t->timer, throttle_timer_fires);
}

/* Set the timer of @cpu to fire at @at, unless it fires earlier. The rq lock of @cpu is held. */
static void set_throttle_timer(s32 cpu, struct cpu_ctx *cctx, u64 at, u64 now)
{
	struct throttle_timer *t = bpf_map_lookup_elem(&throttle_timers, &cpu);
	s64 delay = max((s64)(at - now), (s64)THROTTLE_MIN_NS);

	if (!t || (cctx->throttle_timer_at && (s64)(at - cctx->throttle_timer_at) >= 0))
		return;
	cctx->throttle_timer_at = at;
	if (!bpf_timer_start(&t->timer, delay, 0))
		return;
	/*
	 * From 7.0 on the kernel allocates memory for the timer with interrupts off, which may
	 * fail: let the CPU check the queue instead.
	 */
	WRITE_ONCE(cctx->throttle_timer_fired, true);
	kick_cpu(cpu, 0);
}

/* Return when to check a throttled task again: starve_ns after it was queued at the latest. */
static u64 throttled_until(const struct task_ctx *tctx, u64 now)
{
	u64 at = next_refill(tctx->group, now), latest = tctx->enqueued_at + machine.starve_ns;

	return (s64)(at - latest) > 0 ? latest : at;
}

/* In enqueue: let @p wait if its groups have no slice for it. Return true if it waits. */
static bool throttle(struct task_struct *p, struct task_ctx *tctx, s32 cpu, struct cpu_ctx *cctx,
		     u64 enq_flags)
{
	u64 now, until;

	if (!tctx->at_user || !is_limited(tctx) || is_exempt(p))
		return false;
	tctx->sent_back = false;
	/*
	 * The affinity of @p is being set, and the caller waits until @p has left its task work,
	 * where migration is disabled: let @p run. (If @p is current, the prolog has disabled
	 * migration.)
	 */
	if (is_throttled(tctx) && p->migration_disabled && p != bpf_get_current_task_btf()) {
		tctx->at_user = false;
		return false;
	}
	now = locked_now(cpu);
	if (take_slice(cpu, tctx->group, now))
		return false;
	if (!is_throttled(tctx)) {
		stat_inc(STAT_THROTTLED);
		tctx->enqueued_at = now;
		tctx->queued_cpu = NO_CPU;
		/* The reason for a move may be gone when the group may run again. */
		tctx->move_why = MOVE_NOT;
	}
	until = throttled_until(tctx, now);
	/* The throttled queue, because no CPU scans it before @until. */
	scx_bpf_dsq_insert_vtime(p, throttled_queue(cpu), slice_of(p), until, enq_flags);
	set_throttle_timer(cpu, cctx, until, now);
	/* Throttled tasks do not count in the sums of their groups. */
	group_leave(tctx, cpu, now);
	return true;
}

/* Call place() for a throttled task on @cpu. Not inlined, for the verifier. Return 0. */
__noinline s32 place_unthrottled(struct task_struct *p __arg_trusted, s32 cpu)
{
	struct task_ctx *tctx = task_ctx(p);

	if (tctx)
		place(p, tctx, cpu, true);
	return 0;
}

/*
 * In dispatch of @cpu, whose rq lock is held: move tasks from its throttled queue to its other two
 * queues: those whose time of the next check has come, or, after a change of a limit, all that have
 * a slice. Return how many were moved, at most MAX_UNTHROTTLES. Bounded by MAX_RECHECKS tasks after
 * a change of a limit, otherwise by MAX_UNTHROTTLES.
 */
__noinline u32 unthrottle(s32 cpu)
{
	struct cpu_ctx *cctx = cpu_ctx(cpu);
	u32 checks = bpf_arena_loop_zero, nr = bpf_arena_loop_zero;
	u64 now = scx_bpf_now(), queue, at;
	bool all = READ_ONCE(cctx->limit_changed);
	u32 most = all ? MAX_RECHECKS : MAX_UNTHROTTLES;
	struct task_struct *p;

	/* Clear them first: if the timer fires from here on, the next dispatch() checks again. */
	WRITE_ONCE(cctx->limit_changed, false);
	WRITE_ONCE(cctx->throttle_timer_fired, false);
	cctx->throttle_timer_at = 0;
	bpf_for_each(scx_dsq, p, throttled_queue(cpu), 0)
	{
		struct task_ctx *tctx = task_ctx(p);
		bool has_slice;

		at = p->scx.dsq_vtime;
		if (!tctx)
			continue;
		if (nr >= MAX_UNTHROTTLES || checks >= most || (!all && (s64)(at - now) > 0)) {
			if (nr >= MAX_UNTHROTTLES && all) {
				WRITE_ONCE(cctx->limit_changed, true);
				at = now;
			}
			set_throttle_timer(cpu, cctx, at, now);
			break;
		}
		checks += bpf_arena_loop_one;
		has_slice = is_exempt(p) || take_slice(cpu, tctx->group, now);
		if (!has_slice && wait_time(tctx, now) < machine.starve_ns) {
			at = throttled_until(tctx, now);
			scx_bpf_dsq_move_set_vtime(BPF_FOR_EACH_ITER, at);
			scx_bpf_dsq_move_vtime(BPF_FOR_EACH_ITER, p, throttled_queue(cpu), 0);
			set_throttle_timer(cpu, cctx, at, now);
			continue;
		}
		/* Let the task leave its task work, although its groups have no slice for it. */
		if (!has_slice && p->migration_disabled)
			tctx->at_user = false;
		place_unthrottled(p, cpu);
		queue = queue_add(p, tctx, cpu, cctx, now);
		scx_bpf_dsq_move_set_vtime(BPF_FOR_EACH_ITER, tctx->deadline);
		if (!scx_bpf_dsq_move_vtime(BPF_FOR_EACH_ITER, p, queue, 0)) {
			queue_del(tctx);
			continue;
		}
		stat_inc(STAT_RELEASED);
		if (queue == cpu)
			mark_overloaded(cpu);
		nr += bpf_arena_loop_one;
	}
	return nr;
}

/*
 * In dispatch of @cpu: unthrottle tasks, and kick an idle CPU for each. Bounded as unthrottle().
 */
static void offer_unthrottled(s32 cpu)
{
	u32 nr = unthrottle(cpu), i;

	for (i = bpf_arena_loop_zero; i < nr && can_loop; i++)
		if (!kick_idle_for_queued(cpu))
			return;
}

/*
 * In running of @p: cap its time slice by the remaining runtime of its groups, their quota slice.
 * Return the time slice.
 *
 * 1. If the groups have no slice, and @p is still at the boundary of user space, send @p back to
 *    the throttled queue, once.
 * 2. If the groups have no slice, and @p is in the kernel or was sent back already, give @p
 *    OVERRUN_SLICE_NS, which the slice timer or the next tick ends, and request task work.
 */
static u64 limited_slice(struct task_struct *p, struct task_ctx *tctx, s32 cpu)
{
	u64 slice = p->scx.slice, quota;

	if (!is_limited(tctx) || is_exempt(p)) {
		tctx->at_user = false;
		return slice;
	}
	/*
	 * @p does not run, but is about to be preempted: from 6.19 on the kernel calls stopping()
	 * and running() before it preempts a task that has migration disabled, as task work has.
	 */
	if (!slice)
		return slice;
	quota = take_slice(cpu, tctx->group, scx_bpf_now());
	/*
	 * Only once for each enqueue(): while the kernel bypasses this scheduler, it does not call
	 * enqueue(), and the task would be preempted again and again.
	 */
	if (!quota && tctx->at_user && !tctx->sent_back) {
		tctx->sent_back = true;
		kick_cpu(cpu, SCX_KICK_PREEMPT);
		return slice;
	}
	tctx->at_user = false;
	if (!quota) {
		quota = OVERRUN_SLICE_NS;
		ask_boundary(p, tctx);
	}
	return min(slice, quota);
}

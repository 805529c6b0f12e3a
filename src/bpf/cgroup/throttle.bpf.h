/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * What becomes of the tasks of a group that has used up its cpu.max (bandwidth.bpf.h). Each waits
 * on its own CPU, in a third queue, ordered by the time at which it is to be checked. Nothing looks
 * there earlier: a throttled group costs nothing, however many tasks it has.
 *
 *	                 no slice left, at the boundary of user space
 *	  +---------+    throttle(), in enqueue                          +-----------+
 *	  | queued, | -------------------------------------------------> | throttled |
 *	  | runs    |                                                    | queue     |
 *	  +---------+ <------------------------------------------------- +-----------+
 *	    |     ^      timer fires; slices again: unthrottle(),          |     ^
 *	    |     |      in dispatch: queued by its deadline               +-----+
 *	    +-----+                                                        no slice yet: until the
 *	    no slice, but not at the boundary: runs on for                 end of the next period
 *	    OWED_SLICE_NS, and is asked to report (boundary.bpf.h)
 *
 * A task that has waited for starve_ns is queued though its group is throttled, because the kernel
 * ejects a scheduler that lets one wait for too long. It does not get far: running() finds no
 * slice, and sends it back (sent_back).
 *
 * The queue, and what is known of its tasks, belongs to its CPU, under the rq lock; the timer sets
 * only throttled_due.
 */
#pragma once

enum {
	/* tasks in a dispatch; the others at the next, which comes at once */
	MAX_UNTHROTTLES = 8,
	THROTTLE_MIN_NS = 50000, /* no timer is set for less */
	/* until the next tick: a task that has no slice, and may hold a kernel lock */
	OWED_SLICE_NS = 500000,
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

/* After the other queues of the CPUs: order/queue.bpf.h. */
static u64 throttled_queue(s32 cpu)
{
	return 2 * MAX_CPUS + cpu;
}

/* Is it in the throttled queue? Its positive lag is dropped, as after sleep. */
static bool is_throttled(const struct task_ctx *tctx)
{
	return tctx->enqueued_at && tctx->queued_cpu == NO_CPU;
}

static int throttle_timer_fires(void *map, u32 *key, struct throttle_timer *t)
{
	s32 cpu = *key;

	WRITE_ONCE(cpu_ctx(cpu)->throttled_due, true);
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

/*
 * The timer of @cpu, whose rq lock is held, is to come @at that time, if it does not come sooner.
 */
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
	 * From 7.0 on the kernel allocates memory for it where interrupts are off: until there is
	 * some, the CPU looks.
	 */
	WRITE_ONCE(cctx->throttled_due, true);
	kick_cpu(cpu, 0);
}

/* When @p is looked at that has to wait. */
static u64 throttled_until(const struct task_ctx *tctx, u64 now)
{
	u64 at = next_refill(tctx->group, now), latest = tctx->enqueued_at + machine.starve_ns;

	return (s64)(at - latest) > 0 ? latest : at;
}

/* In enqueue. True if @p has to wait until its groups have a slice for it. */
static bool throttle(struct task_struct *p, struct task_ctx *tctx, s32 cpu, struct cpu_ctx *cctx,
		     u64 enq_flags)
{
	u64 now, until;

	if (!tctx->at_user || !is_limited(tctx) || is_exempt(p))
		return false;
	tctx->sent_back = false;
	/*
	 * Its affinity is set: it has to leave its task work for that. (While it is current, the
	 * prolog disables migration.)
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
	}
	until = throttled_until(tctx, now);
	scx_bpf_dsq_insert_vtime(p, throttled_queue(cpu), tunables.slice_ns, until, enq_flags);
	set_throttle_timer(cpu, cctx, until, now);
	/* Not runnable, as far as the weights of its groups go. */
	group_leave(tctx, cpu);
	return true;
}

/*
 * As place(), for a task that was throttled on @cpu. Not inlined, for the verifier's sake. Returns
 * 0.
 */
__noinline s32 place_unthrottled(struct task_struct *p __arg_trusted, s32 cpu)
{
	struct task_ctx *tctx = task_ctx(p);

	if (tctx)
		place(p, tctx, cpu, true);
	return 0;
}

/*
 * In dispatch of @cpu, whose rq lock is held: puts throttled tasks whose time has come into its
 * queues. Returns how many. Bounded by MAX_UNTHROTTLES.
 */
__noinline u32 unthrottle(s32 cpu)
{
	struct cpu_ctx *cctx = cpu_ctx(cpu);
	u32 looks = bpf_arena_loop_zero, nr = 0;
	u64 now = scx_bpf_now(), queue, at;
	struct task_struct *p;

	/* Before the look: what the timer sets from here on is for the next. */
	WRITE_ONCE(cctx->throttled_due, false);
	cctx->throttle_timer_at = 0;
	bpf_for_each(scx_dsq, p, throttled_queue(cpu), 0)
	{
		struct task_ctx *tctx = task_ctx(p);
		bool has_slice;

		at = p->scx.dsq_vtime;
		if (!tctx)
			continue;
		if ((s64)(at - now) > 0 || looks >= MAX_UNTHROTTLES) {
			set_throttle_timer(cpu, cctx, at, now);
			break;
		}
		looks += bpf_arena_loop_one;
		has_slice = take_slice(cpu, tctx->group, now);
		if (!has_slice && now - tctx->enqueued_at < machine.starve_ns) {
			at = throttled_until(tctx, now);
			scx_bpf_dsq_move_set_vtime(BPF_FOR_EACH_ITER, at);
			scx_bpf_dsq_move_vtime(BPF_FOR_EACH_ITER, p, throttled_queue(cpu), 0);
			set_throttle_timer(cpu, cctx, at, now);
			continue;
		}
		/* It is not to stay in its task work for ever. */
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
		nr++;
	}
	return nr;
}

/* The same, and tells as many idle CPUs that may take them. */
static void offer_unthrottled(s32 cpu)
{
	u32 nr = unthrottle(cpu), i;

	for (i = bpf_arena_loop_zero; i < nr && can_loop; i++)
		if (!kick_idle_for_queued(cpu))
			return;
}

/*
 * In running of @p, which its groups may have no slice for: then it goes back to where it came
 * from, if it has done nothing since it was at the boundary of user space, or on until it is there.
 */
static void limit_slice(struct task_struct *p, struct task_ctx *tctx, s32 cpu)
{
	u64 slice;

	if (!is_limited(tctx) || is_exempt(p)) {
		tctx->at_user = false;
		return;
	}
	slice = take_slice(cpu, tctx->group, scx_bpf_now());
	/*
	 * Once for each time that it is queued: while the kernel bypasses us it is not, and would
	 * be preempted for ever.
	 */
	if (!slice && tctx->at_user && !tctx->sent_back) {
		tctx->sent_back = true;
		kick_cpu(cpu, SCX_KICK_PREEMPT);
		return;
	}
	tctx->at_user = false;
	if (!slice) {
		slice = OWED_SLICE_NS;
		ask_boundary(p, tctx);
	}
	if (slice < p->scx.slice)
		scx_bpf_task_set_slice(p, slice);
}

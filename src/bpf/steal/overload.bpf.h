/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Which CPUs have tasks waiting that another CPU may take: overload_map (Steve Sistare's task
 * stealing).
 *
 *	enqueue()   a task that may migrate waits behind current: bit set, an idle CPU kicked
 *	running()   the last waiting task runs, here or elsewhere: bit cleared
 *	dispatch()  the queue is empty: bit cleared
 *	tick()      the same; else the first waiting task that an idle CPU may run is offered again
 *
 * All under the rq lock of the queue's CPU, except in a thief that took the last task
 * (note_all_taken()) and in cpu_offline().
 *
 *	this CPU, in enqueue()        another CPU, which goes idle
 *	set the overload bit          set its idle bit
 *	full barrier                  full barrier
 *	look for idle bits            look for overload bits
 *
 * So one of the two sees the other.
 */
#pragma once

struct sparse_map overload_map;

/* In enqueue: a task that may migrate waits for @cpu. */
static void mark_overloaded(s32 cpu)
{
	if (!map_test(&overload_map, cpu_layout(cpu)->slot))
		map_set(&overload_map, cpu_layout(cpu)->slot);
}

static void clear_overloaded(s32 cpu, struct cpu_ctx *cctx)
{
	cctx->queued &= ~QUEUED_MOVABLE;
	map_test_and_clear(&overload_map, cpu_layout(cpu)->slot);
}

/* Note which queues of @cpu are empty. Its rq lock is held. */
static void note_taken(s32 cpu, struct cpu_ctx *cctx)
{
	if (cctx->queued & QUEUED_MOVABLE && !scx_bpf_dsq_nr_queued(cpu))
		clear_overloaded(cpu, cctx);
	if (cctx->queued & QUEUED_PINNED && !scx_bpf_dsq_nr_queued(pinned_queue(cpu)))
		cctx->queued &= ~QUEUED_PINNED;
}

/* The same for both, when queued_load says so at less cost. */
static void note_none_queued(s32 cpu, struct cpu_ctx *cctx)
{
	if (cctx->queued & QUEUED_MOVABLE)
		clear_overloaded(cpu, cctx);
	cctx->queued = 0;
}

/* Kick a claimed idle CPU, which then steals. */
static void kick_idle(s32 cpu)
{
	stat_inc(STAT_KICK);
	send_kick(cpu, SCX_KICK_IDLE);
}

/*
 * In running and dispatch of another CPU: clear the bit of @victim if no task waits there. A task
 * that is queued meanwhile finds the bit cleared, or is found here in queued_load: this pairs with
 * queue_add(), which adds to queued_load before enqueue() checks the bit. An idle CPU may have
 * missed it then, and is kicked. Return 0.
 */
__noinline s32 note_all_taken(s32 victim)
{
	const volatile struct cpu_layout *l = cpu_layout(victim);
	s32 idle;

	if (READ_ONCE(cpu_ctx(victim)->queued_load) ||
	    !map_test_and_clear(&overload_map, l->slot) || !READ_ONCE(cpu_ctx(victim)->queued_load))
		return 0;
	map_set(&overload_map, l->slot);
	idle = can_kick() ? any_idle(l->llc, l->slot) : -1;
	if (idle >= 0)
		kick_idle(idle);
	return 0;
}

/*
 * In running: the task waits no more, if it did. Return true if it came in its turn: not from
 * another CPU, nor straight from its wakeup while others wait.
 */
static bool queue_leave(struct task_ctx *tctx, s32 cpu, struct cpu_ctx *cctx)
{
	bool waited = waits_already(tctx), own = tctx->queued_cpu == cpu;
	bool in_turn = waited ? own : !cctx->queued;

	if (waited && !own)
		stat_add(STAT_STOLEN_NS, wait_time(tctx, scx_bpf_now()));
	tctx->enqueued_at = 0;
	if (queue_del(tctx) && !own)
		note_all_taken(tctx->queued_cpu);
	if (cctx->queued && !READ_ONCE(cctx->queued_load))
		note_none_queued(cpu, cctx);
	return in_turn;
}

/* In dispatch of @cpu: takes the first task of @queue, one of its own; false if there is none. */
static bool take_queued(s32 cpu, struct cpu_ctx *cctx, u64 queue)
{
	if (scx_bpf_dsq_move_to_local(queue, 0)) {
		stat_inc(STAT_OWN);
		return true;
	}
	note_taken(cpu, cctx);
	return false;
}

/*
 * Return for how many ns a task that waits for the CPU of @cctx, and ran a moment ago, is better
 * left to the caches of its LLC than moved at @cost; < 1: none, also while a higher class has the
 * CPU.
 */
static s64 hot_remaining(const struct task_ctx *tctx, const struct cpu_ctx *cctx, u64 cost, u64 now)
{
	return tctx->stopped_at && !READ_ONCE(cctx->taken) ? tctx->stopped_at + cost - now : 0;
}

/*
 * Return how many of the nearest other LLCs of @l, that of @cctx, may take the task now, by how hot
 * it is.
 */
static u32 nr_llcs_cold(const struct task_ctx *tctx, const struct cpu_ctx *cctx,
			const volatile struct llc_layout *l, u64 now)
{
	if (hot_remaining(tctx, cctx, tunables.llc_cost_ns, now) > 0)
		return 0;
	return hot_remaining(tctx, cctx, tunables.node_cost_ns, now) > 0
		       ? min(l->nr_near, l->nr_reach)
		       : l->nr_reach;
}

/*
 * @p was put into a queue of @cpu: claim and kick an idle CPU that may steal it, one of its LLC, or
 * further away once it is not too hot for that. Return false if there is none. The kick is
 * delivered when interrupts come on again, which is after the kernel inserted the task.
 */
static bool kick_idle_for(struct task_struct *p, struct task_ctx *tctx, s32 cpu, u64 now)
{
	const volatile struct cpu_layout *l = cpu_layout(cpu);
	struct search *s;
	s32 idle;

	/* No CPU is claimed that cannot be told. */
	if (!tunables.steal || !is_migratable(p) || !can_kick())
		return false;
	s = begin_search(p, tctx, false);
	idle = map_any(&idle_map, l->llc) ? scan_llc(p, l->llc, l->scan_from) : -1;
	if (idle < 0 && machine.nr_llcs > 1)
		idle = scan_beyond(p, l->llc, l->scan_from, 0,
				   nr_llcs_cold(tctx, cpu_ctx(cpu), llc_layout(l->llc), now));
	if (idle < 0 && weak_wait(tctx, now) <= 0)
		idle = claim_weak(s);
	if (idle < 0)
		return false;
	kick_idle(idle);
	return true;
}

/*
 * Offers one of the waiting tasks of @cpu, the first that an idle CPU may run. Its rq lock is held.
 * Bounded by MAX_PULL_LOOKS. True if a CPU was kicked for one.
 */
__noinline bool kick_idle_for_queued(s32 cpu)
{
	struct cpu_ctx *cctx = cpu_ctx(cpu);
	u32 looks = bpf_arena_loop_zero;
	u64 now = scx_bpf_now();
	struct task_struct *p;

	if (!(cctx->queued & QUEUED_MOVABLE))
		return false;
	note_taken(cpu, cctx);
	bpf_for_each(scx_dsq, p, cpu, 0)
	{
		struct task_ctx *tctx = task_ctx(p);

		if (!tctx)
			break;
		if (kick_idle_for(p, tctx, cpu, now))
			return true;
		looks += bpf_arena_loop_one;
		if (looks >= MAX_PULL_LOOKS)
			break;
	}
	return false;
}

/*
 * In stopping of a task of @cpu, from which a higher class takes the CPU: nothing that can go
 * elsewhere must wait for that. The tasks of the local DSQ come back by enqueue() when the CPU has
 * switched. From 6.19 on; before, cpu_release() does it.
 */
static void leave_to_higher_class(s32 cpu)
{
	cpu_ctx(cpu)->taken = true;
	scx_bpf_reenqueue_local_from_anywhere();
	kick_idle_for_queued(cpu);
}

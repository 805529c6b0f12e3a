/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * overload_map: the CPUs with waiting tasks that other CPUs may take (Steve Sistare's task
 * stealing).
 *
 *	enqueue()   a task that may migrate waits behind current: set the bit, kick an idle CPU
 *	running()   the last waiting task runs, here or elsewhere: clear the bit
 *	dispatch()  the queue is empty: clear the bit
 *	tick()      the same; otherwise offer a waiting task again: kick an idle CPU for the first
 *	            task that one may run
 *
 * The rq lock of the queue's CPU is held, except in a thief that took the last task
 * (clear_overload_of()) and in cpu_offline(). One of two CPUs sees the other:
 *
 *	CPU 0, in enqueue()           CPU 1, which goes idle
 *	set its overload bit          set its idle bit
 *	full barrier                  full barrier
 *	read idle_map                 read overload_map
 */
#pragma once

struct sparse_map overload_map;

/* Set the overload bit of @cpu: a task that may migrate waits for it. In enqueue. */
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

/* Clear the marks of the queues of @cpu that are empty. The rq lock of @cpu is held. */
static void clear_empty_queues(s32 cpu, struct cpu_ctx *cctx)
{
	if (cctx->queued & QUEUED_MOVABLE && !scx_bpf_dsq_nr_queued(cpu))
		clear_overloaded(cpu, cctx);
	if (cctx->queued & QUEUED_PINNED && !scx_bpf_dsq_nr_queued(pinned_queue(cpu)))
		cctx->queued &= ~QUEUED_PINNED;
}

/* Clear the marks of both queues of @cpu, of which a queued_load of 0 says that they are empty. */
static void clear_queues(s32 cpu, struct cpu_ctx *cctx)
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
 * Clear the overload bit of @victim if no task waits there. In running and dispatch of another CPU.
 * Return 0. Pairs with queue_add(); one of two CPUs sees the other:
 *
 *	CPU 0, this one               CPU 1, @victim, in enqueue()
 *	clear the overload bit        add to queued_load
 *	full barrier                  full barrier
 *	read queued_load              read the overload bit
 *
 * If a task was queued meanwhile, set the bit again, and kick an idle CPU that may have missed it.
 */
__noinline s32 clear_overload_of(s32 victim)
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

/* Note that the task waits no more, if it did. In running. */
static void queue_leave(struct task_ctx *tctx, s32 cpu, struct cpu_ctx *cctx)
{
	bool own = tctx->queued_cpu == cpu;

	if (waits_already(tctx) && !own)
		stat_add(STAT_STOLEN_NS, wait_time(tctx, scx_bpf_now()));
	tctx->enqueued_at = 0;
	if (queue_del(tctx) && !own)
		clear_overload_of(tctx->queued_cpu);
	if (cctx->queued && !READ_ONCE(cctx->queued_load))
		clear_queues(cpu, cctx);
}

/* Take the first task of @queue, a queue of @cpu. Return false if it is empty. In dispatch. */
static bool take_queued(s32 cpu, struct cpu_ctx *cctx, u64 queue)
{
	if (scx_bpf_dsq_move_to_local(queue, 0)) {
		stat_inc(STAT_OWN);
		return true;
	}
	clear_empty_queues(cpu, cctx);
	return false;
}

/*
 * Return for how many more ns a task that waits for the CPU of @cctx should stay there, because its
 * caches are warm for @cost ns after it ran. 0 or less: it may move. It may always move while a
 * higher class has the CPU.
 */
static s64 hot_remaining(const struct task_ctx *tctx, const struct cpu_ctx *cctx, u64 cost, u64 now)
{
	return tctx->stopped_at && !READ_ONCE(cctx->released) ? tctx->stopped_at + cost - now : 0;
}

/*
 * Return how many of the other LLCs of @l, nearest first, may take the task, which waits for the
 * CPU of @cctx in @l: none until llc_cost_ns after its last run, then those of the node, and all in
 * reach after node_cost_ns.
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
 * Claim and kick an idle CPU that may steal @p, which was put into a queue of @cpu: one of its LLC,
 * then of the LLCs that nr_llcs_cold() allows, then one that is too weak, if @p has waited for
 * WEAK_WAIT_NS. Return false if there is none. The kick arrives when interrupts are on again, after
 * the kernel has inserted @p.
 */
static bool kick_idle_for(struct task_struct *p, struct task_ctx *tctx, s32 cpu, u64 now)
{
	const volatile struct cpu_layout *l = cpu_layout(cpu);
	struct search *s;
	s32 idle;

	/* Claim no CPU that cannot be kicked. */
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
 * Kick an idle CPU for the first waiting task of @cpu that an idle CPU may run. Return true if one
 * was kicked. The rq lock of @cpu is held. Bounded by MAX_PULL_CHECKS tasks.
 */
__noinline bool kick_idle_for_queued(s32 cpu)
{
	struct cpu_ctx *cctx = cpu_ctx(cpu);
	u32 checks = bpf_arena_loop_zero;
	u64 now = scx_bpf_now();
	struct task_struct *p;

	if (!(cctx->queued & QUEUED_MOVABLE))
		return false;
	clear_empty_queues(cpu, cctx);
	bpf_for_each(scx_dsq, p, cpu, 0)
	{
		struct task_ctx *tctx = task_ctx(p);

		if (!tctx)
			break;
		if (kick_idle_for(p, tctx, cpu, now))
			return true;
		checks += bpf_arena_loop_one;
		if (checks >= MAX_PULL_CHECKS)
			break;
	}
	return false;
}

/*
 * Let other CPUs take the tasks of @cpu, which a higher class takes. On @cpu in stopping and, up to
 * 6.18, in cpu_release(); on any CPU in disable() of current of @cpu. The kernel enqueues the tasks
 * of the local DSQ again: from 6.19 on because this function requests it (for another CPU from 7.1
 * on), before 6.19 because cpu_release() requests it.
 */
static void release_cpu(s32 cpu)
{
	cpu_ctx(cpu)->released = true;
	if (cpu == bpf_get_smp_processor_id())
		scx_bpf_reenqueue_local_from_anywhere();
	else if (__COMPAT_has_generic_reenq())
		scx_bpf_dsq_reenq(SCX_DSQ_LOCAL_ON | cpu, 0);
	kick_idle_for_queued(cpu);
}

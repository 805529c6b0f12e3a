/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Where tasks wait, and which CPUs have tasks waiting that another may take: overload_map (Sistare's task stealing).
 *
 * A CPU has two queues: the DSQ with its id, of tasks that may move, and pinned_queue(), of those that may not. Thieves
 * look at the first, however many wait in the second.
 *
 *	enqueue()   in line behind the running task ----> its queue; may it move? bit set
 *	running()   it was the last that wait_time? ---------> bit cleared
 *	dispatch()  queue of those that may move empty? -> bit cleared
 *	tick()      the same ----------------------------> bit cleared
 *	running()   on another CPU, which took the last -> bit cleared, and set again if one joins meanwhile
 *	steal()     in vain: was it the last? -----------> the same
 *
 * All but the last two under the rq lock of the queue's CPU. A thief that sees an empty queue cannot tell whether the kernel
 * is about to insert a task; queued_load (order/queue.bpf.h) can. So a cleared bit never hides a waiting task that may move, but for
 * the moment in which one joins while a thief clears it. A bit that stays, for pinned tasks wait there, costs thieves a look,
 * until the tick. Writes only when the state changes.
 */
#pragma once

enum {
	MAX_OFFER_LOOKS = 16, /* waiting tasks looked at for one that an idle CPU may take */
};

struct sparse_map overload_map;

static u64 pinned_queue(s32 cpu)
{
	return MAX_CPUS + cpu;
}

/* The queue in which @p is about to wait for @cpu. The kernel inserts it when enqueue() returns. */
static u64 mark_waiting(const struct task_struct *p, s32 cpu, struct cpu_ctx *cctx)
{
	cctx->waiting = true;
	if (!is_migratable(p)) {
		cctx->waiting_pinned = true;
		return pinned_queue(cpu);
	}
	cctx->overloaded = true;
	if (tunables.steal && !map_test(&overload_map, cpu_layout(cpu)->slot))
		map_set(&overload_map, cpu_layout(cpu));
	return cpu;
}

static void not_overloaded(s32 cpu, struct cpu_ctx *cctx)
{
	cctx->overloaded = false;
	if (tunables.steal)
		map_test_and_clear(&overload_map, cpu_layout(cpu)->slot);
}

/* Both queues of @cpu are empty, whose load (order/queue.bpf.h) says so at less cost than the queues. */
static void note_none_waits(s32 cpu, struct cpu_ctx *cctx)
{
	if (cctx->overloaded)
		not_overloaded(cpu, cctx);
	cctx->waiting_pinned = false;
	cctx->waiting = false;
}

/* Takes note of queues of @cpu that are empty. */
static void note_taken(s32 cpu, struct cpu_ctx *cctx)
{
	if (cctx->overloaded && !scx_bpf_dsq_nr_queued(cpu))
		not_overloaded(cpu, cctx);
	if (cctx->waiting_pinned && !scx_bpf_dsq_nr_queued(pinned_queue(cpu)))
		cctx->waiting_pinned = false;
	cctx->waiting = cctx->overloaded || cctx->waiting_pinned;
}

/*
 * In running and dispatch of another CPU: are all that wait_time on @victim taken? Who joins after that either finds the bit
 * cleared, or is found in line here; then a CPU may have gone idle meanwhile, for it saw no bit. Should @victim itself take
 * that one first, the bit stays until the next thief comes here. Returns 0.
 */
__noinline s32 note_all_taken(s32 victim)
{
	u32 slot = cpu_layout(victim)->slot;
	s32 idle;

	if (READ_ONCE(cpu_ctx(victim)->queued_load) || !map_test(&overload_map, slot) ||
	    !map_test_and_clear(&overload_map, slot) || !READ_ONCE(cpu_ctx(victim)->queued_load))
		return 0;
	map_set(&overload_map, cpu_layout(victim));
	idle = any_idle_in_reach(victim);
	if (idle >= 0)
		scx_bpf_kick_cpu(idle, SCX_KICK_IDLE);
	return 0;
}

static bool one_queue_waits(const struct cpu_ctx *cctx)
{
	return cctx->overloaded != cctx->waiting_pinned;
}

/* The first of both queues of @cpu, and in @queue which it is in; NULL: nobody waits. */
static struct task_struct *first_queued(s32 cpu, const struct cpu_ctx *cctx, u64 *queue)
{
	struct task_struct *p = NULL, *pinned = NULL;

	if (cctx->overloaded)
		p = __COMPAT_scx_bpf_dsq_peek(cpu);
	if (cctx->waiting_pinned)
		pinned = __COMPAT_scx_bpf_dsq_peek(pinned_queue(cpu));
	if (pinned && (!p || vtime_before(pinned->scx.dsq_vtime, p->scx.dsq_vtime))) {
		*queue = pinned_queue(cpu);
		return pinned;
	}
	*queue = cpu;
	return p;
}

/* In dispatch of @cpu. Takes the first task of @queue, one of its own; false if there is none. */
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
 * A task was put in line on @cpu: wake an idle CPU that may take it; false if there is none. Comes after the bit
 * was set, and a CPU that goes idle looks for bits after it marked itself idle, so one of the two sees the other.
 * The kick is delivered when interrupts come on again, which is after the kernel inserted the task.
 */
static bool kick_idle_for(struct task_struct *p, s32 cpu)
{
	s32 thief;

	if (!tunables.steal || !is_migratable(p))
		return false;
	thief = find_idle_for_queued(p, cpu);
	if (thief < 0)
		return false;
	stat_inc(STAT_KICK);
	scx_bpf_kick_cpu(thief, SCX_KICK_IDLE);
	return true;
}

/*
 * The other half: @cpu is marked idle. May there be a task for it that was put in line after steal() looked? Hot ones that
 * steal() saw it will come back to. Bounded by MAX_BEYOND, as far as kick_idle_for() looks for idle CPUs.
 */
static bool work_in_reach(s32 cpu, const struct cpu_ctx *cctx)
{
	const volatile struct llc_layout *l = llc_layout(cpu_layout(cpu)->llc);
	u32 i;

	if (map_any(&overload_map, cpu_layout(cpu)->llc))
		return true;
	if (cctx->cold_in)
		return false;
	for (i = bpf_arena_loop_zero; i < MAX_BEYOND && i < l->nr_reach && can_loop; i++)
		if (map_any(&overload_map, other_llc(l, i)))
			return true;
	return false;
}

/*
 * Offers one of @cpu's waiting tasks, the first that an idle CPU may take. Its rq lock is held. Bounded by
 * MAX_OFFER_LOOKS. Returns 0, for a function that the verifier looks at once has to return something.
 */
__noinline s32 kick_idle_for_queued(s32 cpu)
{
	struct cpu_ctx *cctx = cpu_ctx(cpu);
	struct task_struct *p;
	u32 looks = bpf_arena_loop_zero;

	if (!cctx->overloaded)
		return 0;
	note_taken(cpu, cctx);
	bpf_for_each(scx_dsq, p, cpu, 0)
	{
		/* No CPU is idle for one that may use all: then none is for the others. */
		if (kick_idle_for(p, cpu) || p->nr_cpus_allowed >= tunables.nr_cpus_possible)
			return 0;
		looks += bpf_arena_loop_one;
		if (looks >= MAX_OFFER_LOOKS)
			return 0;
	}
	return 0;
}

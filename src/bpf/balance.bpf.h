/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Balance among busy CPUs: one that never runs out of work would never steal, and tasks that wait for a CPU
 * which is worse off, or which a real-time task has taken, would wait on. So now and then a busy CPU looks
 * at one overloaded CPU, another each time, and takes a task that has waited clearly longer than its own.
 *
 *	dispatch, BALANCE_NS after the last look -> the next overloaded CPU of the LLC, of others every second time
 *	    its first task's wait - own first task's wait (both by weight) >= BALANCE_WAIT_NS? take it
 *
 * Wait counts by weight: that a SCHED_IDLE task waits long is as it should be. Bounded by one victim and
 * nr_reach + 1 maps a look.
 */
#pragma once

enum {
	BALANCE_NS = 4000000,
	BALANCE_WAIT_NS = 20000000,
};

/* Time for which @p has been in line. */
static u64 waited(struct task_struct *p)
{
	struct task_ctx *tctx = task_ctx(p);
	s64 wait = tctx ? scx_bpf_now() - tctx->queued_at : 0;

	return wait > 0 ? wait : 0;
}

/* The same of the first task in @cpu's queue, by weight; 0: none waits. */
static u64 first_wait(s32 cpu)
{
	struct task_struct *p = __COMPAT_scx_bpf_dsq_peek(cpu);

	return p ? waited(p) * p->scx.weight / WEIGHT_DFL : 0;
}

/* The next overloaded CPU of @llc after @slot, not @cpu; -1: none. */
__noinline s32 next_overloaded(s32 cpu, u32 llc, u32 slot)
{
	struct map_walk walk = map_walk_from(llc, slot);

	while (map_walk_more(&walk) && can_loop)
		if (map_walk_next(overload_map, &walk) && slot_cpu(walk.slot) != cpu)
			return slot_cpu(walk.slot);
	return -1;
}

/* In dispatch of @cpu, which has work of its own. True if a task was taken. */
static bool balance(s32 cpu, struct cpu_ctx *cctx)
{
	const volatile struct llc_layout *l = llc_layout(cpu_layout(cpu)->llc);
	u64 now = scx_bpf_now();
	s32 victim = -1;
	u32 i, turn;

	if (now - cctx->balanced_at < BALANCE_NS)
		return false;
	cctx->balanced_at = now;

	turn = cctx->balance_turn++;
	if (turn % 2)
		victim = next_overloaded(cpu, cpu_layout(cpu)->llc, cctx->balance_slot);
	for (i = bpf_arena_loop_zero; victim < 0 && i < l->nr_reach && can_loop; i++) {
		u32 llc = other_llc(l, (turn / 2 + i) % l->nr_reach);

		if (map_any(overload_map, llc))
			victim = next_overloaded(cpu, llc, cctx->balance_slot);
	}
	if (victim < 0 && !(turn % 2))
		victim = next_overloaded(cpu, cpu_layout(cpu)->llc, cctx->balance_slot);
	if (victim < 0)
		return false;
	cctx->balance_slot = cpu_layout(victim)->slot;

	if (first_wait(victim) < first_wait(cpu) + BALANCE_WAIT_NS)
		return false;
	if (!scx_bpf_dsq_move_to_local(victim, 0))
		return false;
	stat_inc(STAT_BALANCE);
	return true;
}

/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Stealing: a CPU that is about to go idle takes a waiting task of an overloaded CPU (Steve
 * Sistare's task stealing). It scans
 *
 * 1. its LLC, from the slot after its own, so that thieves spread;
 * 2. the other LLCs of the node, nearest first;
 * 3. the LLCs of other nodes, nearest first, as far as --steal allows.
 *
 * CPUs of other LLCs take a task only if it stopped at least a migration cost ago, because its
 * caches are warm until then. The tick of its CPU offers it again.
 *
 * Bounded by steal_tries victims, and nr_reach + 1 LLCs. If the tries run out in its own LLC, the
 * next search begins after the last victim (steal_slot).
 */
#pragma once

/* Return the cost of a migration from @llc to @cpu, ns. */
static u64 migration_cost(s32 cpu, u32 llc)
{
	if (llc == cpu_layout(cpu)->llc)
		return 0;
	return llc_layout(llc)->node == cpu_node(cpu) ? tunables.llc_cost_ns
						      : tunables.node_cost_ns;
}

/*
 * Have this CPU, which idles, check the queue of @victim once more, because a task may be about to
 * be inserted there. In dispatch:
 *
 *	CPU 0, @victim, in enqueue()                CPU 1, this one
 *	set its overload bit (rq lock held)
 *	read idle_map: no bit is set
 *	                                            set its idle bit
 *	                                            read the overload bit: set; the queue is empty
 *	the kernel inserts the task
 *	release the rq lock
 *
 * The kick takes the rq lock before it finds that CPU 0 is not idle. Then CPU 1 checks the queue
 * once more. A task that is queued later finds the idle bit.
 */
static void await_insertion(struct cpu_ctx *cctx, s32 victim)
{
	cctx->awaits_insertion = true;
	kick_idle(victim);
}

/*
 * Take a task of an overloaded CPU of @llc. Return false if none may be taken. In dispatch of @cpu.
 * Bounded by steal_tries victims, counted in @tries.
 */
__noinline bool steal_from(s32 cpu, u32 llc, u32 *tries __arg_nonnull)
{
	struct cpu_ctx *cctx = cpu_ctx(cpu);
	bool own = llc == cpu_layout(cpu)->llc;
	u32 slot = own && cctx->steal_slot != NO_SLOT ? cctx->steal_slot : cpu_layout(cpu)->slot;
	struct map_walk walk = map_walk_from(llc, slot, ALL_SLOTS);
	struct pull want = {.why = PULL_IDLE, .cost = migration_cost(cpu, llc)};
	bool empty;
	s32 victim;

	if (own)
		cctx->steal_slot = NO_SLOT;
	map_for_each(&overload_map, &walk) {
		victim = slot_cpu(walk.slot);
		if (victim == cpu)
			continue;
		empty = own && cctx->idle && !scx_bpf_dsq_nr_queued(victim);
		if (pull(cpu, victim, victim, &want))
			return true;
		stat_inc(STAT_STEAL_MISS);
		clear_overload_of(victim);
		if (empty && READ_ONCE(cpu_ctx(victim)->queued_load))
			await_insertion(cctx, victim);
		*tries += bpf_arena_loop_one;
		if (*tries >= tunables.steal_tries) {
			if (own)
				cctx->steal_slot = walk.slot;
			return false;
		}
	}
	return false;
}

/*
 * Return true if a CPU of @cpu's LLC is overloaded. @cpu checks this again when it has set its idle
 * bit. Tasks of other LLCs are offered by the ticks of their CPUs.
 */
static bool work_in_reach(s32 cpu)
{
	return map_any(&overload_map, cpu_layout(cpu)->llc);
}

/*
 * Take a task of another CPU, nearest LLC first. Return true if one was taken. In dispatch of @cpu.
 */
static bool steal(s32 cpu)
{
	u32 llc = cpu_layout(cpu)->llc, tries = bpf_arena_loop_zero, i;
	const volatile struct llc_layout *l = llc_layout(llc);
	struct cpu_ctx *cctx = cpu_ctx(cpu);

	if (!tunables.steal || !is_usable(cpu))
		return false;
	stat_inc(STAT_STEAL);
	cctx->awaits_insertion = false;
	if (work_in_reach(cpu) && steal_from(cpu, llc, &tries)) {
		stat_inc(STAT_STEAL_LLC);
		return true;
	}
	for (i = bpf_arena_loop_zero; i < l->nr_reach && tries < tunables.steal_tries && can_loop;
	     i++) {
		llc = other_llc(l, i);
		if (!map_any(&overload_map, llc) || !steal_from(cpu, llc, &tries))
			continue;
		stat_inc(i < l->nr_near ? STAT_STEAL_NODE : STAT_STEAL_FAR);
		if (llc < MATRIX_LLCS)
			cctx->stolen_from[llc]++;
		return true;
	}
	return false;
}

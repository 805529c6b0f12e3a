/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Stealing: a CPU about to go idle takes a waiting task from an overloaded CPU (Sistare's task stealing).
 *
 *	own LLC, from the slot after this CPU on, so that thieves spread, or on from where tries ran out last
 *	  -> the other LLCs of the node, nearest first -> other nodes' LLCs, nearest first, as far as --steal allows;
 *	     of these first the tasks whose home is this node (numa/return.bpf.h). Of other LLCs only what is not hot there, and by a
 *     weak CPU only what fits it or has wait_time long enough (steal/heat.bpf.h)
 *
 * Bounded by steal_tries victims, as many again for tasks at home here, and nr_reach + 1 maps.
 */
#pragma once

/* In dispatch of @cpu. Takes the first task of a victim in @llc that may run here. */
__noinline bool steal_from(s32 cpu, u32 llc, u32 *tries __arg_nonnull)
{
	struct cpu_ctx *cctx = cpu_ctx(cpu);
	bool own = llc == cpu_layout(cpu)->llc;
	u32 slot = own && cctx->steal_slot != NO_SLOT ? cctx->steal_slot : cpu_layout(cpu)->slot;
	struct map_walk walk = map_walk_from(&overload_map, llc, slot, ALL_SLOTS);
	u64 cost = migration_cost(cpu, llc);
	bool check_hot = cost || is_weak(cpu);
	s32 victim;

	if (own)
		cctx->steal_slot = NO_SLOT;
	while (map_walk_more(&walk) && can_loop) {
		if (!map_walk_next(&overload_map, &walk))
			continue;
		victim = slot_cpu(walk.slot);
		if (victim == cpu)
			continue;
		if (check_hot ? take_cold(cpu, victim, cost) : scx_bpf_dsq_move_to_local(victim, 0))
			return true;
		stat_inc(STAT_STEAL_MISS);
		note_all_taken(victim);
		*tries += bpf_arena_loop_one;
		if (*tries >= tunables.steal_tries) {
			if (own)
				cctx->steal_slot = walk.slot;
			return false;
		}
	}
	return false;
}

static bool steal(s32 cpu)
{
	const volatile struct llc_layout *l = llc_layout(cpu_layout(cpu)->llc);
	struct cpu_ctx *cctx = cpu_ctx(cpu);
	u32 i, tries = bpf_arena_loop_zero;

	if (!tunables.steal)
		return false;
	stat_inc(STAT_STEAL);
	cctx->cold_in = 0;
	if (map_any(&overload_map, cpu_layout(cpu)->llc) && steal_from(cpu, cpu_layout(cpu)->llc, &tries)) {
		stat_inc(STAT_STEAL_LLC);
		return true;
	}
	for (i = bpf_arena_loop_zero; i < l->nr_reach && tries < tunables.steal_tries && can_loop; i++) {
		u32 llc = other_llc(l, i);

		if (i == l->nr_near && steal_home(cpu))
			return true;
		if (map_any(&overload_map, llc) && steal_from(cpu, llc, &tries)) {
			stat_inc(i < l->nr_near ? STAT_STEAL_NODE : STAT_STEAL_FAR);
			return true;
		}
	}
	await_cold(cpu, cctx);
	return false;
}

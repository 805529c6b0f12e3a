/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Room elsewhere for a task that runs for long (MOVE_ROOM in move.bpf.h):
 *
 *	condition                                        the task moves to
 *	its core runs another task (SMT)                 the nearest core with all CPUs idle
 *	cores of its LLC are ranked                      an idle core that is preferred to its own
 *	another LLC of the node has at least two idle
 *	CPUs more than its own                           an idle core there
 *
 * Preferred cores are CPUs of one kind of which some reach higher frequencies (Intel's ITMT, AMD's
 * preferred cores). The slots of an LLC are sorted by rank, so a walk from the first slot finds the
 * best idle core.
 *
 * Bounded by MAX_MOVE_CHECKS idle cores of an LLC. A task that shares its core checks its own LLC
 * and MAX_BEYOND others. Any other task checks its own LLC and one other, and next time another one
 * (move_turn).
 */
#pragma once

/* Return true if another CPU of the core is busy (SMT). */
static bool shares_core(const volatile struct cpu_layout *l)
{
	return machine.smt_width > 1 && !is_core_idle(l, map_bit(l->slot));
}

/* Return how many CPUs of @llc are idle. Bounded by LINES_PER_LLC. */
__noinline u32 nr_idle(u32 llc)
{
	u32 first = llc_layout(llc)->first_line, nr = bpf_arena_loop_zero, line;

	bpf_for(line, first, first + llc_layout(llc)->nr_lines)
		nr += __builtin_popcountll(READ_ONCE(idle_map.lines[line & (MAX_LINES - 1)].bits));
	return nr;
}

/*
 * Return a CPU of @llc for @p, which runs on @cpu: all CPUs of its core are idle, it is strong
 * enough, and if @better, preferred to @cpu. -1 if there is none. Bounded by MAX_MOVE_CHECKS.
 */
__noinline s32 find_core(struct task_struct *p __arg_trusted, s32 cpu, u32 llc, bool better)
{
	struct map_walk walk = map_walk_from(llc, last_slot(llc), ALL_SLOTS);
	struct task_ctx *tctx = task_ctx(p);
	u32 checks = bpf_arena_loop_zero;
	s32 other;

	walk.whole_cores = machine.smt_width > 1;
	if (!tctx)
		return -1;
	map_for_each(&idle_map, &walk) {
		other = slot_cpu(walk.slot);
		if (checks >= MAX_MOVE_CHECKS ||
		    (better && cpu_layout(other)->rank <= cpu_layout(cpu)->rank))
			return -1;
		checks += bpf_arena_loop_one;
		if (may_use(p, other) && (!is_asym() || fits_cpu(tctx->task_util, other)))
			return other;
	}
	return -1;
}

/*
 * Return a CPU for @p, which shares the core of @cpu, on the nearest core with all CPUs idle; -1 if
 * there is none. Bounded by MAX_BEYOND other LLCs.
 */
__noinline s32 find_own_core(struct task_struct *p __arg_trusted, s32 cpu)
{
	u32 llc = cpu_layout(cpu)->llc, i;
	s32 other = find_core(p, cpu, llc, false);

	for (i = bpf_arena_loop_zero;
	     other < 0 && i < MAX_BEYOND && i < machine.nr_llcs - 1 && can_loop; i++) {
		u32 next = other_llc(llc_layout(llc), i);

		if (map_any(&idle_map, next))
			other = find_core(p, cpu, next, false);
	}
	return other;
}

/* Return an idle CPU better for @p than @cpu; -1 if there is none. In tick and enqueue. */
__noinline s32 find_room(struct task_struct *p __arg_trusted, s32 cpu)
{
	const volatile struct cpu_layout *l = cpu_layout(cpu);
	const volatile struct llc_layout *llc = llc_layout(l->llc);
	s32 other = machine.ranked ? find_core(p, cpu, l->llc, true) : -1;
	u32 next;

	if (other < 0 && shares_core(l))
		return find_own_core(p, cpu);
	if (other >= 0 || !llc->nr_near)
		return other;
	next = other_llc(llc, cpu_ctx(cpu)->move_turn % llc->nr_near);
	return nr_idle(next) > nr_idle(l->llc) + 1 ? find_core(p, cpu, next, false) : -1;
}

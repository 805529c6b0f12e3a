/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The search for an idle CPU (select_idle_sibling), bounded by SIS_UTIL of 70fb5ccf2e.
 *
 *	fast: target, previous, recently used CPU, if they share the target's LLC ---> claimed
 *	core: under SMT, if the target's LLC may have a core idle as a whole ---------> claimed
 *	scan: the target's LLC, nr_scan CPUs from the one after the target on,
 *	      wrapping, so that successive wakeups cover all of it -------------------> claimed
 *	home: the node's other LLCs, then the LLCs of the task's home node, if that is
 *	      another (numa/home.bpf.h) ---------------------------------------------------> claimed
 *	beyond: the nearest other LLCs, in the same way, each by its own nr_scan -----> claimed
 *	else -1
 *
 * Tasks that are too big for the weakest CPUs have a search of their own (capacity/fit.bpf.h).
 *
 * Busy CPUs are skipped by the line: a search that finds nothing reads one word.
 */
#pragma once

/* Claims an idle CPU that @p may use; @walk is there then. Bounded by the walk's window. */
__noinline s32 scan_window(struct task_struct *p __arg_trusted, struct map_walk *walk __arg_nonnull)
{
	while (map_walk_more(walk) && can_loop) {
		s32 cpu;

		if (!map_walk_next(&idle_map, walk))
			continue;
		cpu = slot_cpu(walk->slot);
		if (may_use(p, cpu) && map_test_and_clear(&idle_map, walk->slot))
			return cpu;
	}
	return -1;
}

/*
 * Adds to @scanned the CPUs that it went over, unless that is NO_BUDGET: then they are not counted and not bounded.
 * The verifier looks at it once for all that call it.
 */
__noinline s32 scan_llc(struct task_struct *p __arg_trusted, u32 llc, u32 slot, u32 *scanned __arg_nonnull)
{
	bool bounded = *scanned != NO_BUDGET;
	u32 window = bounded ? budget(llc) : ALL_SLOTS;
	struct map_walk walk;
	s32 cpu;

	if (!window)
		return -1;
	if (llc_ctx(llc)->has_idle_core) {
		walk = map_walk_from(&idle_map, llc, slot, ALL_SLOTS);
		walk.whole_cores = true;
		cpu = scan_window(p, &walk);
		if (bounded)
			*scanned += map_walked(&walk, cpu >= 0);
		if (cpu >= 0)
			return cpu;
		llc_ctx(llc)->has_idle_core = false;
	}
	walk = map_walk_from(&idle_map, llc, slot, window);
	cpu = scan_window(p, &walk);
	if (bounded)
		*scanned += map_walked(&walk, cpu >= 0);
	return cpu;
}

/* As scan_llc(), in the @nr nearest other LLCs. Bounded by MAX_BEYOND. */
static s32 scan_beyond(struct task_struct *p, u32 llc, u32 slot, u32 nr, u32 *scanned)
{
	const volatile struct llc_layout *l = llc_layout(llc);
	s32 cpu;
	u32 i;

	for (i = bpf_arena_loop_zero; i < MAX_BEYOND && i < nr && can_loop; i++) {
		u32 other = other_llc(l, i);

		if (!map_any(&idle_map, other))
			continue;
		cpu = scan_llc(p, other, slot, scanned);
		if (cpu >= 0)
			return cpu;
	}
	return -1;
}

/* The same in all LLCs of @node. */
static s32 scan_node(struct task_struct *p, u32 node, u32 slot, u32 *scanned)
{
	u32 llc = node_llc(node);
	s32 cpu = scan_llc(p, llc, slot, scanned);

	return cpu >= 0 ? cpu : scan_beyond(p, llc, slot, llc_layout(llc)->nr_near, scanned);
}

/* For a task that is to wake at @l, away from its home, and may go there: the rest of the node, then its home. */
static s32 scan_home(struct task_struct *p, const struct task_ctx *tctx, const volatile struct cpu_layout *l,
		     u32 *scanned)
{
	s32 cpu;

	if (!wants_home(tctx, l->node))
		return -1;
	cpu = scan_beyond(p, l->llc, l->slot, llc_layout(l->llc)->nr_near, scanned);
	if (cpu >= 0)
		return cpu;
	cpu = scan_node(p, tctx->preferred_node, l->slot, scanned);
	if (cpu >= 0)
		stat_inc(STAT_HOME_WAKE);
	return cpu;
}

/* An idle CPU that would steal @p from @cpu. */
static s32 find_idle_for_queued(struct task_struct *p, s32 cpu)
{
	const volatile struct cpu_layout *l = cpu_layout(cpu);
	u32 scanned = NO_BUDGET;
	s32 idle;

	if (is_asym() && is_big(p))
		return scan_fit(p, cpu, llc_layout(l->llc)->nr_reach);
	idle = scan_llc(p, l->llc, l->slot, &scanned);
	return idle >= 0 ? idle : scan_beyond(p, l->llc, l->slot, llc_layout(l->llc)->nr_reach, &scanned);
}

/* Claims an idle CPU for @p to wake on, counting where it was found; -1 if there is none. */
static s32 find_idle(struct task_struct *p, const struct task_ctx *tctx, s32 prev, s32 target)
{
	const volatile struct cpu_layout *l = cpu_layout(target);
	u32 scanned = 0;
	s32 cpu;

	if (is_asym() && is_big(p))
		return find_fit(p, prev, target);
	if (claim_fast(p, target, target)) {
		stat_inc(STAT_TARGET);
		return target;
	}
	if (prev != target && claim_fast(p, prev, target)) {
		stat_inc(STAT_PREV);
		return prev;
	}
	if (tctx->recent >= 0 && claim_fast(p, tctx->recent, target)) {
		stat_inc(STAT_RECENT);
		return tctx->recent;
	}
	cpu = scan_llc(p, l->llc, l->slot, &scanned);
	if (cpu >= 0) {
		stat_inc(STAT_SCAN);
	} else {
		cpu = scan_home(p, tctx, l, &scanned);
		if (cpu < 0)
			cpu = scan_beyond(p, l->llc, l->slot, tunables.nr_llcs - 1, &scanned);
		stat_inc(cpu >= 0 ? STAT_BEYOND : STAT_FAILED);
	}
	stat_add(STAT_SCANNED, scanned);
	return cpu;
}

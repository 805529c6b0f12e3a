/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The search for an idle CPU (select_idle_sibling; its bound, SIS_UTIL of 70fb5ccf2e, is to come).
 *
 *	fast: target, previous, recently used CPU, if they share the target's LLC ---> claimed
 *	scan: the target's LLC from the slot after the target on, wrapping;
 *	      under SMT cores that are idle as a whole first ------------------------> claimed
 *	beyond: the nearest other LLCs, in the same way -----------------------------> claimed
 *	else -1
 *
 * Busy CPUs are skipped by the word: a search that finds nothing reads one word a line.
 */
#pragma once

enum {
	MAX_BEYOND = 8, /* other LLCs looked at */
};

/* Claims an idle CPU of @llc that @p may use. Bounded by the LLC's slots. */
__noinline s32 scan_slots(struct task_struct *p __arg_trusted, u32 llc, u32 slot, bool whole_cores)
{
	struct map_walk walk = map_walk_from(llc, slot);

	walk.whole_cores = whole_cores;
	while (map_walk_more(&walk) && can_loop) {
		s32 cpu;

		if (!map_walk_next(idle_map, &walk))
			continue;
		cpu = slot_cpu(walk.slot);
		if (may_use(p, cpu) && map_test_and_clear(idle_map, walk.slot))
			return cpu;
	}
	return -1;
}

static s32 scan_llc(struct task_struct *p, u32 llc, u32 slot)
{
	s32 cpu = -1;

	if (!map_any(idle_map, llc))
		return -1;
	if (tun.smt_width > 1)
		cpu = scan_slots(p, llc, slot, true);
	if (cpu < 0)
		cpu = scan_slots(p, llc, slot, false);
	return cpu;
}

/* As scan_llc(), in the @nr nearest other LLCs. Bounded by MAX_BEYOND. */
static s32 scan_beyond(struct task_struct *p, u32 llc, u32 slot, u32 nr)
{
	const volatile struct llc_layout *l = llc_layout(llc);
	s32 cpu;
	u32 i;

	for (i = bpf_arena_loop_zero; i < MAX_BEYOND && i < nr && can_loop; i++) {
		cpu = scan_llc(p, other_llc(l, i), slot);
		if (cpu >= 0)
			return cpu;
	}
	return -1;
}

/* An idle CPU that would steal @p from @cpu. */
static s32 scan_thief(struct task_struct *p, s32 cpu)
{
	const volatile struct cpu_layout *l = cpu_layout(cpu);
	s32 idle = scan_llc(p, l->llc, l->slot);

	return idle >= 0 ? idle : scan_beyond(p, l->llc, l->slot, llc_layout(l->llc)->nr_reach);
}

static bool claim_fast(struct task_struct *p, s32 cpu, s32 target)
{
	return share_llc(cpu, target) && may_use(p, cpu) && claim_idle(cpu);
}

/* Claims an idle CPU for @p to wake on, counting where it was found; -1 if there is none. */
static s32 find_idle(struct task_struct *p, const struct task_ctx *tctx, s32 prev, s32 target)
{
	const volatile struct cpu_layout *l = cpu_layout(target);
	s32 cpu;

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
	cpu = scan_llc(p, l->llc, l->slot);
	if (cpu >= 0) {
		stat_inc(STAT_SCAN);
		return cpu;
	}
	cpu = scan_beyond(p, l->llc, l->slot, tun.nr_llcs - 1);
	stat_inc(cpu >= 0 ? STAT_BEYOND : STAT_NONE);
	return cpu;
}

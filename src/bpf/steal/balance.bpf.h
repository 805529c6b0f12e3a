/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Fairness among busy CPUs, which never steal. Without balancing, of three hogs on two CPUs one
 * would have a CPU alone. Every BALANCE_NS a busy CPU chooses an overloaded CPU, alternately of its
 * own LLC and of another one, in tick. In dispatch it pulls one of the first tasks that wait there.
 * Waiting times are multiplied by the weight of the task (by_weight()), so a task of twice the
 * weight needs to wait half as long. That task must have waited for longer than the task that would
 * run here, and it must
 *
 * 1. have more positive lag: its deadline is earlier by BALANCE_GRAN_NS of its own CPU time; or
 * 2. have waited for longer by BALANCE_WAIT_NS of a task of nice 0, or of the victim's current, if
 *    that is heavier.
 *
 * Or, however long the task has waited, its CPU has more load by at least twice the weight of the
 * task, and the task is at least a quarter as heavy as current there.
 *
 * Virtual times of CPUs advance at different speeds. The distance between vtime + voffset of two
 * CPUs is the lag between their tasks:
 *
 *	vtime + voffset     CPU 0: two hogs  ---------|
 *	                     CPU 1: one hog   ------------------|
 *	                     CPU 2: idle      ------------------|   as if a nice 0 task ran
 *
 * The CPU that balances reduces the distance to MAX_DRIFT_NS. A larger distance comes from tasks
 * that no other CPU may take; the tasks that may migrate must not pay for it.
 */
#pragma once

enum {
	BALANCE_NS = 4000000,
	MAX_DRIFT_NS = 100000000,
};

/*
 * Advance voffset by the time that the CPU was idle, so that no task has lag from time in which no
 * task wanted to run. In update_idle, when the CPU leaves the idle loop.
 */
static void account_idle(struct cpu_ctx *cctx, u64 now)
{
	s64 idle = now - cctx->pelt.since;

	if (!cctx->pelt.running && idle > 0)
		cctx->voffset += idle;
}

/* Return the next overloaded CPU of @llc after @slot, except @cpu; NO_CPU if there is none. */
__noinline s32 next_overloaded(s32 cpu, u32 llc, u32 slot)
{
	struct map_walk walk = map_walk_from(llc, slot, ALL_SLOTS);

	map_for_each(&overload_map, &walk)
		if (slot_cpu(walk.slot) != cpu)
			return slot_cpu(walk.slot);
	return NO_CPU;
}

/*
 * Return the overloaded CPU to balance with, NO_CPU if there is none. Begin alternately with the
 * own LLC and with the others; each overloaded CPU has its turn. In tick. Bounded by MAX_BEYOND
 * LLCs; the next call continues.
 */
__noinline s32 balance_victim(s32 cpu)
{
	const volatile struct llc_layout *own = llc_layout(cpu_layout(cpu)->llc), *l;
	struct cpu_ctx *cctx = cpu_ctx(cpu);
	u32 turn = cctx->balance_turn++, reach = min(own->nr_reach, MAX_BEYOND), i, llc;
	s32 victim;

	for (i = bpf_arena_loop_zero; i <= reach && can_loop; i++) {
		if (i == (turn % 2 ? reach : 0)) {
			victim = next_overloaded(cpu, cpu_layout(cpu)->llc, cctx->balance_slot);
			if (victim >= 0)
				cctx->balance_slot = cpu_layout(victim)->slot;
		} else {
			llc = other_llc(own, (turn / 2 + i) % own->nr_reach);
			l = llc_layout(llc);
			victim = next_overloaded(cpu, llc,
						 l->first_line * SLOTS_PER_LINE +
							 turn / 2 / own->nr_reach %
								 (l->nr_slots ?: 1));
		}
		if (victim >= 0)
			return victim;
	}
	return NO_CPU;
}

/*
 * Reduce the distance between the virtual times of the two CPUs to MAX_DRIFT_NS of CPU time of a
 * task of this @weight, by changing voffset of @cctx.
 */
static void trim_drift(struct cpu_ctx *cctx, const struct cpu_ctx *victim, u32 weight)
{
	s64 distance = cctx->vtime + cctx->voffset - victim->vtime - victim->voffset;
	s64 most = to_vtime(MAX_DRIFT_NS, weight);

	if (distance > most)
		cctx->voffset -= distance - most;
	else if (distance < -most)
		cctx->voffset += -distance - most;
}

/*
 * Return true if the first task that waits on @victim may run on @cpu. Current of @cpu has no tick;
 * its slice ends for balance() only if this is true.
 */
static bool may_take_first(s32 cpu, s32 victim)
{
	struct task_struct *first = __COMPAT_scx_bpf_dsq_peek(victim);

	return first && can_migrate_to(first, cpu);
}

/*
 * Pull a task from the CPU that balance_victim() chose, if it is due before the next task of @cpu,
 * which has this @deadline. @own is the context of that task, NULL if it is current, which does not
 * wait. If it lacks OVERRUN_NS of service, no other comes before it, because a pulled task runs at
 * once. Return true if a task was pulled. In dispatch of @cpu, whose rq lock is dropped meanwhile.
 */
__noinline bool balance(s32 cpu, u64 deadline, struct task_ctx *own)
{
	struct pull want = {.why = PULL_BALANCE};
	struct cpu_ctx *cctx = cpu_ctx(cpu), *from;
	s32 victim = cctx->balance_with;
	struct task_struct *first;
	struct task_ctx *tctx;
	u32 weight, curr;
	u64 gran;

	weight = own ? task_weight(own) : cctx->curr_weight;
	if (time_before(deadline, cctx->vtime - to_vtime(OVERRUN_NS, weight)))
		return false;
	first = victim >= 0 ? __COMPAT_scx_bpf_dsq_peek(victim) : NULL;
	tctx = first ? task_ctx(first) : NULL;
	if (!tctx)
		return false;
	from = cpu_ctx(victim);
	weight = task_weight(tctx);
	want.curr_weight = curr = READ_ONCE(from->curr_weight);
	/* By the weight of the lighter one of current and the first task of the victim. */
	trim_drift(cctx, from, curr ? min(curr, weight) : weight);
	gran = to_vtime(share_llc(cpu, victim) ? BALANCE_GRAN_NS : 2 * BALANCE_GRAN_NS, weight);
	want.before = deadline + cctx->voffset - from->voffset - gran;
	want.surplus = cpu_load(from) - cpu_load(cctx);
	if (own)
		want.min_wait = by_weight(wait_time(own, scx_bpf_now()), task_weight(own));
	/* A heavy current of the victim is entitled to many slices before a light task has one. */
	want.long_wait = want.min_wait + by_weight(BALANCE_WAIT_NS, max(curr, NICE_0));
	/* A strong CPU with a big task pulls from a weak CPU only after a long wait. */
	if (is_asym() && is_weak(victim) && !is_weak(cpu) && !fits_all(cctx->curr_util)) {
		want.before = deadline - (1ULL << 62);
		want.surplus = 0;
	}
	if (!pull(cpu, victim, victim, &want))
		return false;
	stat_inc(STAT_BALANCE);
	return true;
}

/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Where a task goes that is too big for the weakest CPUs (capacity/capacity.bpf.h):
 *
 *	fast: target, previous, recently used CPU, if idle and strong enough -------------> claimed
 *	fit:  an idle CPU that is strong enough, of a whole idle core first under SMT, in
 *	      the target's LLC, then in the others, nearest first, however busy they are -> claimed
 *	else  the idle CPU with the largest spare capacity -------------------------------> claimed
 *	none  -1
 *
 * nr_scan does not bound it: an idle CPU that is strong enough is worth more than the look at those that are not. It goes
 * over idle CPUs only, of MAX_BEYOND other LLCs at most.
 *
 * If none is idle, big tasks wait in line at a strong CPU and small ones at a weak one: fallback_cpu().
 */
#pragma once

enum {
	/* For so long weaker CPUs leave a waiting task that is too big for them to the stronger ones. */
	MISFIT_WAIT_NS = 500000,
};

/* A search that goes on, on the CPU that searches: the stack is too small for more than it already holds. */
struct fit {
	u32 util;	/* that is to fit */
	s32 cpu;	/* of the idle ones that are too weak, the one with most to spare; -1: none */
	u32 spare;	/* ... and that */
	u32 scanned;	/* CPUs that it went over */
	u8 whole_cores; /* only such are looked at */
} __attribute__((aligned(CACHE_LINE)));

struct fit fits[MAX_CPUS];

static struct fit *this_fit(void)
{
	return &fits[bpf_get_smp_processor_id() & (MAX_CPUS - 1)];
}

static s64 max_s64(s64 a, s64 b)
{
	return a > b ? a : b;
}

/* NULL storage, of a task that is not ours, is small. */
static bool is_big(struct task_struct *p)
{
	struct task_ctx *tctx = task_ctx(p);

	return tctx && !fits_all(tctx->task_util);
}

/* Claims an idle CPU of @llc for @p that is strong enough. Bounded by the LLC's idle CPUs. */
__noinline s32 scan_llc_fit(struct task_struct *p __arg_trusted, u32 llc, u32 slot)
{
	struct map_walk walk = map_walk_from(&idle_map, llc, slot, ALL_SLOTS);
	struct task_ctx *tctx = task_ctx(p);
	struct fit *fit = this_fit();
	s32 cpu, found = -1;
	u32 spare;

	if (!tctx)
		return -1;
	walk.whole_cores = fit->whole_cores;
	while (map_walk_more(&walk) && can_loop) {
		if (!map_walk_next(&idle_map, &walk))
			continue;
		cpu = slot_cpu(walk.slot);
		if (!may_use(p, cpu))
			continue;
		if (fits_cpu(fit->util, cpu)) {
			if (map_test_and_clear(&idle_map, walk.slot)) {
				found = cpu;
				break;
			}
			continue;
		}
		spare = spare_capacity(cpu, tctx);
		if (fit->cpu < 0 || spare > fit->spare) {
			fit->cpu = cpu;
			fit->spare = spare;
		}
	}
	fit->scanned += map_walked(&walk, found >= 0);
	return found;
}

/* The same near @cpu, in its LLC and the @nr nearest others; or one that is too weak. */
__noinline s32 scan_fit(struct task_struct *p __arg_trusted, s32 cpu, u32 nr)
{
	const volatile struct cpu_layout *l = cpu_layout(cpu);
	struct task_ctx *tctx = task_ctx(p);
	struct fit *fit = this_fit();
	s32 found, core;
	u32 i;

	if (!tctx)
		return -1;
	fit->util = tctx->task_util;
	fit->cpu = -1;
	fit->scanned = 0;
	for (core = tunables.smt_width > 1; core >= 0 && can_loop; core--) {
		fit->whole_cores = core;
		found = scan_llc_fit(p, l->llc, l->slot);
		for (i = bpf_arena_loop_zero; found < 0 && i < MAX_BEYOND && i < nr && can_loop; i++) {
			u32 other = other_llc(llc_layout(l->llc), i);

			if (map_any(&idle_map, other))
				found = scan_llc_fit(p, other, l->slot);
		}
		if (found >= 0)
			return found;
	}
	return fit->cpu >= 0 && claim_idle(fit->cpu) ? fit->cpu : -1;
}

/* Claims an idle CPU for @p, which is big, to wake on, counting where it was found; -1 if there is none. */
__noinline s32 find_fit(struct task_struct *p __arg_trusted, s32 prev, s32 target)
{
	struct task_ctx *tctx = task_ctx(p);
	u32 util;
	s32 cpu;

	if (!tctx)
		return -1;
	util = tctx->task_util;
	if (fits_cpu(util, target) && claim_fast(p, target, target)) {
		stat_inc(STAT_TARGET);
		return target;
	}
	if (prev != target && fits_cpu(util, prev) && claim_fast(p, prev, target)) {
		stat_inc(STAT_PREV);
		return prev;
	}
	cpu = tctx->recent;
	if (cpu >= 0 && fits_cpu(util, cpu) && claim_fast(p, cpu, target)) {
		stat_inc(STAT_RECENT);
		return cpu;
	}
	cpu = scan_fit(p, target, tunables.nr_llcs - 1);
	if (cpu < 0)
		stat_inc(STAT_FAILED);
	else
		stat_inc(share_llc(cpu, target) ? STAT_SCAN : STAT_BEYOND);
	stat_add(STAT_SCANNED, this_fit()->scanned);
	return cpu;
}

/* Of those that are strong, or of the weakest, the next in turn. */
static s32 next_of_kind(bool strong)
{
	u32 first = strong ? 0 : tunables.nr_stronger,
	    nr = strong ? tunables.nr_stronger : tunables.nr_cpus - tunables.nr_stronger;

	if (!nr)
		return -1;
	return capacity_order[(first + this_cpu_ctx()->line_turn++ % nr) & (MAX_CPUS - 1)];
}

/*
 * No CPU is idle for @p: where it waits in line. Not with tasks of the other kind, for a small one would take a strong CPU
 * from a big one, and a big one would run on a weak CPU: but at the previous CPU, or the less loaded of two of its own kind.
 */
__noinline s32 fallback_cpu(struct task_struct *p __arg_trusted, s32 prev, s32 target)
{
	bool big = is_big(p);
	s32 best = target, cpu, i;

	if (big != is_weak(target) || (!big && fits_all(READ_ONCE(cpu_ctx(target)->curr_util))))
		return target;
	if (is_weak(prev) != big && may_use(p, prev))
		return prev;
	bpf_for(i, 0, 2) {
		cpu = next_of_kind(big);
		if (cpu >= 0 && may_use(p, cpu) && (i == 0 || cpu_load(cpu_ctx(cpu)) <= cpu_load(cpu_ctx(best))))
			best = cpu;
	}
	return best;
}

/* ns for which @cpu is still to leave a waiting task, that may be too big for it, to others. */
static s64 misfit_wait(const struct task_ctx *tctx, s32 cpu, u64 now)
{
	return fits_cpu(tctx->task_util, cpu) ? 0 : tctx->enqueued_at + MISFIT_WAIT_NS - now;
}

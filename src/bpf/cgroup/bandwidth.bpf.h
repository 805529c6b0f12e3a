/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * cpu.max: how much CPU time a group may use in each period. throttle.bpf.h has what becomes of its
 * tasks when that is used up.
 *
 *	pool         group.budget: a quota a period, saved up to quota + burst, filled by the
 *	   |         first CPU that asks after the period's end
 *	   |         a slice of it, when the cpu_budget is empty           take_slice()
 *	   v
 *	cpu_budget   of a CPU, one for each group that it runs: runtime
 *	             is charged here                                       charge_groups()
 *
 * Invariant: what all CPUs took, less what they have left, is what the group used. So over time a
 * group uses its quota and no more, although a task runs on until the next tick: the cpu_budget is
 * negative then, and the next slice pays for that.
 *
 * The pool, which all CPUs share, is written once a slice, not at each switch. A cpu_budget belongs
 * to its CPU, under the rq lock.
 */
#pragma once

enum {
	CPU_BUDGETS = 8, /* of a CPU; by group id, modulo */
	/* from the pool to a cpu_budget at a time, as sched_cfs_bandwidth_slice_us */
	BW_SLICE_MAX = 5000000,
	BW_SLICE_MIN = 500000,
	BW_PERIODS = 1024, /* that are made up for when a pool was not looked at for long */
};

struct cpu_budget {
	u32 group; /* 0: none's */
	s64 left;  /* ns; negative: owed */
};

struct cpu_budgets {
	struct cpu_budget slots[CPU_BUDGETS];
} __attribute__((aligned(CACHE_LINE)));

struct cpu_budgets cpu_budgets[MAX_CPUS];

/* By the last look at the task's weight. */
static bool is_limited(const struct task_ctx *tctx)
{
	return tctx->group && tctx->share & GROUP_LIMITED;
}

/* Never throttled: what the kernel waits for, and what never goes to user space. */
static bool is_exempt(const struct task_struct *p)
{
	return is_critical(p) || p->flags & (PF_EXITING | PF_KTHREAD);
}

/*
 * @periods have ended since the last refill; the group may have been throttled in them.
 * Counted as the kernel's cpu.stat does, except the time: that of the group, not the sum over the
 * CPUs that its tasks wait on.
 */
static void note_refilled(struct group *g, u64 periods, u64 now)
{
	u64 since = READ_ONCE(g->throttled_at);

	g->nr_periods += since ? periods : 1;
	if (!since)
		return;
	g->nr_throttled += periods;
	if ((s64)READ_ONCE(g->budget) > 0 &&
	    __sync_val_compare_and_swap(&g->throttled_at, since, 0) == since)
		g->throttled_ns += now - since;
}

/*
 * Fill the pool for the periods that have passed. One of several callers does. The new period
 * begins after that: the others see the old one, and look again soon if they find nothing.
 */
static void bw_refill(struct group *g, u64 now)
{
	u64 start = READ_ONCE(g->period_start), periods, add;
	s64 excess;

	if (!g->period || (s64)(now - start) < (s64)g->period ||
	    __sync_val_compare_and_swap(&g->filling, 0, 1))
		return;
	start = READ_ONCE(g->period_start);
	periods = (s64)(now - start) < (s64)g->period ? 0 : (now - start) / g->period;
	if (periods) {
		add = min(periods, (u64)BW_PERIODS);
		__sync_fetch_and_add(&g->budget, add * g->quota);
		excess = READ_ONCE(g->budget) - (g->quota + g->burst);
		if (excess > 0)
			__sync_fetch_and_add(&g->budget, -excess);
		__sync_lock_test_and_set(&g->period_start, start + periods * g->period);
		note_refilled(g, add, now);
	}
	__sync_lock_test_and_set(&g->filling, 0);
}

static struct cpu_budget *cpu_budget(s32 cpu, u32 id)
{
	return &cpu_budgets[cpu & (MAX_CPUS - 1)].slots[id % CPU_BUDGETS];
}

/*
 * Puts a slice of the pool into the cpu_budget, or what is left of it. False if there is nothing.
 * CPUs that look at the same time may take more than is left: the pool owes that in the next
 * period.
 */
static bool refill_cpu_budget(struct cpu_budget *cpu_budget, struct group *g, u64 now)
{
	u64 slice = g->quota / (2 * machine.nr_cpus_possible);
	s64 want = min(max(slice, (u64)BW_SLICE_MIN), (u64)BW_SLICE_MAX) - cpu_budget->left, left;

	bw_refill(g, now);
	left = READ_ONCE(g->budget);
	if (left <= 0)
		return false;
	want = min(want, left);
	__sync_fetch_and_add(&g->budget, -want);
	cpu_budget->left += want;
	return cpu_budget->left > 0;
}

/*
 * For how long a task of the group may run on @cpu, whose rq lock is held; 0: not now, for a
 * group's quota is used up. Bounded by the group's level.
 */
__noinline u64 take_slice(s32 cpu, u32 id, u64 now)
{
	u64 slice = tunables.slice_ns;

	while (id && can_loop) {
		struct group *g = group(id);
		struct cpu_budget *own = cpu_budget(cpu, id);

		if (g->quota) {
			if (own->group != id) {
				__sync_fetch_and_add(&group(own->group)->budget, own->left);
				own->group = id;
				own->left = 0;
			}
			if (own->left <= 0 && !refill_cpu_budget(own, g, now)) {
				__sync_val_compare_and_swap(&g->throttled_at, 0, now);
				return 0;
			}
			slice = min(slice, (u64)own->left);
		}
		id = g->parent;
	}
	return slice;
}

/* A task of the group ran on @cpu, whose rq lock is held. Bounded by the group's level. */
__noinline s32 charge_groups(s32 cpu, u32 id, u64 ran)
{
	while (id && can_loop) {
		struct group *g = group(id);
		struct cpu_budget *own = cpu_budget(cpu, id);

		if (g->quota) {
			if (own->group == id)
				own->left -= ran;
			else
				__sync_fetch_and_add(&g->budget, -ran);
		}
		id = g->parent;
	}
	return 0;
}

/*
 * Return when a task of the group, for which there is no slice, is to be checked again: when the
 * last of the periods ends that have nothing left. That may be too early, because a pool may have
 * to make up for several. The period is read before the pool: pairs with bw_refill(). Bounded by
 * the group's level.
 */
__noinline u64 next_refill(u32 id, u64 now)
{
	u64 at = now;

	while (id && can_loop) {
		struct group *g = group(id);
		u64 end = READ_ONCE(g->period_start) + g->period;

		/* The value makes it a full barrier. */
		if (g->quota && (s64)__sync_fetch_and_add(&g->budget, 0) <= 0 &&
		    time_before(at, end))
			at = end;
		id = g->parent;
	}
	return at;
}

/*
 * cpu.max is set, in ns; a quota of 0: there is none. Tasks that wait are checked when the old
 * period ends.
 */
static void set_limit(u32 id, u64 period, u64 quota, u64 burst)
{
	struct group *g = group(id);

	g->period = period;
	g->burst = burst;
	g->quota = quota;
	g->period_start = unlocked_now();
	g->budget = quota;
	g->throttled_at = 0;
	if (machine.nohz_full)
		kick_tickless();
}

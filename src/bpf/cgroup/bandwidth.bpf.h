/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * cpu.max: how much CPU time a group may use in each period. throttle.bpf.h has the tasks of a
 * group that has used it up.
 *
 *	pool         group.budget: one quota a period, saved up to quota + burst. The first CPU
 *	   |         that needs a slice after the end of a period fills it  bw_refill()
 *	   |
 *	   |         a slice of the pool, when the cpu_budget is empty      take_slice()
 *	   v
 *	cpu_budget   of a CPU, for each group that it runs: run time is
 *	             charged here                                           charge_groups()
 *
 * Invariant: a group has used what was taken from its pool, minus the sum of its cpu_budgets. A
 * task runs on until the next tick, so the pool may become negative; the next period pays for that.
 * So over time a group uses its quota and no more.
 *
 * All CPUs share the pool, so it is written once a slice, not at each switch. A cpu_budget belongs
 * to its CPU, under the rq lock.
 */
#pragma once

enum {
	CPU_BUDGETS = 8, /* of a CPU; index: group id modulo CPU_BUDGETS */
	/* ns from the pool to a cpu_budget at a time, as sched_cfs_bandwidth_slice_us */
	BW_SLICE_MAX = 5000000,
	BW_SLICE_MIN = 500000,
	BW_PERIODS = 1024, /* most periods for which one refill fills the pool */
};

/* The third queue of a CPU (throttle.bpf.h); order/queue.bpf.h has the other two. */
static u64 throttled_queue(s32 cpu)
{
	return THROTTLED_QUEUES + cpu;
}

struct cpu_budget {
	u32 group; /* 0: unused */
	u64 left;  /* ns */
};

struct cpu_budgets {
	struct cpu_budget slots[CPU_BUDGETS];
} __attribute__((aligned(CACHE_LINE)));

struct cpu_budgets cpu_budgets[MAX_CPUS];

/* Return true if a group of the task has a cpu.max, as of the last update of its share. */
static bool is_limited(const struct task_ctx *tctx)
{
	return tctx->group && tctx->share & GROUP_LIMITED;
}

#define SIGKILL_BIT (1UL << 8)

/*
 * Return true for tasks that are never throttled: critical, killed and exiting ones, and kernel
 * threads. A killed task would run the task work of boundary.bpf.h again and again before it exits.
 */
static bool is_exempt(const struct task_struct *p)
{
	return is_critical(p) || p->flags & (PF_EXITING | PF_KTHREAD) ||
	       p->pending.signal.sig[0] & SIGKILL_BIT;
}

/*
 * Count @periods that have ended since the last refill, as the kernel's cpu.stat does. The
 * throttled time differs: it is the time of the group, not the sum over the CPUs on which its tasks
 * wait.
 */
static void count_periods(struct group *g, u64 periods, u64 now)
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
 * Fill the pool for the periods that have ended. One of several callers fills it, and then starts
 * the new period. The others still see the old period, and check again soon if the pool is empty.
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
		count_periods(g, add, now);
	}
	__sync_lock_test_and_set(&g->filling, 0);
}

static struct cpu_budget *cpu_budget(s32 cpu, u32 id)
{
	return &cpu_budgets[cpu & (MAX_CPUS - 1)].slots[id % CPU_BUDGETS];
}

/*
 * Move a slice, or the rest of the pool, to the cpu_budget. The less is left, the smaller is the
 * slice: what stays on CPUs where the group's tasks sleep is then little of what others need.
 * Return false if the pool is empty. CPUs that do so at the same time may overdraw the pool.
 */
static bool refill_cpu_budget(struct cpu_budget *cpu_budget, struct group *g, u64 now)
{
	s64 left, slice;

	bw_refill(g, now);
	left = READ_ONCE(g->budget);
	if (left <= 0)
		return false;
	slice = (u64)left / (2 * machine.nr_cpus_possible);
	slice = min(max(slice, (s64)BW_SLICE_MIN), (s64)BW_SLICE_MAX);
	slice = min(slice, left);
	__sync_fetch_and_add(&g->budget, -slice);
	cpu_budget->left += slice;
	return true;
}

/*
 * Return the ns for which a task of the group may run on @cpu, whose rq lock is held: 0 if a quota
 * is used up, SCX_SLICE_INF if there is none. Bounded by the group's level.
 */
__noinline u64 take_slice(s32 cpu, u32 id, u64 now)
{
	u64 slice = SCX_SLICE_INF;

	while (id && can_loop) {
		struct group *g = group(id);
		struct cpu_budget *own = cpu_budget(cpu, id);

		if (g->quota) {
			if (own->group != id) {
				__sync_fetch_and_add(&group(own->group)->budget, own->left);
				own->group = id;
				own->left = 0;
			}
			if (!own->left && !refill_cpu_budget(own, g, now)) {
				__sync_val_compare_and_swap(&g->throttled_at, 0, now);
				return 0;
			}
			slice = min(slice, own->left);
		}
		id = g->parent;
	}
	return slice;
}

/*
 * Charge @ran ns to the group, on @cpu, whose rq lock is held: to the cpu_budget, and what that
 * lacks to the pool. (A debt of the cpu_budget would outlast the period, and the pool's rest would
 * not.) Bounded by the group's level. Return 0.
 */
__noinline s32 charge_groups(s32 cpu, u32 id, u64 ran)
{
	while (id && can_loop) {
		struct group *g = group(id);
		struct cpu_budget *own = cpu_budget(cpu, id);
		u64 covered = own->group == id ? min(ran, own->left) : 0;

		if (g->quota) {
			own->left -= covered;
			if (ran > covered)
				__sync_fetch_and_add(&g->budget, covered - ran);
		}
		id = g->parent;
	}
	return 0;
}

/*
 * Return when to check a throttled task of the group again: the latest end of the present periods
 * of the group and its ancestors whose pool is empty; @now if no pool is empty. That may be too
 * early, because a pool may have to make up for several periods. Read the period before the pool:
 * pairs with bw_refill(). Bounded by the group's level.
 */
__noinline u64 next_refill(u32 id, u64 now)
{
	u64 at = now;

	while (id && can_loop) {
		struct group *g = group(id);
		u64 end = READ_ONCE(g->period_start) + g->period;

		/* Full barrier, because the value is used. */
		if (g->quota && (s64)__sync_fetch_and_add(&g->budget, 0) <= 0 &&
		    time_before(at, end))
			at = end;
		id = g->parent;
	}
	return at;
}

/*
 * Make all CPUs check their throttled tasks, whenever these are due: the limit of a throttled group
 * has changed. A task that is being throttled by the old limit waits until the new period ends. No
 * lock is held. Bounded by the number of CPUs. Return 0.
 */
__noinline s32 recheck_throttled(void)
{
	s32 cpu;

	bpf_for(cpu, 0, machine.nr_cpu_ids) {
		if (!is_usable(cpu))
			continue;
		WRITE_ONCE(cpu_ctx(cpu)->limit_changed, true);
		WRITE_ONCE(cpu_ctx(cpu)->throttle_timer_fired, true);
		if (scx_bpf_dsq_nr_queued(throttled_queue(cpu)) > 0)
			kick_cpu(cpu, SCX_KICK_PREEMPT);
	}
	return 0;
}

/* Set cpu.max, in ns; a @quota of 0 means no limit. In cgroup callbacks and poll_groups(). */
static void set_limit(u32 id, u64 period, u64 quota, u64 burst)
{
	struct group *g = group(id);
	bool was_throttled;

	g->period = period;
	g->burst = burst;
	g->quota = quota;
	g->period_start = unlocked_now();
	g->budget = quota;
	was_throttled = READ_ONCE(g->throttled_at);
	g->throttled_at = 0;
	if (was_throttled)
		recheck_throttled();
	if (machine.nohz_full)
		kick_tickless();
}

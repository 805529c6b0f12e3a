/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * cpu.max: how much CPU time a group may use in each period. What happens when that is used up is in cgroup/throttle.bpf.h.
 *
 *	pool (group.budget)    quota a period, saved up to quota + burst
 *	   |  a slice of it, when the cpu_budget is empty            take_slice(): running, and each time that the task goes on
 *	cpu_budget of a CPU       one for each group that it runs    runtime is charged here: order/deadline.bpf.h's charge()
 *
 * So the pool, which all CPUs share, is written once a slice, not at each switch. A task runs no longer than what is in
 * the cpu_budgets of its group and of all above it; by the next tick, that is, and what it overruns is owed by the cpu_budget
 * and paid from the pool with the next slice: over time a group uses its quota and no more.
 *
 * A cpu_budget is its CPU's own, under the rq lock.
 */
#pragma once

enum {
	CPU_BUDGETS = 8,	/* of a CPU; by group id, modulo */
	BW_SLICE_MAX = 5000000, /* from the pool to a cpu_budget at a time, as sched_cfs_bandwidth_slice_us */
	BW_SLICE_MIN = 500000,
	BW_PERIODS = 1024,    /* that are made up for when a pool was not looked at for long */
	BW_TIMER_MIN = 50000, /* ns */
};

struct cpu_budget {
	u32 group; /* 0: none's */
	s64 left;  /* ns; negative: owed */
};

struct cpu_budgets {
	struct cpu_budget slots[CPU_BUDGETS];
} __attribute__((aligned(CACHE_LINE)));

struct cpu_budgets cpu_budgets[MAX_CPUS];

struct bw_timer {
	struct bpf_timer timer;
};

/* By group id. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, MAX_GROUPS);
	__type(key, u32);
	__type(value, struct bw_timer);
} bw_timers SEC(".maps");

/* By the last look at the task's weight: place() comes before each use. */
static bool is_limited(const struct task_ctx *tctx)
{
	return tctx->group && (u32)tctx->cached & GROUP_LIMITED;
}

/* Never throttled: what the kernel waits for. Tasks that hold a kernel lock cannot be told apart. */
static bool is_exempt(const struct task_struct *p)
{
	return is_critical(p) || p->flags & PF_EXITING;
}

/* Groups' timers could not be started; the next tick tries again. */
u32 bw_failed;

/* From 7.0 on the kernel allocates memory for it where interrupts are off. */
static void bw_start(struct group *g, struct bw_timer *t, u64 delay)
{
	if (!bpf_timer_start(&t->timer, delay, 0))
		return;
	g->armed = 0;
	WRITE_ONCE(bw_failed, 1);
}

/* The group's timer is to come when its period ends, sooner if tasks might wait for too long until then. */
static void bw_arm(u32 id, struct group *g)
{
	struct bw_timer *t;
	s64 delay;

	if (__sync_lock_test_and_set(&g->armed, 1))
		return;
	t = bpf_map_lookup_elem(&bw_timers, &id);
	if (!t)
		return;
	delay = g->period_start + g->period - unlocked_now();
	if (delay > (s64)tunables.starve_ns / 2)
		delay = tunables.starve_ns / 2;
	if (delay < BW_TIMER_MIN)
		delay = BW_TIMER_MIN;
	bw_start(g, t, delay);
}

/* In tick: if a timer could not be started, all that are not armed are, for one may be missed. Bounded by MAX_GROUPS. */
__noinline s32 bw_arm_failed(void)
{
	u32 id;

	if (!READ_ONCE(bw_failed) || !__sync_lock_test_and_set(&bw_failed, 0))
		return 0;
	for (id = 1 + bpf_arena_loop_zero; id <= max_group && can_loop; id++)
		if (group(id)->weight && !READ_ONCE(group(id)->armed))
			bw_arm(id, group(id));
	return 0;
}

/* Fills the pool for the periods that have passed. One of several callers does. */
static void bw_refill(struct group *g, u64 now)
{
	u64 start = READ_ONCE(g->period_start), periods;
	s64 excess;

	if (!g->period || (s64)(now - start) < (s64)g->period)
		return;
	periods = (now - start) / g->period;
	if (__sync_val_compare_and_swap(&g->period_start, start, start + periods * g->period) != start)
		return;
	if (periods > BW_PERIODS)
		periods = BW_PERIODS;
	__sync_fetch_and_add(&g->budget, periods * g->quota);
	excess = READ_ONCE(g->budget) - (g->quota + g->burst);
	if (excess > 0)
		__sync_fetch_and_add(&g->budget, -excess);
}

static void unthrottle(struct group *g, u64 now)
{
	if (READ_ONCE(g->throttled) && __sync_lock_test_and_set(&g->throttled, 0))
		g->throttled_ns += now - g->throttled_at;
}

static void throttle(u32 id, struct group *g, u64 now)
{
	if (__sync_lock_test_and_set(&g->throttled, 1))
		return;
	g->throttled_at = now;
	g->nr_throttled++;
	bw_arm(id, g);
	/* The timer may have filled the pool just before. */
	if ((s64)READ_ONCE(g->budget) > 0)
		unthrottle(g, now);
}

static struct cpu_budget *cpu_budget(s32 cpu, u32 id)
{
	return &cpu_budgets[cpu & (MAX_CPUS - 1)].slots[id % CPU_BUDGETS];
}

/* Puts a slice of the pool into the cpu_budget, or what is left of it. False if there is nothing. */
static bool refill_cpu_budget(struct cpu_budget *cpu_budget, struct group *g, u64 now)
{
	u64 slice = g->quota / (2 * tunables.nr_cpus_possible);
	s64 want, left;

	if (slice > BW_SLICE_MAX)
		slice = BW_SLICE_MAX;
	if (slice < BW_SLICE_MIN)
		slice = BW_SLICE_MIN;
	want = slice - cpu_budget->left;
	bw_refill(g, now);
	if ((s64)READ_ONCE(g->budget) <= 0)
		return false;
	left = __sync_fetch_and_add(&g->budget, -want);
	if (left < want) {
		s64 got = left > 0 ? left : 0;

		__sync_fetch_and_add(&g->budget, want - got);
		want = got;
	}
	cpu_budget->left += want;
	return cpu_budget->left > 0;
}

/*
 * For how long a task of the group may run on @cpu, whose rq lock is held; 0: not now, a group is throttled. Bounded by
 * the group's level.
 */
__noinline u64 take_slice(s32 cpu, u32 id)
{
	u64 slice = tunables.slice_ns, now = scx_bpf_now();

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
				throttle(id, g, now);
				return 0;
			}
			if (slice > own->left)
				slice = own->left;
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

/* The first throttled group from @id upwards; 0: none. Bounded by its level. */
__noinline u32 throttled_group(u32 id)
{
	while (id && can_loop) {
		struct group *g = group(id);

		if (READ_ONCE(g->throttled))
			return id;
		id = g->parent;
	}
	return 0;
}

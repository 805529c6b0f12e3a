/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Hierarchical weight: the weight of a task is its nice weight, times the share of its group at
 * each level of the cgroup tree. A share depends on the weights that are runnable now, on any CPU
 * (Tejun Heo's runnable_load_avg):
 *
 *	root -+- a (cpu.weight 100) -+- task, nice 0     1024 * 1024 / (1024 + 3072) = 256
 *	      |                      +- a/b (300) - task 1024 * 3072 / (1024 + 3072) = 768
 *	      +- c (300), nothing runnable               counts for nothing
 *	      +- task, nice 0                            1024: tasks of the root have plain weights
 *
 * Weights are the kernel's: 1024 for nice 0 and for cpu.weight 100. (p->scx.weight is rounded to
 * hundredths of that, and is the same for nice 19 and SCHED_IDLE.) From Linux 7.3 on the weight of
 * a group counts once for each CPU that the group can keep busy (magpie_cgroup_mode):
 *
 *	root -+- a (100) - 1 task                        1024
 *	      +- b (100) - 32 tasks, cpuset of 8 CPUs    8192, so each of its tasks has 256
 *
 * Each group has a sum: the weights of its runnable tasks, and of its child groups that have
 * runnable tasks. It also has the number of its runnable tasks, with those of the groups below, and
 * the average of it by PELT. All CPUs share these words, so most wakeups do not write them, and
 * most switches do not read them:
 *
 *	change   of a CPU: weights and tasks that woke minus those that
 *	   |     slept                                                   group_change()
 *	   |     flushed after FLUSH_NS, by its tick, or by ticks of
 *	   v     other CPUs if it has none                               flush_cpu()
 *	sum      of a group, and of its parent if the group gets its
 *	   |     first runnable task or loses the last                   group_add()
 *	   v     read when a task wakes or is charged, after SHARE_NS
 *	share    of a task, by which its vruntime advances               update_share()
 */
#pragma once

enum {
	CHANGE_SLOTS = 8, /* groups for which a CPU has changes; index: id modulo CHANGE_SLOTS */
	/* how often a CPU flushes its changes; the kernel updates its shares as often */
	FLUSH_NS = 1000000,
	SETTLE_CPUS = 8,    /* other CPUs that a tick checks, and flushes if they have no tick */
	SHARE_NS = 1000000, /* how often the share of a task is checked */
	WEIGHT_SHIFT = 9,   /* of a task's weight, because shares get small */
	SHARE_SHIFT = 36,   /* while they are computed: a group's weight may have 27 bits */
	WEIGHT_DFL = 1024,  /* nice 0; a group's with cpu.weight 100 */
	WEIGHT_IDLE = 3,    /* SCHED_IDLE; a group's with cpu.idle */
	NR_NICE = 40,
	MAX_WEIGHT = 102400,	 /* a group's with cpu.weight 10000 */
	MAX_LAG_NS = 1000000000, /* lag that is kept when a weight changes */
	/* In a word of struct changes. */
	CHANGE_WEIGHT_BITS = 28, /* signed; 1500 tasks of nice -20 */
	CHANGE_TASKS_BITS = 20,	 /* signed */
	CHANGE_GROUP_SHIFT = CHANGE_WEIGHT_BITS + CHANGE_TASKS_BITS,
	/* In task_ctx.share, together with the weight. */
	GROUP_IDLE = 1U << 31,	  /* cpu.idle, at some level */
	GROUP_LIMITED = 1U << 30, /* cpu.max, at some level */
	GROUP_FLAGS = GROUP_IDLE | GROUP_LIMITED,
};

/* Of a CPU. Written by this CPU, by CPUs that wake a task of it, and by CPUs that flush it. */
struct changes {
	u64 slots[CHANGE_SLOTS]; /* change_of(); atomic */
	u64 flushed_at;		 /* scx_bpf_now() of a recent flush; not exact */
} __attribute__((aligned(CACHE_LINE)));

struct changes changes[MAX_CPUS];

/* sched_prio_to_weight, from nice -20 to 19: with two tasks, a step is a tenth of the CPU. */
static const u32 nice_weights[NR_NICE] = {
	88761, 71755, 56483, 46273, 36291, 29154, 23254, 18705, 14949, 11916,
	9548,  7620,  6100,  4904,  3906,  3121,  2501,	 1991,	1586,  1277,
	1024,  820,   655,   526,   423,   335,	  272,	 215,	172,   137,
	110,   87,    70,    56,    45,	   36,	  29,	 23,	18,    15,
};

/* Return the weight of a task by its nice value or policy. */
static u32 plain_weight(const struct task_struct *p)
{
	u32 nth = p->static_prio - MAX_RT_PRIO;

	if (p->policy == SCHED_IDLE)
		return WEIGHT_IDLE;
	return nth < NR_NICE ? nice_weights[nth] : WEIGHT_DFL;
}

/* Return policy and nice value, on which plain_weight() depends, in one word. */
static u32 prio(const struct task_struct *p)
{
	return p->policy << 16 | p->static_prio;
}

/* Return a change as a word, 0 if it is none. */
static u64 change_of(u32 id, s64 weight, s64 tasks)
{
	u64 both = (weight & ((1ULL << CHANGE_WEIGHT_BITS) - 1)) |
		   (tasks & ((1ULL << CHANGE_TASKS_BITS) - 1)) << CHANGE_WEIGHT_BITS;

	return both ? (u64)id << CHANGE_GROUP_SHIFT | both : 0;
}

static s64 weight_of_change(u64 change)
{
	return (s64)(change << (64 - CHANGE_WEIGHT_BITS)) >> (64 - CHANGE_WEIGHT_BITS);
}

static s64 tasks_of_change(u64 change)
{
	return (s64)(change << (64 - CHANGE_GROUP_SHIFT)) >> (64 - CHANGE_TASKS_BITS);
}

/* Compute by how much the group weighs in its parent's sum while it has runnable tasks. */
static u64 weight_by_mode(const struct group *g)
{
	u64 weight = g->idle ? WEIGHT_IDLE : g->weight, times;
	u8 mode = tunables.cgroup_mode;

	if (mode == CGROUP_SMP)
		return weight;
	/* Rounded down and at least 1, as in the kernel. */
	times = (u32)READ_ONCE(g->tasks_avg) / CAPACITY_SCALE;
	if (mode != CGROUP_TASKS)
		times = mode == CGROUP_MAX ? g->cpus : min(times, (u64)g->cpus);
	return weight * max(min(times, (u64)MAX_CPUS), 1ULL);
}

/*
 * Account the group's runnable tasks until now in their average, as the kernel's runnable_avg, and
 * update weighs. Return true if a PELT period or more have passed. Of several CPUs one does it.
 */
static __always_inline bool average_tasks(struct group *g)
{
	u64 was = READ_ONCE(g->tasks_avg), period = scx_bpf_now() / PELT_PERIOD_NS, all;
	s32 passed = period - (was >> 32);
	u32 avg = was;

	if (passed <= 0)
		return false;
	all = max((s64)READ_ONCE(g->tasks), 0LL) * CAPACITY_SCALE;
	avg = avg < all ? all - decay_load(all - avg, passed) : all + decay_load(avg - all, passed);
	if (!__sync_bool_compare_and_swap(&g->tasks_avg, was, period << 32 | avg))
		return false;
	WRITE_ONCE(g->weighs, weight_by_mode(g));
	return true;
}

/* Return the weight of the group in its parent's sum while it has runnable tasks. */
static u64 group_weight(const struct group *g)
{
	return READ_ONCE(g->weighs);
}

/* Return the weight that the parent's sum should have for the group now. */
static u64 due_count(const struct group *g)
{
	return (s64)READ_ONCE(g->sum) > 0 ? group_weight(g) : 0;
}

/*
 * Set g->counted to the weight that the parent's sum should have for the group. Return the
 * difference, which the caller adds to the parent's sum. Re-read the sum after the exchange: of two
 * CPUs the later one writes the final value.
 */
static __always_inline s64 group_counts(struct group *g)
{
	s64 change = 0;
	u64 now;

	do {
		now = due_count(g);
		change += now - __sync_lock_test_and_set(&g->counted, now);
	} while (now != due_count(g) && can_loop);
	return change;
}

/*
 * Add @change to the sum of the group and @tasks to its tasks, and to those of its ancestors; to an
 * ancestor's sum if the weight with which the group below counts has changed. Bounded by its level.
 * Return 0.
 */
__noinline s32 group_add(u32 id, s64 change, s64 tasks)
{
	while (id && (change || tasks) && can_loop) {
		struct group *g = group(id);

		if (tasks && tunables.cgroup_mode != CGROUP_SMP)
			average_tasks(g);
		if (tasks)
			__sync_fetch_and_add(&g->tasks, tasks);
		if (change)
			__sync_fetch_and_add(&g->sum, change);
		change = g->parent ? group_counts(g) : 0;
		id = g->parent;
	}
	return 0;
}

/*
 * Update the parent's sum after a change of the group's weight. Return 0. Not inlined, because the
 * verifier of 6.16 crashes in widen_imprecise_scalars().
 */
__noinline s32 group_reweighted(u32 id)
{
	struct group *g = group(id);

	return g->parent ? group_add(g->parent, group_counts(g), 0) : 0;
}

/* Update the average of the group's tasks, and the parent's sum. Return 0. */
__noinline s32 group_averaged(u32 id)
{
	struct group *g = group(id);

	return average_tasks(g) && g->parent ? group_add(g->parent, group_counts(g), 0) : 0;
}

/* Flush the changes of @cpu to the sums. On any CPU. Bounded by CHANGE_SLOTS. Return 0. */
__noinline s32 flush_cpu(s32 cpu)
{
	struct changes *c = &changes[cpu & (MAX_CPUS - 1)];
	u32 i;

	WRITE_ONCE(c->flushed_at, scx_bpf_now());
	bpf_for(i, 0, CHANGE_SLOTS) {
		u64 *slot = &c->slots[i & (CHANGE_SLOTS - 1)], change = READ_ONCE(*slot);

		if (!change)
			continue;
		change = __sync_lock_test_and_set(slot, 0);
		if (change)
			group_add(change >> CHANGE_GROUP_SHIFT, weight_of_change(change),
				  tasks_of_change(change));
	}
	return 0;
}

/*
 * Add @by and @tasks to the changes of @cpu for the group, @at about now. Before, flush those of
 * more than FLUSH_NS ago: at once a task that forks another and sleeps, or wakes its parent and
 * exits, would be counted twice or not at all until the next flush. On any CPU. Bounded by
 * CHANGE_SLOTS. Return 0.
 */
__noinline s32 group_change(s32 cpu, u32 id, s32 by, s32 tasks, u64 at)
{
	struct changes *c = &changes[cpu & (MAX_CPUS - 1)];
	u64 *slot = &c->slots[id & (CHANGE_SLOTS - 1)], was, now;
	s64 weight;

	if ((s64)(at - READ_ONCE(c->flushed_at)) >= FLUSH_NS)
		flush_cpu(cpu);
	was = READ_ONCE(*slot);
	weight = weight_of_change(was) + by;
	now = change_of(id, weight, tasks_of_change(was) + tasks);
	/* The slot has changes of another group, or is too small; or another CPU was faster. */
	if ((was && was >> CHANGE_GROUP_SHIFT != id) || weight_of_change(now) != weight ||
	    __sync_val_compare_and_swap(slot, was, now) != was)
		group_add(id, by, tasks);
	return 0;
}

/*
 * In tick of @cpu: flush its changes, and the changes of the next CPUs that run no task of
 * sched_ext, because they may have no tick. Bounded by SETTLE_CPUS.
 */
static void flush(s32 cpu, struct cpu_ctx *cctx)
{
	u32 i;

	if (!nr_groups)
		return;
	flush_cpu(cpu);
	bpf_for(i, 0, SETTLE_CPUS) {
		s32 other = cctx->flush_turn++ % machine.nr_cpu_ids;

		if (!READ_ONCE(cpu_ctx(other)->curr_weight) || !is_usable(other))
			flush_cpu(other);
	}
}

/*
 * Return the weight of a task in the group, << WEIGHT_SHIFT, and GROUP_* flags. The weight of a
 * task or child group may exceed the sum of its group, because changes are flushed late: its share
 * is 1 then. Bounded by the group's level.
 */
__noinline u32 group_share(u32 id, u32 weight)
{
	u64 share = 1ULL << SHARE_SHIFT;
	s64 part = weight, all;
	u32 flags = 0;

	while (id && can_loop) {
		const struct group *g = group(id);

		all = READ_ONCE(g->sum);
		share = share * part / max(all, part);
		if (tunables.cgroup_mode != CGROUP_SMP)
			group_averaged(id);
		part = group_weight(g);
		if (g->idle)
			flags |= GROUP_IDLE;
		if (g->quota)
			flags |= GROUP_LIMITED;
		id = g->parent;
	}
	share = min(share * part >> (SHARE_SHIFT - WEIGHT_SHIFT), (u64)MAX_WEIGHT << WEIGHT_SHIFT);
	return flags | (share ?: 1);
}

/*
 * Scale the lag of a task, which is CPU time, to its new weight. Bound it by MAX_LAG_NS, because
 * the virtual time of a sleeper's CPU may be far away by now.
 */
static void reweight(struct task_ctx *tctx, u32 from, u32 to)
{
	u64 vtime, lag;
	bool positive;

	if (!from || from == to || tctx->vtime_cpu < 0)
		return;
	vtime = cpu_ctx(tctx->vtime_cpu)->vtime;
	positive = (s64)(tctx->vruntime - vtime) < 0;
	lag = positive ? vtime - tctx->vruntime : tctx->vruntime - vtime;
	lag = min(lag, (u64)MAX_LAG_NS * (WEIGHT_DFL << WEIGHT_SHIFT) / from) * from / to;
	tctx->vruntime = positive ? vtime - lag : vtime + lag;
}

/*
 * Update the share of a runnable task if its weight has changed, or SHARE_NS have passed by @now. A
 * task of the root has its full weight. No other CPU changes the task: the rq lock of its CPU is
 * held, or select_cpu runs.
 */
static void update_share(struct task_ctx *tctx, u64 now)
{
	u32 weight = tctx->counted, share;

	if (tctx->share_of == weight && (s64)(now - tctx->share_at) < SHARE_NS)
		return;
	share = group_share(tctx->group, weight);
	reweight(tctx, tctx->share & ~GROUP_FLAGS, share & ~GROUP_FLAGS);
	tctx->share_of = weight;
	tctx->share_at = now;
	WRITE_ONCE(tctx->share, share);
}

/* Stop counting a task that sleeps, is throttled or leaves the group. @cpu's rq lock is held. */
static void group_leave(struct task_ctx *tctx, s32 cpu, u64 now)
{
	s32 counted = tctx->counted;

	if (!tctx->group)
		return;
	tctx->counted = 0;
	if (counted)
		group_change(cpu, tctx->group, -counted, -1, now);
}

/*
 * Carry out group_enter() for a task in a group, or with a new weight or autogroup. Not static, so
 * that the verifier checks it once. Return 0.
 */
__noinline s32 count_in_group(struct task_struct *p __arg_trusted,
			      struct task_ctx *tctx __arg_nonnull)
{
	s32 cpu = tctx->vtime_cpu < 0 ? bpf_get_smp_processor_id() : tctx->vtime_cpu, by, tasks;
	u32 weight = plain_weight(p);
	u64 now = scx_bpf_now();

	tctx->prio = prio(p);
	if (is_elsewhere(p, tctx)) {
		/* If @p was runnable already when its autogroup got an id, it is counted. */
		group_leave(tctx, cpu, now);
		find_autogroup(p, tctx);
	}
	by = weight - tctx->counted;
	tasks = !tctx->counted;
	tctx->counted = weight;
	if (by && tctx->group)
		group_change(cpu, tctx->group, by, tasks, now);
	update_share(tctx, now);
	return 0;
}

/* Count @p, which becomes runnable, or is runnable and has a new weight or autogroup. */
static __always_inline void group_enter(const struct task_struct *p, struct task_ctx *tctx)
{
	if (tctx->group || tctx->prio != prio(p) || is_elsewhere(p, tctx))
		count_in_group((struct task_struct *)p, tctx);
}

/* Return the weight of the task as of the last update_share(): 1 .. MAX_WEIGHT << WEIGHT_SHIFT. */
static u32 task_weight(const struct task_ctx *tctx)
{
	return READ_ONCE(tctx->share) & ~GROUP_FLAGS;
}

/* Return true if the task runs only when no other task wants to: by its policy, or by cpu.idle. */
static bool is_idle_policy(const struct task_struct *p, const struct task_ctx *tctx)
{
	return p->policy == SCHED_IDLE || tctx->share & GROUP_IDLE;
}

static bool never_preempts(const struct task_struct *p, const struct task_ctx *tctx)
{
	return no_preempt(p) || is_idle_policy(p, tctx);
}

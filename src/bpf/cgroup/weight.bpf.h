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
 * hundredths of that, and is the same for nice 19 and SCHED_IDLE.)
 *
 * Each group has a sum: the weights of its runnable tasks, and of its child groups that have
 * runnable tasks. All CPUs share the sum, so most wakeups do not write it, and most switches do not
 * read it:
 *
 *	change   of a CPU: weights that woke minus weights that slept    group_change()
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
	SHARE_SHIFT = 29,   /* while they are computed: weight * weight has 34 bits */
	WEIGHT_DFL = 1024,  /* nice 0; a group's with cpu.weight 100 */
	WEIGHT_IDLE = 3,    /* SCHED_IDLE; a group's with cpu.idle */
	NR_NICE = 40,
	MAX_WEIGHT = 102400,	 /* a group's with cpu.weight 10000 */
	MAX_LAG_NS = 1000000000, /* lag that is kept when a weight changes */
	/* In task_ctx.share, together with the weight. */
	GROUP_IDLE = 1U << 31,	  /* cpu.idle, at some level */
	GROUP_LIMITED = 1U << 30, /* cpu.max, at some level */
	GROUP_FLAGS = GROUP_IDLE | GROUP_LIMITED,
};

/* Of a CPU. Written by this CPU, by CPUs that wake a task of it, and by CPUs that flush it. */
struct changes {
	u64 slots[CHANGE_SLOTS]; /* group id << 32 | weight, signed; atomic */
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

/* Return the weight of the group in its parent's sum while it has runnable tasks. */
static u32 group_weight(const struct group *g)
{
	return g->idle ? WEIGHT_IDLE : g->weight;
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
static s64 group_counts(struct group *g)
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
 * Add to the sum of the group, and to the sums of its ancestors if they get their first runnable
 * task or lose the last. Bounded by its level. Return 0.
 */
__noinline s32 group_add(u32 id, s64 change)
{
	while (id && change && can_loop) {
		struct group *g = group(id);

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

	return g->parent ? group_add(g->parent, group_counts(g)) : 0;
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
			group_add(change >> 32, (s32)change);
	}
	return 0;
}

/*
 * Add @by to the changes of @cpu for the group. Before, flush those of more than FLUSH_NS ago: at
 * once a task that forks another and sleeps, or wakes its parent and exits, would be counted twice
 * or not at all until the next flush. On any CPU. Bounded by CHANGE_SLOTS. Return 0.
 */
__noinline s32 group_change(s32 cpu, u32 id, s32 by)
{
	struct changes *c = &changes[cpu & (MAX_CPUS - 1)];
	u64 *slot = &c->slots[id & (CHANGE_SLOTS - 1)], was, now;
	s32 sum;

	if (scx_bpf_now() - READ_ONCE(c->flushed_at) >= FLUSH_NS)
		flush_cpu(cpu);
	was = READ_ONCE(*slot);
	sum = (s32)was + by;
	now = sum ? (u64)id << 32 | (u32)sum : 0;
	/* The slot has changes of another group, or another CPU was faster. */
	if ((was && was >> 32 != id) || __sync_val_compare_and_swap(slot, was, now) != was)
		group_add(id, by);
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
	u64 share = (u64)weight << SHARE_SHIFT;
	s64 part = weight, all;
	u32 flags = 0;

	while (id && can_loop) {
		const struct group *g = group(id);

		all = READ_ONCE(g->sum);
		all = max(all, part);
		part = group_weight(g);
		share = share * part / all;
		if (g->idle)
			flags |= GROUP_IDLE;
		if (g->quota)
			flags |= GROUP_LIMITED;
		id = g->parent;
	}
	share = min(share >> (SHARE_SHIFT - WEIGHT_SHIFT), (u64)MAX_WEIGHT << WEIGHT_SHIFT);
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
 * Update the share of a runnable task if its weight has changed, or SHARE_NS have passed. A task of
 * the root has its full weight. No other CPU changes the task: the rq lock of its CPU is held, or
 * select_cpu runs.
 */
static void update_share(struct task_ctx *tctx)
{
	u32 weight = tctx->counted, share;
	u64 now = tctx->group ? scx_bpf_now() : tctx->share_at;

	if (tctx->share_of == weight && now - tctx->share_at < SHARE_NS)
		return;
	share = group_share(tctx->group, weight);
	reweight(tctx, tctx->share & ~GROUP_FLAGS, share & ~GROUP_FLAGS);
	tctx->share_of = weight;
	tctx->share_at = now;
	WRITE_ONCE(tctx->share, share);
}

/* Stop counting a task that sleeps, is throttled or leaves the group. @cpu's rq lock is held. */
static void group_leave(struct task_ctx *tctx, s32 cpu)
{
	s32 counted = tctx->counted;

	if (!tctx->group)
		return;
	tctx->counted = 0;
	if (counted)
		group_change(cpu, tctx->group, -counted);
}

/*
 * Carry out group_enter() for a task in a group, or with a new weight or autogroup. Not static, so
 * that the verifier checks it once. Return 0.
 */
__noinline s32 count_in_group(struct task_struct *p __arg_trusted,
			      struct task_ctx *tctx __arg_nonnull)
{
	s32 cpu = tctx->vtime_cpu < 0 ? bpf_get_smp_processor_id() : tctx->vtime_cpu, by;
	u32 weight = plain_weight(p);

	tctx->prio = prio(p);
	if (is_elsewhere(p, tctx)) {
		/* If @p was runnable already when its autogroup got an id, it is counted. */
		group_leave(tctx, cpu);
		find_autogroup(p, tctx);
	}
	by = weight - tctx->counted;
	tctx->counted = weight;
	if (by && tctx->group)
		group_change(cpu, tctx->group, by);
	update_share(tctx);
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

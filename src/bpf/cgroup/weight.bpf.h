/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Hierarchical weight: a task's weight is its nice weight, times the share of its group at each level of the cgroup
 * tree. Shares follow what is runnable now (Tejun Heo's runnable_load_avg), wherever that is:
 *
 *	root -+- a (weight 100) -+- task, nice 0 (100)		100 * 100 / (100 + 300) = 25
 *	      |                  +- a/b (weight 300) --- task	100 * 300 / (100 + 300) = 75
 *	      +- c (weight 300) --- nothing runnable		nothing, and counts for nothing
 *	      +- task, nice 0					100: what is in the root has its plain weight
 *
 * Each group knows the sum of the weights of what is runnable directly in it: tasks, and groups that have something
 * runnable. All CPUs share that sum, so it is not written at each wakeup and sleep: the weight of a task that falls
 * asleep stays in the sum for a moment, and its CPU notes that it is there to be had (lazy). A task of the group that
 * wakes takes it, and nothing has changed.
 *
 *	sum = weights of the runnable + lazy weights of all CPUs
 *
 *	wakes    its CPU has lazy weight of its group? take it : add to the sum            group_enter()
 *	sleeps   lazy += weight; SETTLE_NS since the CPU's last time? settle               group_leave()
 *	settle   sum -= lazy, also of the parent, if the group has nothing left            settle_cpu()
 *	tick     settle the own CPU, and some idle ones that fell asleep with lazy weight  settle_lazy()
 *
 * A group that has a child of the root above it, its top, shares nothing with those below another: each top has a
 * generation that any change below it advances, and tasks cache their weight with it.
 */
#pragma once

enum {
	LAZY_SLOTS = 8,	     /* groups that a CPU has lazy weight of; by id, modulo */
	SETTLE_NS = 1000000, /* how often a CPU changes sums for tasks that sleep */
	SETTLE_CPUS = 8,     /* idle CPUs that a tick settles */
	WEIGHT_SHIFT = 12,   /* of a task's weight: shares get small */
	SHARE_SHIFT = 36,    /* while they are computed: weight * weight has 27 bits */
	WEIGHT_DFL = 100,    /* CGROUP_WEIGHT_DFL: nice 0 */
	WEIGHT_IDLE = 1,     /* of a group with cpu.idle, as SCHED_IDLE's in the same scale */
	MAX_WEIGHT = 10000,
	MAX_LAG_NS = 1000000000, /* that is kept when a weight changes */
	/* With the weight in task_ctx.cached. */
	GROUP_IDLE = 1U << 31,	  /* cpu.idle, at some level */
	GROUP_LIMITED = 1U << 30, /* cpu.max, at some level */
	GROUP_FLAGS = GROUP_IDLE | GROUP_LIMITED,
};

struct lazy {
	u64 slots[LAZY_SLOTS]; /* group id << 32 | weight */
} __attribute__((aligned(CACHE_LINE)));

struct group groups[MAX_GROUPS];
struct lazy lazies[MAX_CPUS];
u32 nr_groups;	/* without the root */
u32 last_group; /* id given last */
u32 max_group;	/* the highest that was ever given */

/*
 * By the kernel's id. Not in cgroup storage, which cannot be made on a CPU where a task that makes some was preempted
 * (bpf_cgrp_storage_busy): mkdir would fail now and then.
 */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, MAX_GROUPS);
	__type(key, u64);
	__type(value, u64);
} group_ids SEC(".maps");

/* As with other_llc(), the compiler may know that the id is in range, and the verifier wants to see it. */
static struct group *group(u32 id)
{
	barrier_var(id);
	return &groups[id & (MAX_GROUPS - 1)];
}

static u64 *lazy_slot(s32 cpu, u32 id)
{
	return &lazies[cpu & (MAX_CPUS - 1)].slots[id % LAZY_SLOTS];
}

/* 0, the root's, also for a group that counts as part of its parent, for there was no id left. */
static u32 own_group(struct cgroup *cgrp)
{
	u64 cgroup = cgrp->kn->id, *id = bpf_map_lookup_elem(&group_ids, &cgroup);

	return id ? *id : 0;
}

/* That of the nearest above it, if it has none of its own. Bounded by its level. */
static u32 group_id(struct cgroup *cgrp)
{
	u32 id = own_group(cgrp);

	while (!id && cgrp->level > 1 && can_loop) {
		cgrp = cgrp->self.parent->cgroup;
		id = own_group(cgrp);
	}
	return id;
}

/* What the group counts for in its parent's sum while it has something runnable. */
static u32 group_weight(const struct group *g)
{
	return g->idle ? WEIGHT_IDLE : g->weight;
}

/*
 * Has the parent's sum follow whether anything is runnable in the group, and its weight. Returns what to add to it.
 * What was written last is looked at once more, so of two CPUs at it the later one sees to it.
 */
static s64 group_counts(struct group *g)
{
	s64 change = 0;
	u64 now;

	do {
		now = (s64)READ_ONCE(g->sum) > 0 ? group_weight(g) : 0;
		change += now - __sync_lock_test_and_set(&g->counted, now);
	} while (now != ((s64)READ_ONCE(g->sum) > 0 ? group_weight(g) : 0) && can_loop);
	return change;
}

/* Adds to the sum of a group, and of those above it that get or lose something runnable. Bounded by its level. */
__noinline s32 group_add(u32 id, s64 change)
{
	struct group *g = group(id);

	while (change && can_loop) {
		__sync_fetch_and_add(&g->sum, change);
		if (!g->parent)
			break;
		change = group_counts(g);
		g = group(g->parent);
	}
	__sync_fetch_and_add(&group(group(id)->top_group)->share_gen, 1);
	return 0;
}

/*
 * A group's own weight has changed. Returns 0. A function of its own also for the verifier of 6.16, which follows a
 * null pointer where a loop is come to by ways that use more and less of the stack (widen_imprecise_scalars()).
 */
__noinline s32 group_reweighted(u32 id)
{
	struct group *g = group(id);

	if (g->parent)
		group_add(g->parent, group_counts(g));
	__sync_fetch_and_add(&group(g->top_group)->share_gen, 1);
	return 0;
}

/* Takes what is lazy on @cpu out of the sums. Bounded by LAZY_SLOTS. */
__noinline s32 settle_cpu(s32 cpu)
{
	u32 i;

	bpf_for(i, 0, LAZY_SLOTS) {
		u64 *slot = lazy_slot(cpu, i), lazy = READ_ONCE(*slot);

		if (!lazy)
			continue;
		lazy = __sync_lock_test_and_set(slot, 0);
		if (lazy)
			group_add(lazy >> 32, -(s64)(u32)lazy);
	}
	return 0;
}

/* @p becomes runnable, or is so and changed its weight. */
__noinline s32 __group_enter(struct task_ctx *tctx __arg_nonnull, u32 weight)
{
	u64 *slot = lazy_slot(tctx->vclock_cpu, tctx->group), lazy = READ_ONCE(*slot);
	u32 counted = tctx->counted;

	tctx->counted = weight;
	if (!counted && lazy >> 32 == tctx->group && (u32)lazy >= weight) {
		u64 left = (u32)lazy == weight ? 0 : lazy - weight;

		if (__sync_val_compare_and_swap(slot, lazy, left) == lazy)
			return 0;
	}
	return group_add(tctx->group, (s64)weight - counted);
}

static void group_enter(const struct task_struct *p, struct task_ctx *tctx)
{
	if (tctx->group && tctx->counted != p->scx.weight)
		__group_enter(tctx, p->scx.weight);
}

/* On @cpu, its rq lock held: a task that was runnable there sleeps. */
__noinline s32 __group_leave(struct task_ctx *tctx __arg_nonnull, s32 cpu)
{
	u64 *slot = lazy_slot(cpu, tctx->group), lazy = READ_ONCE(*slot);
	u64 id = tctx->group, weight = tctx->counted, now = scx_bpf_now();
	struct cpu_ctx *cctx = cpu_ctx(cpu);

	tctx->counted = 0;
	if ((lazy && lazy >> 32 != id) ||
	    __sync_val_compare_and_swap(slot, lazy, id << 32 | ((u32)lazy + weight)) != lazy)
		group_add(id, -(s64)weight);
	if (now - cctx->settled_at >= SETTLE_NS) {
		cctx->settled_at = now;
		settle_cpu(cpu);
	}
	return 0;
}

static void group_leave(struct task_ctx *tctx, s32 cpu)
{
	if (tctx->counted)
		__group_leave(tctx, cpu);
}

/* In tick of @cpu. The lazy weight of a CPU that is idle has no other way to go. Bounded by SETTLE_CPUS. */
static void settle_lazy(s32 cpu, struct cpu_ctx *cctx)
{
	u32 i;

	if (!nr_groups)
		return;
	cctx->settled_at = scx_bpf_now();
	settle_cpu(cpu);
	bpf_for(i, 0, SETTLE_CPUS) {
		s32 other = cctx->settle_turn++ % tunables.nr_cpu_ids;

		if (cpu_ctx(other)->idle)
			settle_cpu(other);
	}
}

/*
 * The weight of a task in a group, << WEIGHT_SHIFT, and GROUP_* flags. A share is at most all: sums may lag. Bounded by
 * the group's level.
 */
__noinline u32 group_share(u32 id, u32 weight)
{
	u64 share = (u64)weight << SHARE_SHIFT;
	s64 part = weight, all;
	u32 flags = 0;

	while (id && can_loop) {
		const struct group *g = group(id);

		all = READ_ONCE(g->sum);
		if (all < part)
			all = part;
		part = group_weight(g);
		share = share * part / all;
		if (g->idle)
			flags |= GROUP_IDLE;
		if (g->quota)
			flags |= GROUP_LIMITED;
		id = g->parent;
	}
	share >>= SHARE_SHIFT - WEIGHT_SHIFT;
	if (share > MAX_WEIGHT << WEIGHT_SHIFT)
		share = MAX_WEIGHT << WEIGHT_SHIFT;
	return flags | (share ? share : 1);
}

/*
 * What the task is owed or ahead is CPU time: by another weight that is another stretch of virtual time. Bounded
 * by MAX_LAG_NS: the clock of a sleeper's CPU may be anywhere by now.
 */
static void reweight(struct task_ctx *tctx, u32 from, u32 to)
{
	u64 vclock, lag, most;
	bool owed;

	if (!from || from == to || tctx->vclock_cpu < 0)
		return;
	vclock = cpu_ctx(tctx->vclock_cpu)->vclock;
	owed = (s64)(tctx->vruntime - vclock) < 0;
	lag = owed ? vclock - tctx->vruntime : tctx->vruntime - vclock;
	most = (u64)MAX_LAG_NS * (WEIGHT_DFL << WEIGHT_SHIFT) / from;
	if (lag > most)
		lag = most;
	lag = lag * from / to;
	tctx->vruntime = owed ? vclock - lag : vclock + lag;
}

/*
 * As group_share(), from the cache if nothing has changed below the task's top. Not for tasks of the root. Called where
 * nothing else changes the task: on its CPU, or in select_cpu.
 */
static u32 group_share_of(const struct task_struct *p, struct task_ctx *tctx)
{
	u32 gen = READ_ONCE(group(group(tctx->group)->top_group)->share_gen), weight = p->scx.weight, share;
	u64 cached = READ_ONCE(tctx->cached);

	if (cached >> 32 == gen && tctx->cached_for == weight)
		return cached;
	share = group_share(tctx->group, weight);
	reweight(tctx, cached & ~GROUP_FLAGS, share & ~GROUP_FLAGS);
	tctx->cached_for = weight;
	WRITE_ONCE(tctx->cached, (u64)gen << 32 | share);
	return share;
}

/* What all of virtual time goes by: 1 .. MAX_WEIGHT << WEIGHT_SHIFT. May change the task's vruntime: reweight(). */
static u32 task_weight(const struct task_struct *p, struct task_ctx *tctx)
{
	if (!tctx->group)
		return p->scx.weight << WEIGHT_SHIFT;
	return group_share_of(p, tctx) & ~GROUP_FLAGS;
}

/* task_weight() when its CPU asked last: for other CPUs, while it waits. */
static u32 last_weight(const struct task_struct *p, const struct task_ctx *tctx)
{
	u32 weight = (u32)READ_ONCE(tctx->cached) & ~GROUP_FLAGS;

	return tctx->group && weight ? weight : p->scx.weight << WEIGHT_SHIFT;
}

/* Does the task run only when no other wants to: its own policy, or cpu.idle at some level? */
static bool is_idle_policy(const struct task_struct *p, struct task_ctx *tctx)
{
	return p->policy == SCHED_IDLE || (tctx->group && group_share_of(p, tctx) & GROUP_IDLE);
}

static bool never_preempts(const struct task_struct *p, struct task_ctx *tctx)
{
	return no_preempt(p) || is_idle_policy(p, tctx);
}

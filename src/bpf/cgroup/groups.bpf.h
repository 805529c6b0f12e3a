/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Groups come, change and go.
 *
 *	cgroup_init           an id; what is set of it, as the kernel's own task_group says
 *	cgroup_set_*          that has changed
 *	poll_cgroups()        the same, where the kernel does not tell: cpu.idle before 6.19, cpu.max before 6.17
 *	cgroup_exit           the id is free
 */
#pragma once

enum {
	SHARES_SHIFT = 10,
	MAX_LOOKS = 1024, /* groups */
};

u32 looked_at; /* id */

#define NSEC_PER_USEC 1000ULL
#define RUNTIME_INF   (~0ULL)

/*
 * The kernel's own idea of a group. It reports changes, by callbacks, and not all that is set when we come. NULL while
 * a group is being made: nothing is set of it then.
 */
static struct task_group *task_group(struct cgroup *cgrp)
{
	struct cgroup_subsys_state *css = cgrp->subsys[bpf_core_enum_value(enum cgroup_subsys_id, cpu_cgrp_id)];

	return css ? bpf_core_cast(css, struct task_group) : NULL;
}

/* cpu.weight, of which the kernel keeps shares: 100 is 1024 << SHARES_SHIFT. */
static u32 cgroup_weight(u64 shares)
{
	return ((shares >> SHARES_SHIFT) * WEIGHT_DFL + 512) / 1024 ?: 1;
}

static void look_at_group(u32 id, struct cgroup *cgrp)
{
	const struct task_group *tg = task_group(cgrp);
	struct group *g = group(id);
	u32 weight = g->weight;
	bool idle;

	if (!tg)
		return;
	idle = tg->idle;
	/* Not with CONFIG_CFS_BANDWIDTH=n: there is no cpu.max up to 6.16, and what is set before we come is not seen from 6.17 on. */
	if (bpf_core_field_exists(tg->cfs_bandwidth)) {
		u64 period = tg->cfs_bandwidth.period, quota = tg->cfs_bandwidth.quota;
		u64 burst = tg->cfs_bandwidth.burst;

		if (quota == RUNTIME_INF)
			quota = 0;
		if (g->quota != quota || g->burst != burst || (quota && g->period != period))
			set_limit(id, period, quota, burst);
	}
	/* It is another one when cpu.idle is cleared. (Without FAIR_GROUP_SCHED there are none.) */
	if (!idle && bpf_core_field_exists(tg->shares))
		weight = cgroup_weight(tg->shares);
	if (g->idle != idle || g->weight != weight) {
		g->idle = idle;
		g->weight = weight;
		group_reweighted(id);
	}
}

/* What the kernel does not report, looked up, the next MAX_LOOKS at a time: run by the loader ten times a second. */
static void look_at_groups(void)
{
	u32 i;

	bpf_for(i, 0, MAX_LOOKS) {
		struct cgroup *cgrp;
		u32 id;

		if (i >= max_group)
			break;
		looked_at = looked_at % max_group + 1;
		id = looked_at;
		if (!group(id)->weight)
			continue;
		cgrp = bpf_cgroup_from_id(group(id)->cgroup);
		if (!cgrp)
			continue;
		look_at_group(id, cgrp);
		bpf_cgroup_release(cgrp);
	}
}

/* An id that is free; 0 if none is. The one used longest ago, for tasks that die leave their group late. */
static u32 free_group(void)
{
	u32 i;

	if (nr_groups + 1 >= machine.max_groups)
		return 0;
	bpf_for(i, 1, machine.max_groups + 1) {
		u32 id = (last_group + i) % machine.max_groups;

		if (id && !group(id)->weight)
			return id;
	}
	return 0;
}

/* Sleepable; cgroup_init() and cgroup_exit() exclude each other. Parents come before their children. */
static s32 add_group(struct cgroup *cgrp, u32 weight)
{
	u32 parent_id = group_id(cgrp), id = free_group();
	u64 cgroup = cgrp->kn->id, own = id;
	struct group *g = group(id);
	s32 err;

	/* Its tasks count as its parent's. */
	if (!id) {
		lost_groups++;
		return 0;
	}
	err = bpf_map_update_elem(&group_ids, &cgroup, &own, BPF_NOEXIST);
	if (err)
		return err;
	g->cgroup = cgroup;
	g->sum = 0;
	g->shown = 0;
	g->counted = 0;
	g->level = cgrp->level;
	g->parent = parent_id;
	g->idle = false;
	g->quota = 0;
	g->burst = 0;
	g->throttled_at = 0;
	g->throttled_ns = 0;
	g->nr_periods = 0;
	g->nr_throttled = 0;
	g->weight = weight;
	look_at_group(id, cgrp);
	last_group = id;
	max_group = max(max_group, id);
	nr_groups++;
	return 0;
}

/* Sleepable. Bounded by the number of CPUs. */
static void remove_group(struct cgroup *cgrp)
{
	u32 id = own_group(cgrp);
	struct group *g = group(id);
	u64 cgroup = g->cgroup;
	s32 cpu;

	if (!id) {
		lost_groups -= cgrp->level > 0;
		return;
	}
	bpf_for(cpu, 0, machine.nr_cpu_ids)
		settle_cpu(cpu);
	/* A task that is about to die may still be counted. */
	if (g->parent)
		group_add(g->parent, -(s64)__sync_lock_test_and_set(&g->counted, 0));
	bpf_map_delete_elem(&group_ids, &cgroup);
	g->weight = 0;
	nr_groups--;
}

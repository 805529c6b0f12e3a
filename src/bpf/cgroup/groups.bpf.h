/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Groups appear, change and are removed; ids.bpf.h has how autogroups are.
 *
 *	cgroup_init     gets an id, and the settings of the kernel's own task_group
 *	cgroup_set_*    a setting has changed
 *	poll_groups()   the same where the kernel does not report it: cpu.idle before 6.19,
 *	                cpu.max before 6.17
 *	cgroup_exit     frees the id
 */
#pragma once

enum {
	SHARES_SHIFT = 10, /* of task_group.shares, over the weight */
	CPU_WEIGHT_DFL = 100,
	MAX_LOOKS = 1024,   /* groups */
	UNUSED_LOOKS = 100, /* ten seconds: a task that joins an autogroup first wakes again */
};

u32 looked_at; /* id */

#define NSEC_PER_USEC 1000ULL
#define RUNTIME_INF   (~0ULL)

/*
 * The kernel's own idea of a group. It reports changes, by callbacks, and not all that is set when
 * we come. NULL while a group is being made: nothing is set of it then.
 */
static struct task_group *task_group(struct cgroup *cgrp)
{
	struct cgroup_subsys_state *css =
		cgrp->subsys[bpf_core_enum_value(enum cgroup_subsys_id, cpu_cgrp_id)];

	return css ? bpf_core_cast(css, struct task_group) : NULL;
}

/* What the kernel keeps of a cpu.weight. */
static u32 kernel_weight(u32 cpu_weight)
{
	return (cpu_weight * WEIGHT_DFL + CPU_WEIGHT_DFL / 2) / CPU_WEIGHT_DFL;
}

/*
 * @weight: what it is where the kernel has no shares of its own. @tg: NULL while the group is being
 * made.
 */
static void look_at_group(u32 id, const struct task_group *tg, u32 weight)
{
	struct group *g = group(id);
	bool idle;

	if (!tg)
		return;
	idle = tg->idle;
	/*
	 * Not with CONFIG_CFS_BANDWIDTH=n: there is no cpu.max up to 6.16, and what is set before
	 * we come is not seen from 6.17 on.
	 */
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
		weight = tg->shares >> SHARES_SHIFT;
	if (g->idle != idle || g->weight != weight) {
		g->idle = idle;
		g->weight = weight;
		group_reweighted(id);
	}
}

/*
 * Claim an id that is free; 0 if none is. The one used longest ago, because tasks that exit leave
 * their group late.
 */
static u32 free_group(void)
{
	u32 i;

	if (nr_groups + 1 >= machine.max_groups)
		return 0;
	bpf_for(i, 1, machine.max_groups + 1) {
		u32 id = (last_group + i) % machine.max_groups;

		if (id && !__sync_val_compare_and_swap(&group(id)->weight, 0, 1))
			return id;
	}
	return 0;
}

/* Initialize the group @id, which free_group() has claimed. */
static void init_group(u32 id, u64 key, u32 parent, u32 level, u32 weight)
{
	struct group *g = group(id);
	u32 max;

	g->cgroup = key;
	g->sum = 0;
	g->counted = 0;
	g->level = level;
	g->parent = parent;
	g->idle = false;
	g->quota = 0;
	g->burst = 0;
	g->throttled_at = 0;
	g->throttled_ns = 0;
	g->nr_periods = 0;
	g->nr_throttled = 0;
	g->weight = weight;
	last_group = id;
	__sync_fetch_and_add(&nr_groups, 1);
	do {
		max = READ_ONCE(max_group);
	} while (max < id && __sync_val_compare_and_swap(&max_group, max, id) != max && can_loop);
}

/*
 * Free the group's id. CPUs may still have a budget for it. A member that exits later changes the
 * sum of the next group with the id: free_group() takes the one that was freed longest ago. Bounded
 * by the number of CPUs.
 */
static void free_id(u32 id)
{
	struct group *g = group(id);
	s32 cpu;

	bpf_for(cpu, 0, machine.nr_cpu_ids) {
		settle_cpu(cpu);
		__sync_val_compare_and_swap(&cpu_budget(cpu, id)->group, id, 0);
	}
	if (g->parent)
		group_add(g->parent, -(s64)__sync_lock_test_and_set(&g->counted, 0));
	g->autogroup = false;
	__sync_fetch_and_add(&nr_groups, -1);
	WRITE_ONCE(g->weight, 0);
}

/* Sleepable. Parents come before their children. */
static s32 add_group(struct cgroup *cgrp, u32 weight)
{
	u32 parent = group_id(cgrp), id = free_group();
	u64 cgroup = cgrp->kn->id, own = id;
	s32 err;

	/* Its tasks count as its parent's. */
	if (!id) {
		lost_groups++;
		return 0;
	}
	err = bpf_map_update_elem(&group_ids, &cgroup, &own, BPF_NOEXIST);
	if (err) {
		group(id)->weight = 0;
		return err;
	}
	init_group(id, cgroup, parent, cgrp->level, kernel_weight(weight));
	look_at_group(id, task_group(cgrp), group(id)->weight);
	return 0;
}

/* Sleepable. */
static void remove_group(struct cgroup *cgrp)
{
	u64 cgroup = cgrp->kn->id;
	u32 id = own_group(cgrp);

	if (!id) {
		lost_groups -= cgrp->level > 0;
		return;
	}
	bpf_map_delete_elem(&group_ids, &cgroup);
	free_id(id);
}

static const struct task_group *autogroup(u32 id)
{
	return bpf_core_cast((void *)group(id)->cgroup, struct task_group);
}

/*
 * Give an autogroup an id. If half of all ids are taken it has none, and counts as part of the
 * root: the others are for cgroups.
 */
static void add_autogroup(u64 address)
{
	u64 id = 0;

	if (!bpf_map_lookup_elem(&group_ids, &address) && nr_groups < machine.max_groups / 2)
		id = free_group();
	if (!id)
		return;
	init_group(id, address, 0, 1, WEIGHT_DFL);
	group(id)->autogroup = true;
	group(id)->unused = 0;
	look_at_group(id, autogroup(id), WEIGHT_DFL);
	bpf_map_update_elem(&group_ids, &address, &id, BPF_NOEXIST);
}

/* Remove an autogroup without members, unless a task joins meanwhile: see join_autogroup(). */
static void remove_autogroup(u32 id)
{
	u64 address = group(id)->cgroup, own = id;

	bpf_map_delete_elem(&group_ids, &address);
	/* The value makes it a full barrier. */
	if (__sync_fetch_and_add(&group(id)->members, 0))
		bpf_map_update_elem(&group_ids, &address, &own, BPF_NOEXIST);
	else
		free_id(id);
}

/*
 * Update the weight of an autogroup, whose nice value may have changed. Remove it after
 * UNUSED_LOOKS without members.
 */
static void look_at_autogroup(u32 id)
{
	struct group *g = group(id);

	if (READ_ONCE(g->members)) {
		g->unused = 0;
		look_at_group(id, autogroup(id), g->weight);
	} else if (++g->unused >= UNUSED_LOOKS) {
		remove_autogroup(id);
	}
}

/*
 * What the kernel does not report: autogroups, and of cgroups what older kernels do not. The next
 * MAX_LOOKS at a time, run by the loader ten times a second.
 */
static void look_at_groups(void)
{
	u32 i;

	bpf_for(i, 0, WANTED_AUTOGROUPS) {
		u64 address = __sync_lock_test_and_set(
			&wanted_autogroups[i & (WANTED_AUTOGROUPS - 1)], 0);

		if (address)
			add_autogroup(address);
	}
	bpf_for(i, 0, MAX_LOOKS) {
		struct cgroup *cgrp;
		u32 id;

		if (i >= max_group)
			break;
		looked_at = looked_at % max_group + 1;
		id = looked_at;
		if (group(id)->autogroup) {
			look_at_autogroup(id);
			continue;
		}
		if (!machine.polls_cgroups || !group(id)->weight)
			continue;
		cgrp = bpf_cgroup_from_id(group(id)->cgroup);
		if (!cgrp)
			continue;
		look_at_group(id, task_group(cgrp), group(id)->weight);
		bpf_cgroup_release(cgrp);
	}
}

/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Cgroups that appear, change and are removed. For autogroups see ids.bpf.h.
 *
 *	cgroup_init     gives the group an id, and the settings of the kernel's task_group
 *	cgroup_set_*    a setting has changed
 *	poll_groups()   finds changes that the kernel does not report: of cpu.idle before 6.19, of
 *	                cpu.max before 6.17, and of the CPUs of a cpuset if weights depend on them
 *	cgroup_exit     frees the id
 */
#pragma once

enum {
	SHARES_SHIFT = 10, /* task_group.shares is the weight << this */
	CPU_WEIGHT_DFL = 100,
	MAX_CHECKS = 1024,   /* groups that one poll checks */
	UNUSED_CHECKS = 100, /* checks, ten seconds: a task joins only when it next wakes */
};

u32 last_checked; /* the id checked last */

#define NSEC_PER_USEC 1000ULL
#define RUNTIME_INF   (~0ULL)

/*
 * Return the kernel's state of a cgroup. This includes settings that were made before this
 * scheduler was attached, which no callback reports. NULL while the cgroup is being created, when
 * it has no settings yet.
 */
static struct task_group *task_group(struct cgroup *cgrp)
{
	struct cgroup_subsys_state *css =
		cgrp->subsys[bpf_core_enum_value(enum cgroup_subsys_id, cpu_cgrp_id)];

	return css ? bpf_core_cast(css, struct task_group) : NULL;
}

#ifdef __VMLINUX_H__
/* A cpumask_var_t is a pointer with CONFIG_CPUMASK_OFFSTACK, and otherwise an array of one. */
struct cpuset___pointer {
	struct cpumask *effective_cpus;
} __attribute__((preserve_access_index));

struct cpuset___array {
	struct cpumask effective_cpus[1];
} __attribute__((preserve_access_index));
#endif

/* Return the effective CPUs of the cpuset. */
static const struct cpumask *effective_cpus(const struct cpuset *cpuset)
{
	const struct cpuset___pointer *pointer = (const void *)cpuset;
	const struct cpuset___array *array = (const void *)cpuset;

	if (bpf_core_field_exists(pointer->effective_cpus))
		return pointer->effective_cpus;
	return bpf_core_field_exists(array->effective_cpus) ? array->effective_cpus : NULL;
}

/* Return the number of usable CPUs. Bounded by the number of LLCs. */
static u32 nr_usable(void)
{
	u32 llc, nr = 0;

	bpf_for(llc, 0, machine.nr_llcs)
		nr += READ_ONCE(llc_layouts[llc & (MAX_LLCS - 1)].nr_cpus);
	return nr;
}

/*
 * Return the number of CPUs that the cgroup may use, at least 1: those of its cpuset, or of the
 * nearest ancestor with a cpuset. All CPUs if @cgrp is NULL, for an autogroup; or if cpusets are
 * not in the unified hierarchy. Bounded by the level of the cgroup, and by nr_cpu_ids.
 */
static u32 cpuset_cpus(struct cgroup *cgrp)
{
	const struct cgroup_subsys_state *css = NULL;
	const struct cpumask *mask;
	u32 i, nr = 0;
	u64 word;

	if (!bpf_core_enum_value_exists(enum cgroup_subsys_id, cpuset_cgrp_id))
		return nr_usable();
	while (cgrp && can_loop) {
		css = cgrp->subsys[bpf_core_enum_value(enum cgroup_subsys_id, cpuset_cgrp_id)];
		if (css || !cgrp->level)
			break;
		cgrp = cgrp->self.parent->cgroup;
	}
	mask = css ? effective_cpus(bpf_core_cast(css, struct cpuset)) : NULL;
	if (!mask)
		return nr_usable();
	bpf_for(i, 0, (machine.nr_cpu_ids + 63) / 64) {
		if (!bpf_probe_read_kernel(&word, sizeof(word), &mask->bits[i]))
			nr += __builtin_popcountll(word);
	}
	return nr ?: 1;
}

/* Convert a cpu.weight (100 is the default) to the kernel's scale (1024). */
static u32 kernel_weight(u32 cpu_weight)
{
	return (cpu_weight * WEIGHT_DFL + CPU_WEIGHT_DFL / 2) / CPU_WEIGHT_DFL;
}

/* Update by how much the group weighs: a setting or --cgroup-mode may have changed. Return 0. */
__noinline s32 weigh(u32 id)
{
	struct group *g = group(id);
	u64 weighs = weight_by_mode(g);

	if (g->weighs == weighs)
		return 0;
	WRITE_ONCE(g->weighs, weighs);
	return group_reweighted(id);
}

/*
 * Update the group's settings from @tg, which is NULL while the cgroup is being created. @weight is
 * used if cpu.idle is set, or if the kernel has no task_group.shares.
 */
static void check_group(u32 id, const struct task_group *tg, u32 weight)
{
	struct group *g = group(id);
	u32 cpus = g->cpus;
	bool idle;

	if (!tg)
		return;
	if (tunables.cgroup_mode != CGROUP_SMP)
		cpus = cpuset_cpus(tg->css.cgroup);
	idle = tg->idle;
	/*
	 * CONFIG_CFS_BANDWIDTH=n has no such field: then there is no cpu.max up to 6.16, and from
	 * 6.17 on a cpu.max that was set before the scheduler was attached is not seen.
	 */
	if (bpf_core_field_exists(tg->cfs_bandwidth)) {
		u64 period = tg->cfs_bandwidth.period, quota = tg->cfs_bandwidth.quota;
		u64 burst = tg->cfs_bandwidth.burst;

		if (quota == RUNTIME_INF)
			quota = 0;
		if (g->quota != quota || g->burst != burst || (quota && g->period != period))
			set_limit(id, period, quota, burst);
	}
	/* The kernel resets the weight when cpu.idle is cleared. FAIR_GROUP_SCHED=n: no shares. */
	if (!idle && bpf_core_field_exists(tg->shares))
		weight = tg->shares >> SHARES_SHIFT;
	if (g->idle != idle || g->weight != weight || g->cpus != cpus) {
		g->idle = idle;
		g->weight = weight;
		g->cpus = cpus;
	}
	weigh(id);
}

/*
 * Claim a free id; return 0 if there is none. Prefer the id that was used longest ago, because
 * tasks that exit leave their group late. Bounded by max_groups.
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
	g->tasks = 0;
	g->tasks_avg = scx_bpf_now() / PELT_PERIOD_NS << 32;
	g->cpus = 1;
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
	g->weighs = weight;
	last_group = id;
	__sync_fetch_and_add(&nr_groups, 1);
	do {
		max = READ_ONCE(max_group);
	} while (max < id && __sync_val_compare_and_swap(&max_group, max, id) != max && can_loop);
}

/*
 * Free the group's id: flush all changes, and remove the budgets that CPUs still have for it. A
 * member that exits later changes the sum of the next group with this id, which is rare, because
 * free_group() prefers other ids. Bounded by the number of CPUs.
 */
static void free_id(u32 id)
{
	struct group *g = group(id);
	s32 cpu;

	bpf_for(cpu, 0, machine.nr_cpu_ids) {
		flush_cpu(cpu);
		__sync_val_compare_and_swap(&cpu_budget(cpu, id)->group, id, 0);
	}
	if (g->parent)
		group_add(g->parent, -(s64)__sync_lock_test_and_set(&g->counted, 0),
			  -__sync_lock_test_and_set(&g->tasks, 0));
	g->autogroup = false;
	__sync_fetch_and_add(&nr_groups, -1);
	WRITE_ONCE(g->weight, 0);
}

/* In cgroup_init, sleepable. Parents are created before their children. Return 0. */
static s32 add_group(struct cgroup *cgrp, u32 weight)
{
	u32 parent = group_id(cgrp), id = free_group();
	u64 cgroup = cgrp->kn->id, own = id;

	/* No id is free, or no memory: the tasks of the cgroup count as tasks of its parent. */
	if (id && bpf_map_update_elem(&group_ids, &cgroup, &own, BPF_NOEXIST)) {
		group(id)->weight = 0;
		id = 0;
	}
	if (!id) {
		lost_groups++;
		return 0;
	}
	init_group(id, cgroup, parent, cgrp->level, kernel_weight(weight));
	check_group(id, task_group(cgrp), group(id)->weight);
	return 0;
}

/* In cgroup_exit, sleepable. */
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
 * Give an autogroup an id, unless half of all ids are taken, because the others are for cgroups.
 * Without an id its tasks count as tasks of the root.
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
	check_group(id, autogroup(id), WEIGHT_DFL);
	bpf_map_update_elem(&group_ids, &address, &id, BPF_NOEXIST);
}

/* Remove an autogroup without members, unless a task joins it meanwhile: see join_autogroup(). */
static void remove_autogroup(u32 id)
{
	u64 address = group(id)->cgroup, own = id;

	bpf_map_delete_elem(&group_ids, &address);
	/* Full barrier, because the value is used. */
	if (__sync_fetch_and_add(&group(id)->members, 0))
		bpf_map_update_elem(&group_ids, &address, &own, BPF_NOEXIST);
	else
		free_id(id);
}

/* Update the weight of an autogroup: its nice value may have changed. Remove one that is unused. */
static void check_autogroup(u32 id)
{
	struct group *g = group(id);

	if (READ_ONCE(g->members)) {
		g->unused = 0;
		check_group(id, autogroup(id), g->weight);
	} else if (++g->unused >= UNUSED_CHECKS) {
		remove_autogroup(id);
	}
}

/*
 * In poll_groups(), ten times a second: add and check autogroups, and check the settings of cgroups
 * that the kernel does not report. Bounded by MAX_CHECKS; the next call continues.
 */
static void check_groups(void)
{
	u32 i;

	bpf_for(i, 0, WANTED_AUTOGROUPS) {
		u64 address = __sync_lock_test_and_set(
			&wanted_autogroups[i & (WANTED_AUTOGROUPS - 1)], 0);

		if (address)
			add_autogroup(address);
	}
	bpf_for(i, 0, MAX_CHECKS) {
		struct cgroup *cgrp;
		u32 id;

		if (i >= max_group)
			break;
		last_checked = last_checked % max_group + 1;
		id = last_checked;
		if (group(id)->autogroup) {
			check_autogroup(id);
			continue;
		}
		if (!group(id)->weight)
			continue;
		if (!machine.polls_cgroups && tunables.cgroup_mode == CGROUP_SMP) {
			weigh(id);
			continue;
		}
		cgrp = bpf_cgroup_from_id(group(id)->cgroup);
		if (!cgrp)
			continue;
		check_group(id, task_group(cgrp), group(id)->weight);
		bpf_cgroup_release(cgrp);
	}
}

/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The groups that have a share: cgroups, and the kernel's autogroups, which are sessions. A task is
 * in the autogroup of its session if it is in the root cgroup, or in one without the cpu
 * controller, and kernel.sched_autogroup_enabled is set; the kernel has it in p->sched_task_group
 * then.
 *
 * Cgroups are reported by callbacks (groups.bpf.h). Autogroups are not:
 *
 *	a task becomes runnable, and its sched_task_group
 *	has changed: it joins the group, or, if that has no
 *	id, its address is noted                                find_autogroup()
 *	a tenth of a second later at most: noted addresses
 *	get an id, autogroups without members lose theirs       poll_groups(), run by the loader
 *
 * The address cannot be another autogroup's while the group has members: each holds a reference.
 */
#pragma once

enum { WANTED_AUTOGROUPS = 64 };

/* By id. As long as --max-cgroups says: the loader cuts it. */
struct group groups[MAX_GROUPS] SEC(".bss.groups");

u32 nr_groups;	 /* without the root */
u32 last_group;	 /* id given last */
u32 max_group;	 /* the highest that was ever given */
u32 lost_groups; /* for which there was no id */

/*
 * By the kernel's id, or the address of an autogroup, which no id reaches. Not in cgroup storage,
 * which cannot be made on a CPU where a task that makes some was preempted (bpf_cgrp_storage_busy):
 * mkdir would fail now and then.
 */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, MAX_GROUPS);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, u64);
	__type(value, u64);
} group_ids SEC(".maps");

/*
 * As with other_llc(), the compiler may know that the id is in range, and the verifier wants to see
 * it.
 */
static struct group *group(u32 id)
{
	barrier_var(id);
	return &groups[id < machine.max_groups ? id : 0];
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

/*
 * Addresses of the task_groups of autogroups without an id, by CPU, modulo. One that is overwritten
 * is noted again.
 */
u64 wanted_autogroups[WANTED_AUTOGROUPS];

/* Move the task, which is not counted in its group any more, to the one with @id. */
static void join_group(struct task_ctx *tctx, u32 id)
{
	if (group(tctx->group)->autogroup)
		__sync_fetch_and_add(&group(tctx->group)->members, -1);
	tctx->group = id;
	tctx->counted = 0;
	tctx->share_of = 0;
	tctx->prio = 0;
}

/* @tctx leaves its autogroup, because the task leaves sched_ext, or was moved. */
static void leave_autogroup(struct task_ctx *tctx)
{
	tctx->task_group = 0;
	if (group(tctx->group)->autogroup)
		join_group(tctx, 0);
}

/*
 * Pairs with remove_autogroup(), which removes the id and then looks at the members: either it sees
 * this one, or the id is not found again here.
 */
static u32 join_autogroup(struct task_ctx *tctx, u64 address)
{
	u64 *id = bpf_map_lookup_elem(&group_ids, &address);
	u32 joined = id ? *id : 0, before;

	if (!joined)
		return 0;
	/* The value makes it a full barrier. */
	before = __sync_fetch_and_add(&group(joined)->members, 1);
	barrier_var(before);
	if (!bpf_map_lookup_elem(&group_ids, &address)) {
		__sync_fetch_and_add(&group(joined)->members, -1);
		return 0;
	}
	join_group(tctx, joined);
	return joined;
}

/* Has the task's sched_task_group changed since find_autogroup()? */
static bool is_elsewhere(const struct task_struct *p, const struct task_ctx *tctx)
{
	return machine.autogroups && (u64)p->sched_task_group != tctx->task_group;
}

/*
 * Find the group of @p, which is not counted, once the kernel has moved it to another task_group.
 * Until an autogroup has an id the task is in the root's.
 */
static void find_autogroup(const struct task_struct *p, struct task_ctx *tctx)
{
	const struct task_group *tg = p->sched_task_group;
	u64 address = (u64)tg;

	leave_autogroup(tctx);
	/* An autogroup's is of no cgroup. cgroup_move() has reported others. */
	if (!tg->css.cgroup && !join_autogroup(tctx, address)) {
		WRITE_ONCE(wanted_autogroups[bpf_get_smp_processor_id() % WANTED_AUTOGROUPS],
			   address);
		return;
	}
	tctx->task_group = address;
}

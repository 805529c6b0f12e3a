/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Groups that have a share: cgroups, and the kernel's autogroups. Each session has an autogroup. A
 * task is in the autogroup of its session if kernel.sched_autogroup_enabled is set, and the task is
 * in the root cgroup or in a cgroup without the cpu controller. The autogroup is then
 * p->sched_task_group.
 *
 * The kernel reports cgroups by callbacks (groups.bpf.h). It does not report autogroups:
 *
 *	a task becomes runnable, and its sched_task_group
 *	has changed: it joins that group, or notes its
 *	address if it has no id yet                             find_autogroup()
 *	within a tenth of a second: noted addresses get
 *	an id, autogroups without members lose theirs           poll_groups(), run by the loader
 *
 * Each member holds a reference to its autogroup: the address is not reused while there are any.
 */
#pragma once

enum { WANTED_AUTOGROUPS = 64 };

/* By id. The loader resizes it to --max-cgroups. */
struct group groups[MAX_GROUPS] SEC(".bss.groups");

u32 nr_groups;	 /* without the root */
u32 last_group;	 /* the id given last */
u32 max_group;	 /* the highest id given so far */
u32 lost_groups; /* cgroups without an id, because none was free */

/*
 * From the kernel's cgroup id, or the address of an autogroup, to the group's id. Addresses are
 * greater than all cgroup ids. Cgroup storage is not used, because its creation fails if another
 * task is creating cgroup storage on the same CPU (bpf_cgrp_storage_busy): mkdir would fail now and
 * then.
 */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, MAX_GROUPS);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, u64);
	__type(value, u64);
} group_ids SEC(".maps");

/*
 * Return the group with @id. The compiler must not drop the bounds check, which the verifier needs.
 */
static struct group *group(u32 id)
{
	barrier_var(id);
	return &groups[id < machine.max_groups ? id : 0];
}

/* Return the id of the cgroup; 0 for the root, and for a cgroup that got no id. */
static u32 own_group(struct cgroup *cgrp)
{
	u64 cgroup = cgrp->kn->id, *id = bpf_map_lookup_elem(&group_ids, &cgroup);

	return id ? *id : 0;
}

/* Return the id of the cgroup, or of its nearest ancestor that has one. Bounded by its level. */
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
 * Addresses of autogroups without an id; index: CPU modulo WANTED_AUTOGROUPS. If an address is
 * overwritten, the next wakeup of a task of the autogroup notes it again.
 */
u64 wanted_autogroups[WANTED_AUTOGROUPS];

/* Move the task to the group @id. The caller has stopped counting it in its old group. */
static void join_group(struct task_ctx *tctx, u32 id)
{
	tctx->group = id;
	tctx->counted = 0;
	tctx->share_of = 0;
	tctx->prio = 0;
}

/*
 * Leave the autogroup, because the task leaves sched_ext, or was moved. A task that exits may have
 * the id of a removed cgroup, which an autogroup has now: compare the addresses.
 */
static void leave_autogroup(struct task_ctx *tctx)
{
	struct group *g = group(tctx->group);

	if (g->autogroup && g->cgroup == tctx->task_group) {
		__sync_fetch_and_add(&g->members, -1);
		join_group(tctx, 0);
	}
	tctx->task_group = 0;
}

/*
 * Join the autogroup at @address; return its id, 0 if it has none.
 *
 *	this CPU                      the loader, remove_autogroup()
 *	add to members                remove the id
 *	full barrier                  full barrier
 *	look up the id                read members
 */
static u32 join_autogroup(struct task_ctx *tctx, u64 address)
{
	u64 *id = bpf_map_lookup_elem(&group_ids, &address);
	u32 joined = id ? *id : 0, before;

	if (!joined)
		return 0;
	/* Full barrier, because the value is used. */
	before = __sync_fetch_and_add(&group(joined)->members, 1);
	barrier_var(before);
	id = bpf_map_lookup_elem(&group_ids, &address);
	if (!id || *id != joined) {
		__sync_fetch_and_add(&group(joined)->members, -1);
		return 0;
	}
	join_group(tctx, joined);
	return joined;
}

/* Return true if the task's sched_task_group has changed since find_autogroup(). */
static bool is_elsewhere(const struct task_struct *p, const struct task_ctx *tctx)
{
	return machine.autogroups && (u64)p->sched_task_group != tctx->task_group;
}

/*
 * Find the group of @p after the kernel has moved @p to another task_group. @p is not counted in a
 * group. It is in the root until its autogroup has an id.
 */
static void find_autogroup(const struct task_struct *p, struct task_ctx *tctx)
{
	const struct task_group *tg = p->sched_task_group;
	u64 address = (u64)tg;

	leave_autogroup(tctx);
	/* An autogroup has no cgroup. For other task_groups cgroup_move() has been called. */
	if (!tg->css.cgroup && !join_autogroup(tctx, address)) {
		WRITE_ONCE(wanted_autogroups[bpf_get_smp_processor_id() % WANTED_AUTOGROUPS],
			   address);
		return;
	}
	tctx->task_group = address;
}

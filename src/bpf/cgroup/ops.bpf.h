/* SPDX-License-Identifier: GPL-2.0-only */
/* Callbacks for cgroups; groups.bpf.h carries them out. */
#pragma once

/* Sleepable. Called before a task is in the group, and, for existing groups, before init_task(). */
s32 BPF_STRUCT_OPS_SLEEPABLE(magpie_cgroup_init, struct cgroup *cgrp,
			     struct scx_cgroup_init_args *args)
{
	return cgrp->level ? add_group(cgrp, args->weight) : 0;
}

/* Sleepable. Tasks that are exiting may still be in the group. */
void BPF_STRUCT_OPS_SLEEPABLE(magpie_cgroup_exit, struct cgroup *cgrp)
{
	remove_group(cgrp);
}

/* @p is in no queue and does not run. Its rq lock is held. */
void BPF_STRUCT_OPS(magpie_cgroup_move, struct task_struct *p, struct cgroup *from,
		    struct cgroup *to)
{
	struct task_ctx *tctx = task_ctx(p);

	if (!tctx)
		return;
	group_leave(tctx, scx_bpf_task_cpu(p), scx_bpf_now());
	leave_autogroup(tctx);
	join_group(tctx, group_id(to));
}

void BPF_STRUCT_OPS(magpie_cgroup_set_weight, struct cgroup *cgrp, u32 weight)
{
	u32 id = own_group(cgrp);

	if (!id)
		return;
	check_group(id, task_group(cgrp), kernel_weight(weight));
}

/* From 6.17 on. */
void BPF_STRUCT_OPS(magpie_cgroup_set_bandwidth, struct cgroup *cgrp, u64 period_us, u64 quota_us,
		    u64 burst_us)
{
	u32 id = own_group(cgrp);

	if (id)
		set_limit(id, period_us * NSEC_PER_USEC,
			  quota_us == RUNTIME_INF ? 0 : quota_us * NSEC_PER_USEC,
			  burst_us * NSEC_PER_USEC);
}

/* From 6.19 on. */
void BPF_STRUCT_OPS(magpie_cgroup_set_idle, struct cgroup *cgrp, bool idle)
{
	u32 id = own_group(cgrp);

	if (id)
		check_group(id, task_group(cgrp), group(id)->weight);
}

/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Core scheduling: threads of a core run tasks of one cookie (PR_SCHED_CORE) at a time. The kernel
 * enforces it: for all threads of the core it picks the task that is before the others, and keeps
 * a thread idle whose queues have none of the same cookie.
 */
#pragma once

#ifdef __VMLINUX_H__
/* A field of kernels with CONFIG_SCHED_CORE. */
struct rq___core {
	unsigned int core_enabled;
} __attribute__((preserve_access_index));
#endif

/* Return true if some task has a cookie now. */
static bool core_sched_in_use(void)
{
	const struct rq___core *rq = (const void *)kernel_rq(bpf_get_smp_processor_id());

	return rq && bpf_core_field_exists(rq->core_enabled) && rq->core_enabled;
}

/*
 * Return by how much the deadline of the task is after the virtual time of its CPU: tasks of
 * different CPUs are compared by it. Negative if the deadline is over.
 */
static s64 until_deadline(const struct task_ctx *tctx)
{
	return tctx->vtime_cpu < 0 ? 0 : tctx->deadline - cpu_ctx(tctx->vtime_cpu)->vtime;
}

/*
 * Return true if @a runs before @b, on the same CPU or another one of its core. Both are runnable;
 * the rq lock of the core is held. Critical tasks come first.
 */
static bool runs_before(struct task_struct *a, struct task_struct *b)
{
	struct task_ctx *tctx_a = task_ctx(a), *tctx_b = task_ctx(b);
	bool critical = is_critical(a);

	if (!tctx_a || !tctx_b)
		return false;
	if (critical != is_critical(b))
		return critical;
	return until_deadline(tctx_a) < until_deadline(tctx_b);
}

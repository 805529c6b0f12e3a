/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * A task whose group has used up its cpu.max must not wait for the next period while it holds a
 * kernel lock: all tasks that want the lock would wait, too. So the task continues until it is
 * known to be at the boundary of user space (at_user), where it holds no kernel lock. Its group
 * pays for that time later.
 *
 *	in tick      its slice is over, and the tick interrupted
 *	             user space: at_user                              set_at_user()
 *	in running   it has no slice, and at_user is not set:
 *	             request task work (from 6.18 on)                 ask_boundary()
 *	task work    on the way to user space: set at_user, preempt   boundary_reached()
 *
 * The kernel's own throttling uses such task work, too. Before 6.18 there is only the tick: a task
 * that is nearly always in the kernel runs for longer, and then waits for longer.
 *
 * Task work runs with migration disabled, and most kernels preempt the task inside it: the task
 * waits there, and continues on the same CPU.
 */
#pragma once

enum { MAX_ASKED = 16384 }; /* tasks at a time; the tick finds the others */

struct boundary_work {
	struct bpf_task_work work;
};

/* By pid; an entry exists while task work is requested. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, MAX_ASKED);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, u64);
	__type(value, struct boundary_work);
} boundary_works SEC(".maps");

/* From 6.18 on the kernel has the second one, from 7.0 on also the first. */
extern int bpf_task_work_schedule_resume(struct task_struct *task, struct bpf_task_work *tw,
					 void *map__const_map,
					 bpf_task_work_callback_t callback) __ksym __weak;
extern int bpf_task_work_schedule_resume_impl(struct task_struct *task, struct bpf_task_work *tw,
					      void *map__map, bpf_task_work_callback_t callback,
					      void *aux__prog) __ksym __weak;

static bool has_task_work(void)
{
	if (bpf_ksym_exists(bpf_task_work_schedule_resume))
		return true;
	barrier();
	return bpf_ksym_exists(bpf_task_work_schedule_resume_impl);
}

/*
 * In tick of @p: set at_user if the slice is over, and the tick has interrupted user space. @p is
 * then preempted when the interrupt returns, and does not run before. So at_user remains true, even
 * if more ticks follow.
 */
static void set_at_user(const struct task_struct *p, struct task_ctx *tctx)
{
	if (is_limited(tctx) && !p->scx.slice && tick_in_user())
		tctx->at_user = true;
}

/* Task work of current, on its way to user space. Sleepable, migration disabled. */
static int boundary_reached(struct bpf_map *map, void *key, void *value)
{
	struct task_struct *p = bpf_get_current_task_btf();
	struct task_ctx *tctx = task_ctx(p);
	u64 pid = *(u64 *)key;

	/* Not p->pid: a thread that has called exec() has the one of its group's leader. */
	bpf_map_delete_elem(&boundary_works, &pid);
	if (!tctx)
		return 0;
	tctx->asked = false;
	/* Not a real-time task: it may be in the kernel when it returns to sched_ext. */
	tctx->at_user = p->prio >= MAX_RT_PRIO;
	/*
	 * Last, because it preempts this task. Not inside kick_cpu(), where the kernel is an RCU
	 * reader: grace periods would wait for the preempted task.
	 */
	bpf_preempt_disable();
	kick_cpu(bpf_get_smp_processor_id(), SCX_KICK_PREEMPT);
	bpf_preempt_enable();
	return 0;
}

/* In running of @p: request task work. If that fails, the next tick or run makes up for it. */
static void ask_boundary(struct task_struct *p, struct task_ctx *tctx)
{
	struct boundary_work empty = {}, *w;
	u64 pid = p->pid;
	s32 err;

	if (tctx->asked)
		return;
	if (!has_task_work())
		return;
	if (bpf_map_update_elem(&boundary_works, &pid, &empty, BPF_NOEXIST))
		return;
	w = bpf_map_lookup_elem(&boundary_works, &pid);
	if (!w)
		return;
	if (bpf_ksym_exists(bpf_task_work_schedule_resume))
		err = bpf_task_work_schedule_resume(p, &w->work, &boundary_works, boundary_reached);
	else
		err = bpf_task_work_schedule_resume_impl(p, &w->work, &boundary_works,
							 boundary_reached, NULL);
	if (err)
		bpf_map_delete_elem(&boundary_works, &pid);
	else
		tctx->asked = true;
}

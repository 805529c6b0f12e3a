/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The queues of a CPU, ordered by deadline:
 *
 *	DSQ cpu                tasks that may migrate; other CPUs may take them
 *	DSQ pinned_queue(cpu)  tasks that may not; thieves do not scan them, however many there are
 *	local DSQ              the kernel takes tasks from it without dispatch(), in FIFO order
 *
 * A task in the local DSQ cannot be stolen. So a task waits there only if
 *
 *	it is pinned, and preempts current, is next or critical  insert_task(), run_at_once()
 *	its CPU was claimed for it, or handed off to it          magpie_select_cpu(), enqueue
 *	it was sent to this CPU, or taken for it                 send(), pull(), take_queued()
 *	the CPU is not usable                                    magpie_enqueue(), empty_queue()
 *	it continues alone on a nohz_full CPU                    insert_task()
 *
 * The DSQs are authoritative. Three other words say whether it is worth the cost to check them:
 *
 *	queued_load   sum of the weights of the tasks in both queues: queue_add() adds, queue_del()
 *	              subtracts, on any CPU. It includes a task that enqueue() has queued and the
 *	              kernel, which inserts it when enqueue() returns, has not yet inserted
 *	cctx->queued  queue_add() sets it; the CPU clears it when it finds a queue empty. 0 means
 *	              that both queues are empty
 *	overload bit  a copy of QUEUED_MOVABLE for other CPUs; a thief may clear it, too
 *	              (steal/overload.bpf.h)
 *
 * The load of a CPU is queued_load plus the weight of current. A task that has yielded counts with
 * the least weight, 1. A task in a local DSQ counts from when it runs. (local_load has the weights
 * of those that enqueue() inserted there while another task ran, for virtual time.)
 */
#pragma once

enum { MAX_PULL_CHECKS = 8 }; /* waiting tasks of a queue that are checked for one that may move */

static u64 pinned_queue(s32 cpu)
{
	return PINNED_QUEUES + cpu;
}

/*
 * Count @p as waiting for @cpu, whose rq lock is held. Return its queue; the kernel inserts it
 * there when enqueue() returns. A task that is queued again before it ran (its affinity was set, a
 * higher class took the CPU) has waited since the first time.
 */
static u64 queue_add(const struct task_struct *p, struct task_ctx *tctx, s32 cpu,
		     struct cpu_ctx *cctx, u64 now)
{
	bool migratable = is_migratable(p);
	u64 before;

	if (!waits_already(tctx))
		tctx->enqueued_at = now;
	tctx->resumes = false;
	tctx->queued_cpu = cpu;
	tctx->queued_weight = tctx->yielded ? 1 : task_weight(tctx);
	/*
	 *	this CPU                      a thief, clear_overload_of()
	 *	add to queued_load            clear the overload bit
	 *	full barrier (value used)     full barrier
	 *	read the overload bit         read queued_load
	 */
	if (p->se.custom_slice)
		cctx->queued_slice = min(cctx->queued_slice, tctx->slice);
	before = __sync_fetch_and_add(&cctx->queued_load, tctx->queued_weight);
	barrier_var(before);
	cctx->queued |= migratable ? QUEUED_MOVABLE : QUEUED_PINNED;
	return migratable ? cpu : pinned_queue(cpu);
}

/*
 * Count a task that enqueue() inserts into the local DSQ of @cpu while another one runs, with this
 * @weight, not 0. The rq lock is held.
 */
static void local_add(struct task_ctx *tctx, s32 cpu, struct cpu_ctx *cctx, u32 weight)
{
	tctx->queued_cpu = cpu;
	tctx->local_weight = weight;
	__sync_fetch_and_add(&cctx->local_load, tctx->local_weight);
}

/*
 * Stop counting the task as waiting: it runs, leaves sched_ext, or is queued again. Return true if
 * it was counted, and was the last one in the queues of its CPU. On any CPU.
 */
static bool queue_del(struct task_ctx *tctx)
{
	u32 weight = tctx->queued_weight;

	if (tctx->local_weight) {
		__sync_fetch_and_add(&cpu_ctx(tctx->queued_cpu)->local_load,
				     -(u64)tctx->local_weight);
		tctx->local_weight = 0;
		return false;
	}
	if (!weight)
		return false;
	tctx->queued_weight = 0;
	return __sync_fetch_and_add(&cpu_ctx(tctx->queued_cpu)->queued_load, -(u64)weight) ==
	       weight;
}

static u64 cpu_load(const struct cpu_ctx *cctx)
{
	return READ_ONCE(cctx->queued_load) + READ_ONCE(cctx->curr_weight);
}

/* Return true if a task waits in the local DSQ while current runs. */
static bool is_followed(const struct cpu_ctx *cctx)
{
	return cctx->local_load || cctx->handed_off;
}

/*
 * Return true if the CPU will pick this pinned task next, so that it may go to the local DSQ, from
 * where the kernel takes it without dispatch(). Return false if
 *
 * 1. dispatch() is needed: tasks wait in the queues, work is due, or no tick;
 * 2. a critical task runs: other critical tasks that wake meanwhile come first;
 * 3. the deadline of current may still be first after another slice;
 * 4. the local DSQ has a task: its tasks are in FIFO order, not in the order of deadlines.
 */
static bool is_next(const struct cpu_ctx *cctx, const struct task_ctx *tctx)
{
	return !cctx->queued && !cctx->due && !cctx->curr_critical && !is_tickless(cctx) &&
	       !time_before(cctx->curr_requeued, tctx->deadline) && !is_followed(cctx);
}

/* Return the ns for which the task has been queued; 0 if it is not. */
static u64 wait_time(const struct task_ctx *tctx, u64 now)
{
	s64 wait = tctx->enqueued_at ? now - tctx->enqueued_at : 0;

	return wait > 0 ? wait : 0;
}

/* Return the first task of both queues of @cpu, or NULL, and in *@queue the queue that has it. */
static struct task_struct *first_queued(s32 cpu, const struct cpu_ctx *cctx, u64 *queue)
{
	struct task_struct *p = NULL, *pinned = NULL;

	if (cctx->queued & QUEUED_MOVABLE)
		p = __COMPAT_scx_bpf_dsq_peek(cpu);
	if (cctx->queued & QUEUED_PINNED)
		pinned = __COMPAT_scx_bpf_dsq_peek(pinned_queue(cpu));
	if (pinned && (!p || time_before(pinned->scx.dsq_vtime, p->scx.dsq_vtime))) {
		*queue = pinned_queue(cpu);
		return pinned;
	}
	*queue = cpu;
	return p;
}

/*
 * In enqueue on @cpu: return the key in its queue for a task with the deadline @at, which is @later
 * without credit.
 *
 * 1. A preempted task (@resumes) comes before the tasks that wait already, except critical tasks
 *    and tasks that were preempted before it. The preempted task may hold a lock, for which the
 *    waiting tasks would spin. Its key is 2 before that of the first task.
 * 2. Of a long task that wakes with credit, where a preempted task waits, the key is
 *    min(deadline without credit, key of the preempted task + 1).
 */
__noinline u64 queue_key(s32 cpu, u64 at, u64 later, bool resumes)
{
	u64 queue, first_at;
	struct task_struct *first = first_queued(cpu, cpu_ctx(cpu), &queue);
	struct task_ctx *tctx = first ? task_ctx(first) : NULL;

	if (!tctx || is_critical(first))
		return at;
	first_at = first->scx.dsq_vtime;
	if (!resumes) {
		if (!tctx->resumes || !time_before(at, first_at))
			return at;
		return time_before(later, first_at) ? later : first_at + 1;
	}
	if (time_before(at, first_at))
		return at;
	return tctx->resumes ? first_at : first_at - 2;
}

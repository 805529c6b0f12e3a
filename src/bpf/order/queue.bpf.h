/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The queues of a CPU, ordered by deadline:
 *
 *	DSQ cpu                tasks that may migrate, which other CPUs may take
 *	DSQ pinned_queue(cpu)  tasks that may not; no thief looks here, however many there are
 *	local DSQ              from where the kernel takes tasks without dispatch(), in FIFO order
 *
 * Nothing can be stolen from the local DSQ. So a task waits there only if
 *
 *	it may not migrate, and preempts current, or is next     insert_task()
 *	its CPU was claimed for it, or handed off to it          magpie_select_cpu(), enqueue
 *	it was sent to this CPU, or taken for it                 send(), pull(), take_queued()
 *	the CPU is not present, or the task continues alone      magpie_enqueue(), insert_task()
 *
 * Whether a task waits is written in several places. The DSQs are the truth; the others say when a
 * look there is worth its cost:
 *
 *	queued_load   sum of the weights of the tasks in both queues: added by enqueue(), removed by
 *	              running(), on any CPU, or disable(). The kernel inserts a task only after
 *	              enqueue() has returned, so an empty DSQ does not tell whether one is on its
 *	              way; a queued_load of 0 does
 *	cctx->queued  set with queued_load, cleared by this CPU when it finds a queue empty: 0 means
 *	              that both are
 *	overload bit  QUEUED_MOVABLE for other CPUs; a thief clears it, too (steal/overload.bpf.h)
 *
 * The load of a CPU is queued_load and the weight of current. Tasks that go straight to a local DSQ
 * count from when they run.
 */
#pragma once

enum { MAX_PULL_LOOKS = 8 }; /* waiting tasks of a queue that are checked for one that may move */

static u64 pinned_queue(s32 cpu)
{
	return MAX_CPUS + cpu;
}

/*
 * @p is about to wait in a queue of @cpu, whose rq lock is held: returns which. The kernel inserts
 * it when enqueue() returns. A task that is queued again before it ran (its affinity was set, a
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
	tctx->queued_weight = task_weight(tctx);
	/*
	 * The value makes it a full barrier: pairs with note_all_taken(), which clears the overload
	 * bit and then reads it.
	 */
	before = __sync_fetch_and_add(&cctx->queued_load, tctx->queued_weight);
	barrier_var(before);
	cctx->queued |= migratable ? QUEUED_MOVABLE : QUEUED_PINNED;
	return migratable ? cpu : pinned_queue(cpu);
}

/*
 * The task waits no more, if it did: it runs, leaves sched_ext, or is queued again. Was it the last
 * in the queues of its CPU?
 */
static bool queue_del(struct task_ctx *tctx)
{
	u32 weight = tctx->queued_weight;

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

/*
 * Is @p, which may use @cpu only, next there whatever current does? Then the local DSQ is its
 * queue: no dispatch() has to find it. One task at a time, because those that come later cannot be
 * ordered before it; not while dispatch() is wanted; and not before kernel threads that wake while
 * one runs.
 */
static bool is_next(s32 cpu, const struct cpu_ctx *cctx, const struct task_ctx *tctx)
{
	return !cctx->queued && !cctx->due && !cctx->fifo && !cctx->curr_critical &&
	       !is_tickless(cctx) && !time_before(cctx->curr_requeued, tctx->deadline) &&
	       !scx_bpf_dsq_nr_queued(SCX_DSQ_LOCAL_ON | cpu);
}

/* ns for which the task has been in a queue. */
static u64 wait_time(const struct task_ctx *tctx, u64 now)
{
	s64 wait = tctx->enqueued_at ? now - tctx->enqueued_at : 0;

	return wait > 0 ? wait : 0;
}

/*
 * In tick of @cpu: switch to FIFO mode if one round of the queues, a slice for each task, takes
 * longer than starve_ns, because by their deadlines some tasks would wait for several rounds; until
 * half of the tasks are left. Each task runs until the next tick then. Kernel threads and the
 * loader still come by deadline.
 */
static void update_fifo(s32 cpu, struct cpu_ctx *cctx)
{
	u32 nr = 0;

	if (cctx->queued & QUEUED_MOVABLE)
		nr = scx_bpf_dsq_nr_queued(cpu);
	if (cctx->queued & QUEUED_PINNED)
		nr += scx_bpf_dsq_nr_queued(pinned_queue(cpu));
	cctx->fifo = nr > (cctx->fifo ? tunables.long_queue / 2 : tunables.long_queue);
}

/* The first task of both queues of @cpu, and in @queue which one has it; NULL if both are empty. */
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
 * In enqueue on @cpu: return the key in its queue for a task with the deadline @at.
 *
 * 1. A preempted task (@credit is 0) comes before the tasks that wait already, except critical ones
 *    and tasks that were preempted before it: it may hold a lock, and tasks that run before it
 *    would spin for that. Its key is 2 before the first one's.
 * 2. A long task that wakes with @credit does not use the credit to come before a preempted task:
 *    its key is 1 after that.
 */
__noinline u64 queue_key(s32 cpu, u64 at, u64 credit)
{
	u64 queue, first_at;
	struct task_struct *first = first_queued(cpu, cpu_ctx(cpu), &queue);
	struct task_ctx *tctx = first ? task_ctx(first) : NULL;

	if (!tctx || is_critical(first))
		return at;
	first_at = first->scx.dsq_vtime;
	if (credit)
		return tctx->resumes && time_before(at, first_at)
			       ? at + min(credit, first_at + 1 - at)
			       : at;
	if (tctx->resumes)
		return first_at;
	return time_before(at, first_at) ? at : first_at - 2;
}

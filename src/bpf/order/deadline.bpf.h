/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The order of tasks on a CPU: the one with the earliest virtual deadline runs next.
 *
 * A task's vruntime grows by the time that it ran, times 1024, over its weight (task_weight() of
 * cgroup/weight.bpf.h). Each CPU has a virtual time, vclock, that follows the vruntime of what it
 * runs. The lag of a task is the distance between both:
 *
 *	   positive lag              negative lag
 *	-------|-----------|--------------|--------> virtual time of the CPU
 *	   vruntime      vclock        vruntime
 *	  (waited)                     (just ran)
 *
 * Two things are known of a task:
 *
 *	short  it sleeps before it has run for a quarter of a slice: by its last bursts, and by the
 *	       present one
 *	sync   its waker sent it something: WF_SYNC (pipes, sockets), a kernel lock, fork; or the
 *	       waker ran on the only CPU that the task may use. Otherwise a timer, a device or a
 *	       futex woke it
 *
 *	deadline = vruntime + request - credit - lead
 *
 *	request  a slice of the task; nothing if it is short
 *	credit   --slice-us-lag, unless the wakeup was sync, until the task has run for a slice: it
 *	         did not choose its moment, while a reader of a pipe finds more to read when it
 *	         runs later. Nothing for a task whose negative lag is more than three
 *	         slices: of low weight, it would always come first
 *	lead     a negative lag of a slice of nice 0 at most, until the task has run for a slice:
 *	         tasks of a kind run in the order in which they came, because any other order keeps
 *	         the last one waiting for longer
 *
 * place() computes it when the task wakes or is queued again, and set_deadline() at a tick and when
 * a slice ends. The queue is ordered by what is stored, a waker compares the wakee's with current's
 * (preempt.bpf.h), and a CPU whose slice is over current's with that of the first task of its queue
 * (pick.bpf.h).
 *
 * A task that is preempted before its slice is over keeps its deadline and the rest of its slice,
 * and comes before the tasks that wait already (queue.bpf.h). Once the slice is used up its
 * deadline is computed again.
 *
 * When a task comes to another CPU, rebase() keeps its lag. No virtual time is shared, and none has
 * two writers.
 */
#pragma once

enum {
	/* beyond a slice that a waiting task may be ahead: it overran by two ticks at HZ=100 */
	OVERRUN_NS = 20000000,
	/* slices that a task with credit may be ahead: two by place(), and one that it ran for */
	CREDIT_LEAD = 3,
	SHORT_SHARE = 4,	/* of a slice that a short task runs for at most */
	FIFO_SLICE_NS = 100000, /* until the next tick */
};

/* So far before a CPU's virtual time that no deadline is earlier. */
#define FIRST_NS (1ULL << 60)

/* Virtual time that a task of this task_weight() spends in ns of CPU time, up to nine hours. */
static u64 to_vtime(u64 ns, u32 weight)
{
	return weight == WEIGHT_DFL << WEIGHT_SHIFT ? ns
						    : ns * (WEIGHT_DFL << WEIGHT_SHIFT) / weight;
}

/* The same of a slice, which is divided again only when the weight or --slice-us has changed. */
static u64 vslice(struct task_ctx *tctx, u32 weight)
{
	u64 slice = tunables.slice_ns;

	if (weight == WEIGHT_DFL << WEIGHT_SHIFT)
		return slice;
	if (tctx->vslice_weight != weight || tctx->vslice_ns != slice) {
		tctx->vslice_weight = weight;
		tctx->vslice_ns = slice;
		tctx->vslice = to_vtime(slice, weight);
	}
	return tctx->vslice;
}

/* ns of CPU time since the task slept. */
static u64 burst(const struct task_ctx *tctx)
{
	return tctx->charged - tctx->woke_exec;
}

static bool is_short(const struct task_ctx *tctx)
{
	u64 limit = tunables.slice_ns / SHORT_SHARE;

	return tctx->burst_est < limit && burst(tctx) < limit;
}

/*
 * Did it wait for a kernel lock: TASK_UNINTERRUPTIBLE, and not for I/O? (Not called p: the macro
 * has a p of its own.)
 */
static bool waited_for_lock(const struct task_struct *woken)
{
	return BPF_CORE_READ_BITFIELD(woken, sched_contributes_to_load) &&
	       !BPF_CORE_READ_BITFIELD(woken, in_iowait);
}

/* @p wakes up, by a wakeup with @wake_flags. */
static __always_inline void note_wakeup(const struct task_struct *p, struct task_ctx *tctx,
					u64 wake_flags)
{
	tctx->sync_wakeup = (wake_flags & (SCX_WAKE_TTWU | SCX_WAKE_SYNC)) != SCX_WAKE_TTWU ||
			    waited_for_lock(p);
	tctx->charged = tctx->woke_exec = p->se.sum_exec_runtime;
}

/*
 * Wakeups that select_cpu() has not seen: of tasks that may use one CPU only, and those that are
 * queued for a task that was still about to sleep there. Not by an interrupt nor by a futex they
 * are sync: most others send the task something. (Which those are, SCX_ENQ_CPU_SELECTED does not
 * tell: queued wakeups lose it on their way.)
 */
static void note_unseen_wakeup(struct task_struct *p, struct task_ctx *tctx)
{
	if (!is_migratable(p) || tctx->woke_exec != p->se.sum_exec_runtime)
		note_wakeup(p, tctx,
			    SCX_WAKE_TTWU | (in_interrupt() || in_futex() ? 0 : SCX_WAKE_SYNC));
}

/* The task stops to sleep. It is short if all its last bursts were. */
static void note_sleep(struct task_ctx *tctx)
{
	tctx->burst_est = peak(tctx->burst_est, burst(tctx));
}

/* By the rule above. @p is on the virtual time of the CPU of @cctx. */
static __always_inline void set_deadline(const struct task_struct *p, struct task_ctx *tctx,
					 const struct cpu_ctx *cctx)
{
	u32 weight = task_weight(tctx);
	u64 slice = vslice(tctx, weight), at = tctx->vruntime;
	s64 lead = at - cctx->vclock, max_lead = min(slice, tunables.slice_ns);

	if (!is_short(tctx))
		at += slice;
	tctx->has_credit = false;
	if (burst(tctx) < tunables.slice_ns) {
		if (!tctx->sync_wakeup && lead <= CREDIT_LEAD * max_lead &&
		    !never_preempts(p, tctx)) {
			tctx->has_credit = true;
			at -= to_vtime(tunables.credit_ns, weight);
		}
		if (lead > 0 && lead <= max_lead)
			at -= lead;
	}
	tctx->deadline = at;
}

/* Brings the vruntime of a task that ran up to date. The kernel has updated sum_exec_runtime. */
static __always_inline void charge(struct task_struct *p, struct task_ctx *tctx)
{
	u64 sum_exec = p->se.sum_exec_runtime, ran = sum_exec - tctx->charged;

	/*
	 * Before the look at the share: what it ran for until now is not charged to a cpu.max that
	 * is new.
	 */
	if (is_limited(tctx))
		charge_groups(scx_bpf_task_cpu(p), tctx->group, ran);
	if (tctx->group)
		update_share(tctx); /* may scale vruntime again */
	tctx->vruntime += to_vtime(ran, task_weight(tctx));
	tctx->charged = sum_exec;
}

/* Has it not run since it was put into the queue of a CPU? */
static bool waits_already(const struct task_ctx *tctx)
{
	return tctx->enqueued_at && tctx->queued_cpu >= 0;
}

/* @p, of this @weight, runs: what tasks that would preempt it go by. */
static void note_current(struct task_ctx *tctx, struct cpu_ctx *cctx, u32 weight)
{
	cctx->curr_deadline = tctx->deadline;
	cctx->curr_requeued = tctx->deadline + vslice(tctx, weight);
}

/*
 * @p starts to run, or begins another slice. Advance the CPU's virtual time to the task's vruntime,
 * capped at its deadline. Do not advance it for tasks that come out of turn (not @in_turn: stolen,
 * placed directly while others wait; or critical): those that wait would lose lag.
 */
static __always_inline void note_running(const struct task_struct *p, struct task_ctx *tctx,
					 struct cpu_ctx *cctx, u64 slice, bool in_turn)
{
	u64 at = time_before(tctx->deadline, tctx->vruntime) ? tctx->deadline : tctx->vruntime;
	u32 weight = task_weight(tctx);
	bool critical = is_critical(p);

	if (in_turn && time_before(cctx->vclock, at) && !critical &&
	    !scx_bpf_dsq_nr_queued(SCX_DSQ_LOCAL_ON | scx_bpf_task_cpu(p)))
		cctx->vclock = at;
	note_current(tctx, cctx, weight);
	cctx->curr_started = ran_until(p, cctx);
	cctx->curr_left = tctx->burst_est - burst(tctx);
	cctx->curr_critical = critical;
	cctx->taken = false;
	cctx->curr_resumes = tctx->resumes;
	tctx->resumes = false;
	cctx->curr_idle_policy = is_idle_policy(p, tctx);
	cctx->curr_weight = weight;
	tctx->slice_end = tctx->charged + slice;
}

/* sched_yield(): the task gives up its lag and a slice, and its lead counts. */
static void yield_turn(struct task_ctx *tctx, const struct cpu_ctx *cctx)
{
	u64 ahead = cctx->vclock + vslice(tctx, task_weight(tctx)) + 1;

	tctx->sync_wakeup = true;
	if (time_before(tctx->vruntime, ahead))
		tctx->vruntime = ahead;
}

/* Put the task on the virtual time of @cpu. A new task starts with no lag. */
static void rebase(struct task_ctx *tctx, s32 cpu)
{
	u64 distance;

	if (tctx->vclock_cpu == cpu)
		return;
	if (tctx->vclock_cpu < 0) {
		distance = cpu_ctx(cpu)->vclock - tctx->vruntime;
	} else {
		distance = cpu_ctx(cpu)->vclock - cpu_ctx(tctx->vclock_cpu)->vclock;
		tctx->recent = tctx->vclock_cpu;
	}
	tctx->vruntime += distance;
	tctx->deadline += distance;
	tctx->vclock_cpu = cpu;
}

/*
 * @p is about to wait for @cpu, or to run there: bound its lag, and compute its deadline.
 *
 * 1. If it slept or was throttled (@woke), it has no positive lag, and a negative one of two slices
 *    at most, as EEVDF bounds lag.
 * 2. Otherwise its negative lag is bounded so that one long stint (no tick, a virtual CPU that
 *    stood still) does not shut it out for as long times the number of tasks that wait.
 */
static __always_inline void place(const struct task_struct *p, struct task_ctx *tctx, s32 cpu,
				  bool woke)
{
	const struct cpu_ctx *cctx = cpu_ctx(cpu);
	u64 latest;
	u32 weight;

	group_enter(p, tctx);
	rebase(tctx, cpu);
	weight = task_weight(tctx);
	latest = cctx->vclock + vslice(tctx, weight) +
		 (woke ? vslice(tctx, weight) : to_vtime(OVERRUN_NS, weight));
	if (woke && time_before(tctx->vruntime, cctx->vclock))
		tctx->vruntime = cctx->vclock;
	else if (time_before(latest, tctx->vruntime))
		tctx->vruntime = latest;
	set_deadline(p, tctx, cctx);
}

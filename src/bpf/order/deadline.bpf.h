/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The order of tasks on a CPU: the task with the earliest virtual deadline runs next.
 *
 * The vruntime of a task grows by its run time, times 1024, over its weight (task_weight() of
 * cgroup/weight.bpf.h). The virtual time of a CPU, vtime, is a clock of service: while a task of
 * sched_ext runs there for dt, whichever it is,
 *
 *	vtime += dt * 1024 / (sum of the weights of all tasks that are runnable on the CPU)
 *
 * So would the vruntime of each of them grow if all ran at the same time, each on its weight's part
 * of the CPU (the fluid system). The lag of a task is the virtual time of its CPU minus its
 * vruntime: the service that it lacks.
 *
 *	   positive lag              negative lag
 *	-------|-----------|--------------|--------> virtual time of the CPU
 *	   vruntime      vtime        vruntime
 *	  (waited)                     (just ran)
 *
 * Invariants, which sim/src/checks/service.rs checks in a model of its own:
 *
 * 1. vtime never goes back. It stands still only while no task of sched_ext runs, or a critical
 *    one, which does not wait for its turn.
 * 2. A task that wakes, or is new, has vruntime = vtime, or a little before (kept_lag()). So no
 *    task starts before time that others have waited, however often it forks, sleeps or moves.
 * 3. Therefore a task that stays runnable on a CPU has its weight's part of 15/16 of the CPU's
 *    time, less at most 5 slices, OVERRUN_NS, and the credit (times its weight over 1024, if that
 *    is more).
 *
 * A task that runs at once and sleeps again would be runnable for longer in the fluid system. So
 * vtime is ahead of the fluid system's by what the task was ahead when it slept, and the lag of the
 * other tasks grows. EEVDF keeps such a task in its queue until its lag is 0. Here vtime makes up
 * for what short tasks with credit were ahead (cctx->ahead) by being slower, but by no more than a
 * sixteenth. So light tasks that use a twentieth of a CPU never wait for slices, and a pool of a
 * hundred threads that take turns starves nobody.
 *
 * Who writes vtime: only the CPU's own callbacks, with its rq lock held.
 *
 *	charge()       stopping, tick, dispatch: by the time that current has run
 *	advance_to()   enqueue: before a task joins those that share the time
 *
 * What vtime does not see: a task to which a CPU is handed off, or for which an idle one was
 * claimed, for some us; and that a thief takes a task, until the thief runs it. The error is at
 * most a slice. A current that is alone has no negative lag, because nobody lost what it had. A
 * task keeps its lag when it moves (rebase()), and when its weight changes (reweight(), as CPU
 * time). A throttled task is as one that sleeps, and so is one that has yielded, until it runs.
 *
 * Two properties of a task determine the terms of its deadline:
 *
 *	short  the task ran for less than a quarter of a slice in each of its last bursts between
 *	       two sleeps, and in the present burst so far
 *	sync   the waker sent the task something (WF_SYNC: pipes, sockets), released a kernel lock,
 *	       or forked it; or the kernel skipped select_cpu(), and neither an interrupt nor a
 *	       futex woke the task. Any other wakeup comes from a timer, a device or a futex
 *
 *	deadline = vruntime + request - credit
 *
 *	request  a slice of the task: --slice-us, or what its program has asked for
 *	         (sched_attr.sched_runtime); 0 if the task is short. A short task of less weight
 *	         than nice 0 requests a quarter of what its slice is longer in virtual time than
 *	         that of nice 0: else a thousand of them would each come before a heavier one
 *	credit   --slice-us-lag, until the task has run for a slice, because the task did not
 *	         choose the moment of its wakeup. 0 after a sync wakeup, because a reader of a
 *	         pipe finds more to read when it runs later. 0 for SCHED_BATCH, SCHED_IDLE and
 *	         cpu.idle. 0 while tasks with credit have passed others for a slice (cctx->lent)
 *
 * Tasks with credit run before others, together for a slice. Then a task that they passed, and that
 * lacks service, returns with each ns that it runs a ns to be lent again; a CPU that idles has lent
 * nothing. So a program that draws frames is on time alongside a pool of threads that wake each
 * other, whatever --slice-us-lag is.
 *
 * place() computes the deadline when the task wakes or is queued again. set_deadline() computes it
 * again at a tick and when a slice ends. All comparisons use the stored deadline: of the tasks in
 * the queue, of a wakee with current (preempt.bpf.h), and of current, when its slice is over, with
 * the first task of the queue (pick.bpf.h).
 *
 * A task that is preempted before its slice is over keeps its deadline and the rest of its slice,
 * and comes before the tasks that wait already (queue.bpf.h).
 */
#pragma once

enum {
	/* a task queued again keeps at most a slice plus this of lag: 2 ticks at HZ=100 */
	OVERRUN_NS = 20000000,
	SHORT_SHARE = 4,    /* a short task runs for less than a slice / SHORT_SHARE */
	FORGIVEN_PART = 16, /* virtual time is slower by up to 1 / FORGIVEN_PART */
};

/* All deadlines are closer than this to a CPU's virtual time. */
#define FIRST_NS (1ULL << 60)

/* The task_weight() of nice 0 outside of cgroups. */
#define NICE_0_SHIFT (10 + WEIGHT_SHIFT)
#define NICE_0	     (WEIGHT_DFL << WEIGHT_SHIFT)

/* Return the weights of the tasks that wait on the CPU; see queue.bpf.h. */
static u64 waiting_load(const struct cpu_ctx *cctx)
{
	return READ_ONCE(cctx->queued_load) + READ_ONCE(cctx->local_load);
}

/* Convert ns of CPU time, up to nine hours, to virtual time, by the weight of one or more tasks. */
static u64 to_vtime(u64 ns, u64 weight)
{
	return weight == NICE_0 ? ns : ns * NICE_0 / weight;
}

/* Return the slice of @p, ns: what its program asked for (sched_attr.sched_runtime), or ours. */
static u64 slice_of(const struct task_struct *p)
{
	return p->se.custom_slice ? p->se.slice : tunables.slice_ns;
}

/* Note the slice of the task. A longer one than ours makes no task short. */
static void set_slice(struct task_ctx *tctx, u64 slice)
{
	tctx->slice = slice;
	tctx->short_ns = min(slice, tunables.slice_ns) / SHORT_SHARE;
	tctx->vslice_weight = 0;
}

/* A program may ask for another slice at any time. */
static void update_slice(const struct task_struct *p, struct task_ctx *tctx)
{
	u64 slice = slice_of(p);

	if (tctx->slice != slice)
		set_slice(tctx, slice);
}

/* Return a slice of the task in virtual time. Divide again only if slice or weight has changed. */
static u64 vslice(struct task_ctx *tctx, u32 weight)
{
	if (weight == NICE_0)
		return tctx->slice;
	if (tctx->vslice_weight != weight) {
		tctx->vslice_weight = weight;
		tctx->vslice = to_vtime(tctx->slice, weight);
	}
	return tctx->vslice;
}

/*
 * Return the credit in virtual time, of a task of this @weight: that of nice 0 if it is lighter,
 * and more if all tasks of the CPU together are lighter, because virtual time is faster then.
 */
static u64 credit_of(const struct cpu_ctx *cctx, u32 weight)
{
	u64 load = waiting_load(cctx) + cctx->curr_weight;

	if (load && load < NICE_0)
		return tunables.credit_ns * NICE_0 / load;
	return to_vtime(tunables.credit_ns, max(weight, NICE_0));
}

/* Return the ns of CPU time that the task has used since it last woke. */
static u64 burst(const struct task_ctx *tctx)
{
	return tctx->charged - tctx->woke_exec;
}

static bool is_short(const struct task_ctx *tctx)
{
	return tctx->burst_est < tctx->short_ns && burst(tctx) < tctx->short_ns;
}

/*
 * Return true if the task waited for a kernel lock: TASK_UNINTERRUPTIBLE, and not for I/O. (The
 * parameter is not named p, because the macro has a p of its own.)
 */
static bool waited_for_lock(const struct task_struct *woken)
{
	return BPF_CORE_READ_BITFIELD(woken, sched_contributes_to_load) &&
	       !BPF_CORE_READ_BITFIELD(woken, in_iowait);
}

/* In select_cpu, or in enqueue with the rq lock held: note a wakeup of @p with @wake_flags. */
static __always_inline void begin_burst(const struct task_struct *p, struct task_ctx *tctx,
					u64 wake_flags)
{
	tctx->sync_wakeup = (wake_flags & (SCX_WAKE_TTWU | SCX_WAKE_SYNC)) != SCX_WAKE_TTWU ||
			    waited_for_lock(p);
	tctx->charged = tctx->woke_exec = p->se.sum_exec_runtime;
}

/* In enqueue on this CPU: return true if a timer, a device or a futex wakes a task. */
static bool is_unasked(void)
{
	return in_interrupt() ? !in_queued_wakeup() : in_futex();
}

/*
 * In enqueue: note a wakeup for which the kernel has skipped select_cpu(): @p is pinned, or another
 * CPU queued the wakeup while @p was about to sleep. (SCX_ENQ_CPU_SELECTED does not say whether the
 * kernel called select_cpu(), because queued wakeups lose this flag.) Unless an interrupt of
 * this CPU or a futex woke @p, the wakeup counts as sync, because most other wakers send the task
 * something.
 */
static void begin_unseen_burst(struct task_struct *p, struct task_ctx *tctx)
{
	if (!is_migratable(p) || tctx->woke_exec != p->se.sum_exec_runtime)
		begin_burst(p, tctx, SCX_WAKE_TTWU | (is_unasked() ? 0 : SCX_WAKE_SYNC));
}

/*
 * In stopping of a task that sleeps on the CPU of @cctx: update the estimate that says whether the
 * task is short, and keep the lag. The tasks that wait there have lost what it is ahead.
 */
static void end_burst(struct task_ctx *tctx, struct cpu_ctx *cctx)
{
	tctx->burst_est = peak(tctx->burst_est, burst(tctx));
	tctx->lag = cctx->vtime - tctx->vruntime;
	if (!tctx->sync_wakeup && is_short(tctx) && waiting_load(cctx))
		cctx->ahead -= tctx->lag * task_weight(tctx) >> NICE_0_SHIFT;
}

/* Return the request of the task, of this @weight, in virtual time. See the head of this file. */
static u64 request(struct task_ctx *tctx, u32 weight)
{
	if (!is_short(tctx))
		return vslice(tctx, weight);
	return weight < NICE_0 ? (vslice(tctx, weight) - tctx->slice) / SHORT_SHARE : 0;
}

/* Compute the deadline as at the head of this file. @p is on the virtual time of @cctx's CPU. */
static __always_inline void set_deadline(const struct task_struct *p, struct task_ctx *tctx,
					 const struct cpu_ctx *cctx)
{
	u32 weight = task_weight(tctx);
	u64 at;

	update_slice(p, tctx);
	at = tctx->vruntime + request(tctx, weight);
	tctx->is_new =
		!tctx->sync_wakeup && burst(tctx) < tunables.slice_ns && !never_preempts(p, tctx);
	tctx->has_credit = tctx->is_new && cctx->lent < tunables.slice_ns;
	if (tctx->has_credit)
		at -= credit_of(cctx, weight);
	tctx->deadline = at;
}

/*
 * Advance the CPU's virtual time by @ns, in which it served all tasks that are runnable there:
 * current, of this @weight, and the tasks that wait, of the load @waiting.
 */
static void advance_vtime(struct cpu_ctx *cctx, u64 ns, u64 weight, u64 waiting)
{
	if (cctx->ahead > 0) {
		u64 forgiven = min((s64)(ns / FORGIVEN_PART), cctx->ahead);

		cctx->ahead -= forgiven;
		ns -= forgiven;
	}
	cctx->vtime += to_vtime(ns, waiting + weight);
	if (waiting && cctx->curr_has_credit)
		cctx->lent = min(cctx->lent + ns, tunables.slice_ns);
}

/*
 * In enqueue on the CPU of @cctx, whose rq lock is held: advance its virtual time to @now, before a
 * task joins those that it serves. charge() corrects it by the time that current has really run.
 */
static void advance_to(struct cpu_ctx *cctx, u64 now)
{
	s64 ran = now - cctx->advanced_at;

	if (!cctx->curr_weight || cctx->curr_critical || ran <= 0)
		return;
	cctx->advanced_at = now;
	cctx->advanced += ran;
	advance_vtime(cctx, ran, cctx->curr_weight, waiting_load(cctx));
}

/*
 * Charge current of the CPU of @cctx for its run time since the last call, and advance the CPU's
 * virtual time by it. sum_exec_runtime is up to date; the rq lock is held.
 */
static __always_inline void charge(struct task_struct *p, struct task_ctx *tctx,
				   struct cpu_ctx *cctx)
{
	u64 sum_exec = p->se.sum_exec_runtime, ran = sum_exec - tctx->charged;
	u64 waiting = waiting_load(cctx);
	s64 rest = ran - cctx->advanced;
	u32 weight;

	cctx->advanced_at = ran_until(p, cctx);
	/* Before update_share(), which may find a new cpu.max: do not charge earlier time to it. */
	if (is_limited(tctx))
		charge_groups(scx_bpf_task_cpu(p), tctx->group, ran);
	if (tctx->group)
		update_share(tctx, cctx->advanced_at); /* may scale vruntime */
	weight = task_weight(tctx);
	tctx->charged = sum_exec;
	tctx->vruntime += to_vtime(ran, weight);

	if (cctx->curr_critical)
		return;
	cctx->advanced = rest > 0 ? 0 : -rest;
	if (rest > 0)
		advance_vtime(cctx, rest, weight, waiting);
	/* Alone, current has no negative lag. */
	if (!waiting) {
		cctx->ahead = 0;
		if (time_before(cctx->vtime, tctx->vruntime))
			cctx->vtime = tctx->vruntime;
	}
	if (cctx->lent && (!waiting || (!tctx->is_new && time_before(tctx->vruntime, cctx->vtime))))
		cctx->lent -= min(cctx->lent, ran);
}

/* Return true if the task was queued, and has not run since. */
static bool waits_already(const struct task_ctx *tctx)
{
	return tctx->enqueued_at && tctx->queued_cpu >= 0;
}

/* Publish the deadline of current, of this @weight, for wakers (preempts(), is_next()). */
static void publish_current(struct task_ctx *tctx, struct cpu_ctx *cctx, u32 weight)
{
	cctx->curr_deadline = tctx->deadline;
	cctx->curr_has_credit = tctx->has_credit;
	cctx->curr_requeued = tctx->deadline + vslice(tctx, weight);
	cctx->curr_slice = tctx->slice;
}

/* In running and dispatch: @p starts to run, or begins another @slice. */
static __always_inline void begin_run(const struct task_struct *p, struct task_ctx *tctx,
				      struct cpu_ctx *cctx, u64 slice)
{
	u32 weight = task_weight(tctx);

	publish_current(tctx, cctx, weight);
	cctx->curr_started = cctx->advanced_at = ran_until(p, cctx);
	cctx->curr_left = tctx->burst_est - burst(tctx);
	cctx->curr_critical = is_critical(p);
	cctx->released = false;
	cctx->curr_resumes = tctx->resumes;
	tctx->resumes = false;
	tctx->yielded = false;
	cctx->curr_idle_policy = is_idle_policy(p, tctx);
	cctx->curr_weight = weight;
	tctx->slice_end = tctx->charged + slice;
}

/*
 * In yield: give up the credit, and raise the negative lag to at least a slice and 1 ns, so that
 * tasks without lag run first. Until the task runs again, virtual time serves the other tasks only:
 * what the task gives up is theirs, and they do not owe it.
 */
static void yield_turn(struct task_ctx *tctx, const struct cpu_ctx *cctx)
{
	u64 earliest = cctx->vtime + vslice(tctx, task_weight(tctx)) + 1;

	tctx->sync_wakeup = true;
	tctx->yielded = true;
	if (time_before(tctx->vruntime, earliest))
		tctx->vruntime = earliest;
}

/* Move the task to the virtual time of @cpu. It keeps its lag; a new task has none. */
static void rebase(struct task_ctx *tctx, s32 cpu)
{
	u64 distance;

	if (tctx->vtime_cpu == cpu)
		return;
	if (tctx->vtime_cpu < 0) {
		distance = cpu_ctx(cpu)->vtime - tctx->vruntime;
	} else {
		distance = cpu_ctx(cpu)->vtime - cpu_ctx(tctx->vtime_cpu)->vtime;
		tctx->recent = tctx->vtime_cpu;
	}
	tctx->vruntime += distance;
	tctx->deadline += distance;
	tctx->vtime_cpu = cpu;
}

/*
 * Return the positive lag that the task keeps over a sleep: none, except a short task of less
 * weight than nice 0, of which each run would else take less than its request.
 */
static __always_inline u64 kept_lag(const struct task_struct *p, struct task_ctx *tctx)
{
	u32 weight = task_weight(tctx);

	if (weight >= NICE_0 || tctx->lag <= 0)
		return 0;
	update_slice(p, tctx);
	if (!is_short(tctx))
		return 0;
	return min((u64)tctx->lag, request(tctx, weight));
}

/*
 * Bound the lag of @p, which is about to wait for @cpu or to run there, and compute its deadline.
 *
 * 1. If it slept or was throttled (@woke), it has no lag, except kept_lag().
 * 2. Otherwise its negative lag is at most a slice plus OVERRUN_NS. Without that bound a task that
 *    ran for long (no tick, a stopped virtual CPU) would wait until each other task had run for as
 *    long. Its positive lag is bounded by invariant 3; a task that runs only when no other wants to
 *    has none.
 */
static __always_inline void place(const struct task_struct *p, struct task_ctx *tctx, s32 cpu,
				  bool woke)
{
	const struct cpu_ctx *cctx = cpu_ctx(cpu);
	u64 most;

	group_enter(p, tctx);
	rebase(tctx, cpu);
	if (woke) {
		tctx->vruntime = cctx->vtime - kept_lag(p, tctx);
	} else {
		most = cctx->vtime + to_vtime(tctx->slice + OVERRUN_NS, task_weight(tctx));
		if (time_before(most, tctx->vruntime))
			tctx->vruntime = most;
		else if (is_idle_policy(p, tctx) && time_before(tctx->vruntime, cctx->vtime))
			tctx->vruntime = cctx->vtime;
	}
	set_deadline(p, tctx, cctx);
}

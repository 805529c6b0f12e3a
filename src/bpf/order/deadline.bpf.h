/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Which task runs next on a CPU: the one with the earliest virtual deadline.
 *
 * A task's vruntime grows by the time that it ran, times 100, over its weight (task_weight() of cgroup/weight.bpf.h). Each
 * CPU has a clock, vclock, that follows the vruntime of what it runs. What counts is the distance between the two:
 *
 *	     owed                       ahead
 *	-------|-----------|--------------|--------> virtual time of the CPU
 *	   vruntime      vclock        vruntime
 *	  (waited)                     (just ran)
 *
 * Two things are known of a task:
 *
 *	short  it sleeps before it has run for a quarter of a slice: its last bursts say so, and the present one, too
 *	sync   it was woken by a wakeup by which it was sent something: WF_SYNC (pipes, sockets), a kernel lock, fork.
 *	       Otherwise a timer, a device or a futex woke it
 *
 *	deadline = vruntime + (request - credit) / weight
 *
 * The request is a slice, and nothing for a short task. The credit (--slice-us-lag) is for wakeups that are not sync, until
 * the task has run for a slice: it did not choose its moment, while a reader of a pipe finds more to read when it comes later.
 * A light task that is ahead by far has none: its credit reaches as far, so it would always come first.
 * In the queue a small lead, of a slice of nice 0 at most, counts for nothing until the task has run for one: tasks of a kind
 * run in the order in which they came, for no other order keeps the last one waiting for less.
 *
 * Wakeup preemption (preempt.bpf.h): a sync wakeup never preempts. Otherwise the wakee preempts current if its deadline is
 * first, and current
 *	- was woken by a sync wakeup, or
 *	- is not short, while the wakee is, or
 *	- has run for a slice.
 * A running task whose slice is over keeps the CPU while its deadline is before the first one of the queue (pick.bpf.h).
 *
 * When a task goes to another CPU, rebase() keeps its distance to the clock. No clock is shared, and none has two writers.
 */
#pragma once

enum {
	OVERRUN_NS = 20000000, /* beyond a slice that a waiting task may be ahead: it overran by two ticks at HZ=100 */
	CREDIT_LEAD =
		3, /* slices that a task with credit may be ahead: place() leaves it two, and it may run for one */
	SHORT_SHARE = 4,	      /* of a slice that a short task runs for at most */
	LONG_QUEUE_SLICE_NS = 100000, /* until the next tick */
	BURST_SHIFT = 2,	      /* the estimate of bursts falls by a quarter of the distance at each sleep */
};

static bool vtime_before(u64 a, u64 b)
{
	return (s64)(a - b) < 0;
}

/* Virtual time that a task of this task_weight() spends in ns of CPU time, up to half a day. */
static u64 to_vtime(u64 ns, u32 weight)
{
	return ns * (WEIGHT_DFL << WEIGHT_SHIFT) / weight;
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
 * @woken wakes up, by a wakeup with @wake_flags. One that waited for a kernel lock was TASK_UNINTERRUPTIBLE, and not for I/O.
 * (It is not called p: the macro has a p of its own.)
 */
static void note_wakeup(const struct task_struct *woken, struct task_ctx *tctx, u64 wake_flags)
{
	bool waited_for_lock =
		BPF_CORE_READ_BITFIELD(woken, sched_contributes_to_load) && !BPF_CORE_READ_BITFIELD(woken, in_iowait);

	tctx->sync_wakeup = waited_for_lock || (wake_flags & (SCX_WAKE_TTWU | SCX_WAKE_SYNC)) != SCX_WAKE_TTWU;
	tctx->charged = tctx->woke_exec = woken->se.sum_exec_runtime;
}

/* The task stops to sleep. Its estimate rises at once, and falls slowly: a task is short if all its last bursts were. */
static void note_sleep(struct task_ctx *tctx)
{
	u64 ns = burst(tctx);

	if (ns >= tctx->burst_est)
		tctx->burst_est = ns;
	else
		tctx->burst_est -= (tctx->burst_est - ns) >> BURST_SHIFT;
}

/*
 * Has it run for so many slices more than its share, by the clock of its CPU? The slices are its own, or those of nice 0: a light
 * task's own takes far more of the clock.
 */
static bool is_ahead(const struct task_struct *p, struct task_ctx *tctx, u32 nr_slices)
{
	s64 ahead = tctx->vclock_cpu < 0 ? 0 : tctx->vruntime - cpu_ctx(tctx->vclock_cpu)->vclock;
	u64 slice = to_vtime(tunables.slice_ns, task_weight(p, tctx));

	if (slice > tunables.slice_ns)
		slice = tunables.slice_ns;
	return ahead > (s64)(nr_slices * slice);
}

static bool has_credit(const struct task_struct *p, struct task_ctx *tctx)
{
	return !tctx->sync_wakeup && burst(tctx) < tunables.slice_ns && !never_preempts(p, tctx) &&
	       !is_ahead(p, tctx, CREDIT_LEAD);
}

static u64 deadline(const struct task_struct *p, struct task_ctx *tctx)
{
	u32 weight = task_weight(p, tctx);
	u64 at = tctx->vruntime;

	if (!is_short(tctx))
		at += to_vtime(tunables.slice_ns, weight);
	if (has_credit(p, tctx))
		at -= to_vtime(tunables.credit_ns, weight);
	return at;
}

/* Brings the vruntime of a task that ran up to date. The kernel has updated sum_exec_runtime. */
static void charge(struct task_struct *p, struct task_ctx *tctx)
{
	u64 sum_exec = p->se.sum_exec_runtime, ran = sum_exec - tctx->charged;

	update_share(p, tctx); /* may scale vruntime anew */
	tctx->vruntime += to_vtime(ran, task_weight(p, tctx));
	if (is_limited(tctx))
		charge_groups(scx_bpf_task_cpu(p), tctx->group, ran);
	tctx->charged = sum_exec;
}

/* Has it not run since it was put into the queue of a CPU? */
static bool waits_already(const struct task_ctx *tctx)
{
	return tctx->enqueued_at && tctx->queued_cpu >= 0;
}

/* @p runs: what tasks that would preempt it go by. */
static void note_current(const struct task_struct *p, struct task_ctx *tctx, struct cpu_ctx *cctx)
{
	cctx->curr_deadline = deadline(p, tctx);
	cctx->curr_short = is_short(tctx);
	cctx->curr_sync = tctx->sync_wakeup;
	cctx->curr_idle_policy = is_idle_policy(p, tctx);
}

/*
 * @p starts to run, or begins another slice: the clock of @cpu follows it. Not further than the deadline that brought it here,
 * which may be before its vruntime, by far for a light task, and not if it comes out of its turn, from another CPU's queue,
 * straight from its wakeup while others wait (@goes_on: it ran before), or because it is critical: the clock would leave behind
 * those that wait their turn.
 */
static void note_running(const struct task_struct *p, struct task_ctx *tctx, s32 cpu, struct cpu_ctx *cctx,
			 bool goes_on)
{
	bool was_queued = waits_already(tctx);
	bool in_turn = was_queued ? tctx->queued_cpu == cpu : goes_on || !cctx->queued;
	u64 at = tctx->vruntime;

	note_current(p, tctx, cctx);
	cctx->curr_critical = is_critical(p);
	if (vtime_before(cctx->curr_deadline, at))
		at = cctx->curr_deadline;
	if (was_queued && vtime_before(p->scx.dsq_vtime, at))
		at = p->scx.dsq_vtime;
	if (!cctx->curr_critical && in_turn && vtime_before(cctx->vclock, at))
		cctx->vclock = at;
	cctx->curr_started = scx_bpf_now();
	cctx->curr_weight = task_weight(p, tctx);
}

/* sched_yield(): the task lets go of what it is owed, and of a slice. */
static void yield_turn(const struct task_struct *p, struct task_ctx *tctx, const struct cpu_ctx *cctx)
{
	u64 ahead = cctx->vclock + to_vtime(tunables.slice_ns, task_weight(p, tctx));

	tctx->sync_wakeup = true;
	if (vtime_before(tctx->vruntime, ahead))
		tctx->vruntime = ahead;
}

/* Puts the task on @cpu's clock. A new task starts even with it. */
static void rebase(struct task_ctx *tctx, s32 cpu)
{
	if (tctx->vclock_cpu == cpu)
		return;
	if (tctx->vclock_cpu < 0) {
		tctx->vruntime = cpu_ctx(cpu)->vclock;
	} else {
		tctx->vruntime += cpu_ctx(cpu)->vclock - cpu_ctx(tctx->vclock_cpu)->vclock;
		tctx->recent = tctx->vclock_cpu;
	}
	tctx->vclock_cpu = cpu;
}

/*
 * As rebase(), for a task that starts to wait, @anew if it slept or was throttled: it is owed nothing for that time. What it is
 * ahead is bounded: anew by two slices, as EEVDF bounds lag; else so that one long stint (no tick, a virtual CPU that
 * stood still) does not shut it out for as long times the number of tasks that wait.
 */
static void place(const struct task_struct *p, struct task_ctx *tctx, s32 cpu, bool anew)
{
	u64 vclock = cpu_ctx(cpu)->vclock, latest;

	group_enter(p, tctx);
	latest = vclock + to_vtime(tunables.slice_ns + (anew ? tunables.slice_ns : OVERRUN_NS), task_weight(p, tctx));
	rebase(tctx, cpu);
	if (anew && vtime_before(tctx->vruntime, vclock))
		tctx->vruntime = vclock;
	else if (vtime_before(latest, tctx->vruntime))
		tctx->vruntime = latest;
}

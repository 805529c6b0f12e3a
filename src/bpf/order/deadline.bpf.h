/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Virtual time: who is owed CPU time, and who comes next.
 *
 * A task's vruntime grows by the time it ran, times 100, over its weight (task_weight() of cgroup/weight.bpf.h). Each CPU has
 * a clock, vclock, that follows the vruntime of what it runs. What counts is the distance of the two:
 *
 *	     owed                       ahead
 *	-------|-----------|--------------|--------> virtual time of the CPU
 *	   vruntime      vclock        vruntime
 *	  (wait_time)                     (just ran)
 *
 * A CPU's queue is ordered by deadline = vruntime + what the task is assumed to ask for:
 *
 *	it slept, or woke whom it sent something, within
 *	the last HOG_NS of its CPU time -------------------> one slice by its weight; its first one at the default weight
 *							     at least, for a light task comes seldom, not late
 *	it is a hog ---------------------------------------> one slice by its weight, and slice_lag
 *
 *	it is prompt: woken by a timer, a device, a futex
 *	... -- not by WF_SYNC, with which wakers tell that
 *	they send it something, nor by a kernel lock -------> slice_lag and PROMPT_NS less, until it has had a slice
 *
 * So those that run in short bursts come before hogs, until they are slice_lag ahead of them, and the prompt before both. But
 * who reads what another writes earns nothing by its sleep: were it to, it would come before the writer, and find little to
 * read (hackbench switched twice as often). For the same reason a producer, who woke somebody by WF_SYNC within the last slice,
 * goes on for PRODUCER_NS more, unless it is preempted (order/preempt.bpf.h). The clock goes with it, and all that wait are then owed
 * that: PROMPT_NS is twice as much, or the prompt, who are owed nothing, would come after them.
 *
 * Those of a kind that are less than a slice ahead come in the order in which they came (line_deadline()): no order keeps
 * the last one waiting for less.
 *
 * When a task goes to another CPU, rebase() keeps the distance and changes the clock, so no clock is shared and none is
 * written by two CPUs.
 */
#pragma once

enum {
	OVERRUN_NS = 20000000, /* that a slice may be overrun and is charged for: two ticks at HZ=100 */
	PRODUCER_NS = 9000000, /* that a producer may get further ahead of those that wait */
	PROMPT_NS = 2 * PRODUCER_NS,
	HOG_NS = 100000000, /* CPU time without a sleep after which a task is not expected to sleep soon */
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

/* CPU time since it slept, or made something for others. */
static u64 burst(const struct task_struct *p, const struct task_ctx *tctx)
{
	return p->se.sum_exec_runtime - tctx->woke_exec;
}

static bool is_hog(const struct task_struct *p, const struct task_ctx *tctx)
{
	return burst(p, tctx) >= HOG_NS;
}

/*
 * The running task of this CPU wakes whom it has sent something: it is no hog, though it need not sleep, and the others find
 * more the longer it runs.
 */
static void note_producer(struct cpu_ctx *cctx)
{
	struct task_struct *p = bpf_get_current_task_btf();
	struct task_ctx *tctx = task_ctx(p);

	cctx->curr_hog = false;
	if (!tctx)
		return;
	tctx->woke_exec = p->se.sum_exec_runtime;
	tctx->prompt = false;
}

/*
 * In select_cpu: is the @woken task prompt? Not one that preempts nobody, nor one that wait_time for a kernel lock, which is
 * TASK_UNINTERRUPTIBLE and no I/O. It is not called p, for the macro has a p of its own.
 */
static bool wakes_promptly(const struct task_struct *woken, struct task_ctx *tctx, u64 wake_flags)
{
	return (wake_flags & (SCX_WAKE_TTWU | SCX_WAKE_SYNC)) == SCX_WAKE_TTWU && !never_preempts(woken, tctx) &&
	       (!BPF_CORE_READ_BITFIELD(woken, sched_contributes_to_load) || BPF_CORE_READ_BITFIELD(woken, in_iowait));
}

/* From when it woke until it has had a slice. */
static bool is_prompt(const struct task_struct *p, const struct task_ctx *tctx)
{
	return tctx->prompt && burst(p, tctx) < tunables.slice_ns;
}

static u64 deadline(const struct task_struct *p, struct task_ctx *tctx)
{
	u32 weight = task_weight(p, tctx);
	u64 from = tctx->vruntime;

	/* The same for all of them: among themselves it changes nothing. */
	if (is_hog(p, tctx))
		return from + to_vtime(tunables.slice_ns, weight) + tunables.slice_lag_ns;
	if (is_prompt(p, tctx))
		from -= tunables.slice_lag_ns + PROMPT_NS;
	/* The first slice after a sleep does not come later for a light one, though it does more seldom. */
	if (weight < WEIGHT_DFL << WEIGHT_SHIFT && burst(p, tctx) < tunables.slice_ns)
		weight = WEIGHT_DFL << WEIGHT_SHIFT;
	return from + to_vtime(tunables.slice_ns, weight);
}

/* Where @p is in line on the CPU of @cctx, on whose clock it is: its deadline, but a slight lead is of no account. */
static u64 line_deadline(const struct task_struct *p, struct task_ctx *tctx, const struct cpu_ctx *cctx)
{
	s64 ahead = tctx->vruntime - cctx->vclock;
	u64 at = deadline(p, tctx);

	return ahead > 0 && (u64)ahead < tunables.slice_ns && !is_hog(p, tctx) ? at - ahead : at;
}

/* In dispatch: how much later than the first in line @p, which runs on the CPU of @cctx, may come and yet go on. */
static u64 producer_lead(const struct task_struct *p, struct task_ctx *tctx, const struct cpu_ctx *cctx, u64 now)
{
	if (!cctx->curr_weight || !cctx->sync_wakes || now - cctx->sync_woke_at >= tunables.slice_ns)
		return 0;
	return to_vtime(PRODUCER_NS, task_weight(p, tctx));
}

/* Bring the vruntime of a task that ran up to date. The kernel has updated sum_exec_runtime. */
static void charge(struct task_struct *p, struct task_ctx *tctx)
{
	u64 sum_exec = p->se.sum_exec_runtime;
	u32 weight = task_weight(p, tctx);

	tctx->vruntime += to_vtime(sum_exec - tctx->charged, weight);
	if (is_limited(tctx))
		charge_groups(scx_bpf_task_cpu(p), tctx->group, sum_exec - tctx->charged);
	tctx->charged = sum_exec;
}

/* The task runs from here on: what the CPU's clock and those who would preempt it go by. */
static void note_running(const struct task_struct *p, struct task_ctx *tctx, struct cpu_ctx *cctx)
{
	u32 weight = task_weight(p, tctx);

	cctx->curr_critical = is_critical(p);
	/* Urgent tasks take more than their share: they would carry the clock away from those who wait their turn. */
	if (!cctx->curr_critical && vtime_before(cctx->vclock, tctx->vruntime))
		cctx->vclock = tctx->vruntime;
	cctx->curr_deadline = deadline(p, tctx);
	cctx->curr_hog = is_hog(p, tctx);
	cctx->curr_prompt = is_prompt(p, tctx);
	tctx->fresh = false;
	cctx->curr_started = scx_bpf_now();
	cctx->curr_idle_policy = is_idle_policy(p, tctx);
	cctx->curr_weight = weight;
}

/* Let go of what the task is owed, and of a slice. */
static void fall_behind(const struct task_struct *p, struct task_ctx *tctx, const struct cpu_ctx *cctx)
{
	u64 behind = cctx->vclock + to_vtime(tunables.slice_ns, task_weight(p, tctx));

	if (vtime_before(tctx->vruntime, behind))
		tctx->vruntime = behind;
}

/* Put the task on @cpu's clock. A new task starts even with it. */
static void rebase(struct task_ctx *tctx, s32 cpu)
{
	if (tctx->home == cpu)
		return;
	if (tctx->home < 0) {
		tctx->vruntime = cpu_ctx(cpu)->vclock;
	} else {
		tctx->vruntime += cpu_ctx(cpu)->vclock - cpu_ctx(tctx->home)->vclock;
		tctx->recent = tctx->home;
	}
	tctx->home = cpu;
}

/*
 * As rebase(), for a task that @wakes or starts to wait. It is owed nothing for the time it slept. What it is ahead is
 * bounded: one long stint (no tick, a virtual CPU that stood still) does not shut it out for as long times the number
 * of those that wait.
 */
static void place(const struct task_struct *p, struct task_ctx *tctx, s32 cpu, bool wakes)
{
	u64 vclock = cpu_ctx(cpu)->vclock, latest;

	group_enter(p, tctx);
	latest = vclock + to_vtime(tunables.slice_ns + OVERRUN_NS, task_weight(p, tctx));
	rebase(tctx, cpu);
	if (wakes)
		tctx->woke_exec = p->se.sum_exec_runtime;
	if (wakes && vtime_before(tctx->vruntime, vclock))
		tctx->vruntime = vclock;
	else if (vtime_before(latest, tctx->vruntime))
		tctx->vruntime = latest;
}

/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Virtual time: who is owed CPU time, and who comes next.
 *
 * A task's vruntime grows by the time it ran, times 100, over its weight (task_weight() of cgroup.bpf.h). Each CPU has
 * a clock, vclock, that follows the vruntime of what it runs. What counts is the distance of the two:
 *
 *	     owed                       ahead
 *	-------|-----------|--------------|--------> virtual time of the CPU
 *	   vruntime      vclock        vruntime
 *	   (sleeper)                   (just ran)
 *
 * A CPU's queue is ordered by deadline = vruntime + one slice by the task's weight. When a task goes to
 * another CPU, rebase() keeps the distance and changes the clock, so no clock is shared and none is
 * written by two CPUs.
 */
#pragma once

enum {
	OVERRUN_NS = 20000000, /* that a slice may be overrun and is charged for: two ticks at HZ=100 */
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

static u64 deadline(const struct task_struct *p, struct task_ctx *tctx)
{
	u32 weight = task_weight(p, tctx);

	return tctx->vruntime + to_vtime(tun.slice_ns, weight);
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

	cctx->curr_urgent = is_urgent(p);
	/* Urgent tasks take more than their share: they would carry the clock away from those who wait their turn. */
	if (!cctx->curr_urgent && vtime_before(cctx->vclock, tctx->vruntime))
		cctx->vclock = tctx->vruntime;
	cctx->curr_vruntime = tctx->vruntime;
	cctx->curr_started = scx_bpf_now();
	cctx->curr_idle_policy = is_idle_policy(p, tctx);
	cctx->curr_weight = weight;
}

/* Let go of what the task is owed, and of a slice. */
static void fall_behind(const struct task_struct *p, struct task_ctx *tctx, const struct cpu_ctx *cctx)
{
	u64 behind = cctx->vclock + to_vtime(tun.slice_ns, task_weight(p, tctx));

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
 * As rebase(), for a task that @wakes or starts to wait. What it is owed for the time it slept and what it is ahead are
 * bounded: a long sleep is not hoarded, and one long stint (no tick, a virtual CPU that stood still) does not shut it
 * out for as long times the number of those that wait.
 */
static void place(const struct task_struct *p, struct task_ctx *tctx, s32 cpu, bool wakes)
{
	u64 vclock = cpu_ctx(cpu)->vclock, earliest, latest;
	u32 weight;

	group_enter(p, tctx);
	weight = task_weight(p, tctx);
	earliest = vclock - to_vtime(tun.slice_lag_ns, weight);
	latest = vclock + to_vtime(tun.slice_ns + OVERRUN_NS, weight);
	rebase(tctx, cpu);
	if (wakes && vtime_before(tctx->vruntime, earliest))
		tctx->vruntime = earliest;
	else if (vtime_before(latest, tctx->vruntime))
		tctx->vruntime = latest;
}

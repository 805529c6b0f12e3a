/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Wakeup preemption: a woken task takes the CPU at once when its deadline is before the running one's: clearly before it,
 * and that one is left alone for its first moments, for tasks that wake each other all the time would else preempt
 * each other all the time (hackbench over pipes took three times as long). Not so a hog, which would not have slept soon
 * anyway, nor before who is prompt (order/deadline.bpf.h), whom no message of the running one woke. Urgent tasks do not wait, but for
 * each other; the loader, which may move, does so in line, first.
 *
 *	woken: SCHED_BATCH, SCHED_IDLE, cpu.idle? --------------------------------> wait
 *	running: SCHED_IDLE, cpu.idle? -------------------------------------------> preempt
 *	running one has run for less than gran (wakeup_gran; first_turn among the
 *	prompt; a hog, or before a prompt one if it is none: 0)? ------------------> wait
 *	running one's deadline by now - woken one's > gran (by weight)? ----------> preempt, else wait
 *
 * Where an idle CPU can take the woken one, it does, and nobody is preempted (enqueue). It waits in line, as all do, until
 * the CPU is free: the running one may be in the kernel for milliseconds, and what is in the local DSQ cannot be stolen. Only
 * who may not move, and is next anyway, goes there.
 */
#pragma once

/* Before a CPU's clock, which light tasks carry far away: nobody's deadline is that early. */
#define FIRST_NS (1ULL << 60)

/*
 * How @p is to come to a CPU that was idle a moment ago: that may find another task while this one is under way, and who
 * waits behind it in the local DSQ cannot be stolen.
 */
static u64 arrival_flags(const struct task_struct *p)
{
	return no_preempt(p) ? 0 : SCX_ENQ_PREEMPT;
}

/* For how long who runs on the CPU of @cctx is left alone by one that wakes. */
static u64 wakeup_gran(const struct task_ctx *woken, const struct cpu_ctx *cctx)
{
	if (cctx->curr_hog)
		return 0;
	if (!woken->fresh || cctx->curr_critical)
		return tunables.wakeup_gran_ns;
	if (!cctx->curr_prompt)
		return 0;
	return tunables.first_turn_ns ?: tunables.wakeup_gran_ns;
}

/* @cctx is the CPU of @p, whose rq lock is held. */
static bool preempts(const struct task_struct *p, struct task_ctx *tctx, struct cpu_ctx *cctx, u64 now)
{
	s64 gran = wakeup_gran(tctx, cctx), ran;
	u64 curr_deadline;

	if (!tunables.wakeup_preempt || !cctx->curr_weight || never_preempts(p, tctx))
		return false;
	if (cctx->curr_idle_policy)
		return true;

	ran = now - cctx->curr_started;
	/* The two CPUs' clocks may differ by a little. */
	if (ran < 0)
		ran = 0;
	if (ran < gran)
		return false;
	curr_deadline = cctx->curr_deadline + to_vtime(ran, cctx->curr_weight);
	return vtime_before(deadline(p, tctx) + to_vtime(gran, task_weight(p, tctx)), curr_deadline);
}

/*
 * Is @p, woken on @cpu, next there, and may not go elsewhere? Then it need not be in line: nobody else is, nobody may steal
 * it, and its turn comes when the running one's slice is over, or before.
 */
static bool is_next(const struct task_struct *p, struct task_ctx *tctx, s32 cpu, const struct cpu_ctx *cctx)
{
	return !is_migratable(p) && cctx->curr_weight && !cctx->waiting &&
	       !vtime_before(cctx->curr_deadline + to_vtime(tunables.slice_ns, cctx->curr_weight), deadline(p, tctx)) &&
	       !scx_bpf_dsq_nr_queued(SCX_DSQ_LOCAL_ON | cpu);
}

/* In enqueue of @p: it runs next on the CPU of @cctx, or at once, if it is to @preempt who runs there. */
static void run_next(struct task_struct *p, struct cpu_ctx *cctx, bool preempt, u64 enq_flags)
{
	if (preempt) {
		cctx->curr_weight = 0;
		enq_flags |= SCX_ENQ_PREEMPT;
	}
	scx_bpf_dsq_insert(p, SCX_DSQ_LOCAL, tunables.slice_ns, enq_flags);
}

/* In running: is somebody in this CPU's local DSQ who does not wait there by right (is_next())? */
static bool local_dsq_backlog(struct cpu_ctx *cctx)
{
	s32 nr = scx_bpf_dsq_nr_queued(SCX_DSQ_LOCAL);

	if (!nr && cctx->next_waits)
		cctx->next_waits = false;
	return nr > cctx->next_waits;
}

/*
 * Who runs on @cpu is to make way for who is first in line, if that is still there: it may be taken before dispatch() comes
 * to it, and nobody else is to run for it. SCHED_IDLE tasks make way for anybody.
 */
static void preempt_curr(s32 cpu, struct cpu_ctx *cctx)
{
	cctx->curr_weight = 0; /* one at a time: who comes next waits its turn */
	cctx->preempted = cctx->curr_idle_policy;
	scx_bpf_kick_cpu(cpu, SCX_KICK_PREEMPT);
}

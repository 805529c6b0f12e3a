/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * What a CPU runs next, in dispatch:
 *
 *	its slice is over, and nothing speaks against it (can_keep_running) ---> who ran is one to compare with
 *	one whose cpu.max let go of it waits for a CPU (cgroup/throttle.bpf.h) -> it
 *	nothing to compare the first in line with ----------------------> that
 *	now and then: one starves here (steal/starve.bpf.h), or elsewhere
 *	they are owed more (steal/balance.bpf.h) -----------------------------> it
 *	the deadline of who ran comes first, or nobody waits (keep_running) -> who ran
 *	else -----------------------------------------------------------> the first in line
 *	nobody is left: another CPU's task (steal/steal.bpf.h), and what came
 *	while that was looked for --------------------------------------> it, or the CPU idles
 */
#pragma once

/* The context of @prev, which may run for *@slice more; NULL: it has gone to sleep, is to go elsewhere, or to wait for cpu.max. */
static struct task_ctx *can_keep_running(s32 cpu, struct task_struct *prev, u64 *slice)
{
	struct task_ctx *tctx;

	if (!prev || !(prev->scx.flags & SCX_TASK_QUEUED))
		return NULL;
	tctx = task_ctx(prev);
	if (!tctx)
		return NULL;
	if (is_limited(tctx) && !is_exempt(prev)) {
		charge(prev, tctx);
		*slice = take_slice(cpu, tctx->group);
		if (!*slice)
			return NULL;
	}
	return tctx->migrate_home || tctx->migrate_up ? NULL : tctx;
}

/* Does @prev go on before @next, the first in line (NULL: nobody waits)? Not if it was @preempted, or lends its CPU. */
static bool keep_running(struct task_struct *prev, struct task_ctx *tctx, const struct cpu_ctx *cctx,
			 struct task_struct *next, bool preempted, u64 now)
{
	if (!next)
		return true;
	return !preempted && !lends_to(cctx, next) &&
	       vtime_before(deadline(prev, tctx), next->scx.dsq_vtime + producer_lead(prev, tctx, cctx, now));
}

/* @cpu has nothing of its own left. True: it has now. Stealing lets go of the rq lock. */
static bool run_other(s32 cpu, struct cpu_ctx *cctx)
{
	if (timed_steal(cpu))
		return true;
	/* Woken in vain, maybe claimed: idle again, and then comes the other half of kick_idle_for(). */
	if (is_idle_task(bpf_get_current_task_btf())) {
		mark_idle(cpu, cctx);
		if (work_in_reach(cpu, cctx) && timed_steal(cpu))
			return true;
		if (READ_ONCE(waiting_words) && pull_waiting(cpu))
			return true;
		/* Claimed while stealing let go of the rq lock: the kick came too early, for what it asks for ends with this. */
		if (cctx->idle && !map_test(&idle_map, cpu_layout(cpu)->slot))
			scx_bpf_kick_cpu(cpu, 0);
	}
	/* Somebody may have queued a task here meanwhile. */
	return cctx->waiting && (take_queued(cpu, cctx, cpu) || take_queued(cpu, cctx, pinned_queue(cpu)));
}

/* What @cpu runs next, be it @prev (NULL: not a task of ours), to its local DSQ. */
static void pick_next(s32 cpu, struct cpu_ctx *cctx, struct task_struct *prev)
{
	u64 queue = cpu, at = 0, slice = tunables.slice_ns, now = scx_bpf_now();
	struct task_ctx *tctx = can_keep_running(cpu, prev, &slice);
	bool keep = false, preempted = cctx->preempted;
	struct task_struct *next = NULL;

	cctx->preempted = false;
	if (READ_ONCE(waiting_words) && pull_waiting(cpu))
		return;

	/* Nothing to compare: the first in line, whoever that is. */
	if (!tctx && one_queue_waits(cctx) && !balance_due(cctx, now) && !starved_due(cctx, now) &&
	    take_queued(cpu, cctx, cctx->overloaded ? cpu : pinned_queue(cpu)))
		return;
	if (cctx->waiting) {
		next = first_queued(cpu, cctx, &queue);
		if (next)
			at = next->scx.dsq_vtime;
	}
	if (tctx) {
		charge(prev, tctx);
		keep = keep_running(prev, tctx, cctx, next, preempted, now);
	}
	if (keep) {
		cctx->lends = false;
		at = deadline(prev, tctx);
	}
	if ((tctx || next) && (run_starved(cpu, cctx, now) || balance(cpu, cctx, keep ? NULL : next, at)))
		return;
	if (!keep && cctx->waiting && take_queued(cpu, cctx, queue))
		return;
	if (tctx) {
		stat_inc(STAT_KEEP);
		note_running(prev, tctx, cctx);
		scx_bpf_task_set_slice(prev, slice);
		return;
	}
	if (!run_other(cpu, cctx))
		stat_inc(STAT_EMPTY);
}

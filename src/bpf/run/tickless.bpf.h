/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * A task that runs alone on a nohz_full CPU has no tick: its slice is infinite.
 *
 * The kernel checks the slice only when it sets a task as next. 6.16 and 6.18 start the tick only
 * if a task of sched_ext ran before (scx_can_stop_tick()). So a task that starts on an idle CPU, or
 * after a real-time task, has no tick, whatever its slice. Therefore:
 *
 *	running    current starts on an idle CPU, or after a real-time task, or is alone and has no
 *	           cpu.max: infinite slice, cctx->tickless is set
 *	enqueue    a task is enqueued on the CPU: kick the CPU, which ends the slice
 *	cpu.max    of a group is set: kick all CPUs without a tick. If current's group has one, the
 *	           timer of throttled tasks fires at the end of current's slice
 *	tick       called once a second, from another CPU. If tasks wait here, or may come from an
 *	           overloaded CPU: end the slice
 *	dispatch   current has no tick, and others wait: run one of them, which starts the tick,
 *	           and kick this CPU. Current has a tick, and is alone: do not keep it. enqueue()
 *	           puts it into the local DSQ, and it starts again without a tick
 *
 * A task loses the tick when it has been alone for ALONE_NS. Critical kernel threads do not count,
 * because they are brief. Without the delay a hog alongside which programs start would lose the
 * tick and get it back all the time.
 */
#pragma once

enum { ALONE_NS = 20000000 }; /* a few slices */

/*
 * Return true if @cpu switches to a task of sched_ext from the idle task or a real-time task. In
 * running. False if another CPU calls running(), for a change of affinity.
 */
static bool switches_class(s32 cpu)
{
	const struct task_struct *curr = bpf_get_current_task_btf();

	return cpu == bpf_get_smp_processor_id() &&
	       (is_idle_task(curr) || curr->prio < MAX_RT_PRIO);
}

/* Return true if a task waits for @cpu. A hint, unless the rq lock of @cpu is held. */
static bool others_wait(s32 cpu, const struct cpu_ctx *cctx)
{
	return cctx->queued || scx_bpf_dsq_nr_queued(SCX_DSQ_LOCAL_ON | cpu);
}

/* Return true if current of @cpu should lose its tick. The rq lock is held. */
static bool is_alone(const struct task_ctx *tctx, s32 cpu, const struct cpu_ctx *cctx)
{
	return scx_bpf_now() - cctx->shared_at >= ALONE_NS && !cctx->curr_critical &&
	       !is_limited(tctx) && !others_wait(cpu, cctx);
}

/*
 * Return the slice of a task that runs on @cpu without a tick: infinite. If the task has a cpu.max,
 * set the timer of throttled tasks to the end of @slice, which cpu.max allows. The rq lock is held.
 */
static u64 tickless_slice(const struct task_ctx *tctx, s32 cpu, struct cpu_ctx *cctx, u64 slice)
{
	u64 now = scx_bpf_now();

	if (is_limited(tctx))
		set_throttle_timer(cpu, cctx, now + slice, now);
	return SCX_SLICE_INF;
}

/* In running of @p on @cpu: decide whether @p has a tick. Return its slice, which was @slice. */
static u64 set_tickless(struct task_struct *p, const struct task_ctx *tctx, s32 cpu,
			struct cpu_ctx *cctx, u64 slice)
{
	bool switches;

	if (!is_nohz_full(cpu))
		return slice;
	if (others_wait(cpu, cctx) && !cctx->curr_critical)
		cctx->shared_at = scx_bpf_now();
	switches = switches_class(cpu);
	cctx->tickless = switches || is_alone(tctx, cpu, cctx);
	if (switches && others_wait(cpu, cctx))
		kick_cpu(cpu, SCX_KICK_PREEMPT);
	if (cctx->tickless)
		return tickless_slice(tctx, cpu, cctx, slice);
	return slice == SCX_SLICE_INF ? slice_of(p) : slice;
}

/*
 * In enqueue and tick on @cpu, whose rq lock is held: advance what current has published, as ticks
 * would have done.
 */
static void advance_tickless(s32 cpu, struct cpu_ctx *cctx)
{
	s64 ran = locked_now(cpu) - cctx->curr_started;
	u64 vtime;

	if (!cctx->curr_weight || ran <= 0)
		return;
	vtime = to_vtime(ran, cctx->curr_weight);
	cctx->curr_deadline += vtime;
	cctx->curr_requeued += vtime;
	cctx->curr_started += ran;
	cctx->curr_left -= ran;
}

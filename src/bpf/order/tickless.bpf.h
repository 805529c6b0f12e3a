/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * A task that runs alone on a nohz_full CPU has no tick: its slice is infinite.
 *
 * The kernel looks at the slice when it sets a task as next, and at no other time. 6.16 and 6.18
 * start the tick only if a task of sched_ext ran before: a task that starts on an idle CPU has
 * none, whatever its slice (scx_can_stop_tick()), nor has one that follows a real-time task. Hence:
 *
 *	running    current starts on an idle CPU, or after a real-time task, or is alone: infinite
 *	           slice, cctx->tickless
 *	enqueue    a task comes for the CPU: it is kicked, and the slice ends
 *	cpu.max    of a group is set: all CPUs without a tick are kicked. Current's group has one:
 *	           the timer of throttled tasks fires when its slice would be over
 *	tick       once a second, from another CPU: others wait, or may come from an overloaded CPU:
 *	           the slice ends
 *	dispatch   current would continue, and others wait: one of them runs, which starts the tick,
 *	           until this CPU is kicked. Current has a tick, and is alone: it is not kept;
 *	           enqueue() puts it into the local DSQ, and it starts again
 *
 * A task that is alone for a moment would lose the tick and get it again all the time. So it has to
 * have run for a slice since it slept.
 */
#pragma once

/*
 * Does @cpu switch from a task that is not of sched_ext? In running; when a task's affinity
 * changes, current is another one.
 */
static bool switches_class(s32 cpu)
{
	const struct task_struct *curr = bpf_get_current_task_btf();

	return cpu == bpf_get_smp_processor_id() &&
	       (is_idle_task(curr) || curr->prio < MAX_RT_PRIO);
}

/* Does a task wait for @cpu, whose rq lock is held? */
static bool others_wait(s32 cpu, const struct cpu_ctx *cctx)
{
	return cctx->queued || scx_bpf_dsq_nr_queued(SCX_DSQ_LOCAL_ON | cpu);
}

/* Is the task, which is current of @cpu and charged until now, to lose its tick? */
static bool is_alone(const struct task_ctx *tctx, s32 cpu, const struct cpu_ctx *cctx)
{
	return burst(tctx) >= tunables.slice_ns && !cctx->curr_critical && !is_limited(tctx) &&
	       !others_wait(cpu, cctx);
}

/*
 * Return the slice of a task that runs on @cpu without a tick, and may for @slice by its cpu.max.
 */
static u64 tickless_slice(const struct task_ctx *tctx, s32 cpu, struct cpu_ctx *cctx, u64 slice)
{
	u64 now = scx_bpf_now();

	if (is_limited(tctx))
		set_throttle_timer(cpu, cctx, now + slice, now);
	return SCX_SLICE_INF;
}

/* In running of @p on @cpu, when its slice is known. */
static void set_tickless(struct task_struct *p, const struct task_ctx *tctx, s32 cpu,
			 struct cpu_ctx *cctx)
{
	bool switches;

	if (!is_nohz_full(cpu))
		return;
	switches = switches_class(cpu);
	cctx->tickless = switches || is_alone(tctx, cpu, cctx);
	if (cctx->tickless)
		scx_bpf_task_set_slice(p, tickless_slice(tctx, cpu, cctx, p->scx.slice));
	else if (p->scx.slice == SCX_SLICE_INF)
		scx_bpf_task_set_slice(p, tunables.slice_ns);
	if (switches && others_wait(cpu, cctx))
		kick_cpu(cpu, SCX_KICK_PREEMPT);
}

/*
 * In enqueue and tick on @cpu, whose rq lock is held: bring up to date what ticks would have, so
 * that a task that comes has no lag for the time that current was alone.
 */
static void advance_tickless(s32 cpu, struct cpu_ctx *cctx)
{
	s64 ran = locked_now(cpu) - cctx->curr_started;
	u64 vtime;

	if (!cctx->curr_weight || ran <= 0)
		return;
	vtime = to_vtime(ran, cctx->curr_weight);
	cctx->vclock += vtime;
	cctx->curr_deadline += vtime;
	cctx->curr_requeued += vtime;
	cctx->curr_started += ran;
	cctx->curr_left -= ran;
}

/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The frequency of a CPU follows its utilization. This program reports the part of sched_ext tasks;
 * the governor schedutil does the rest, as for the fair class:
 *
 *	cpuperf_target      util_avg less that of real-time and deadline tasks, 0..capacity
 *	schedutil           (target + real-time, deadline, interrupts) * 1.25,
 *	                    within uclamp.min .. uclamp.max = frequency
 *
 *	CPU leaves idle     max(util_avg, util_est), with the util_est of when it last went idle
 *	tick                the same
 *	CPU goes idle       util_avg
 *	CPU stays idle      decays each util_interval (decay_cpuperfs(), run by the loader)
 *
 * If no CPU has that governor, machine.cpufreq is false, and the verifier removes this code.
 */
#pragma once

/* a target is set only if it has changed by more than 1/CPUPERF_STEP of the capacity */
enum { CPUPERF_STEP = 32 };

/*
 * Set the target of @cpu from its utilization if it has changed by more than 1/CPUPERF_STEP of the
 * capacity, or @always: in ticks, because a governor ignores a change within its rate limit.
 */
static void set_cpuperf(s32 cpu, u64 util, bool always)
{
	u32 cap = scx_bpf_cpuperf_cap(cpu), held, target, others;
	struct rq *rq = kernel_rq(cpu);

	if (!rq)
		return;
	/*
	 * Use the scale of the kernel's capacities, which may all be the same where those of the
	 * loader differ (hybrid x86). Power profiles lower the target through perf_scale.
	 */
	target = util * cap * machine.perf_scale / CAPACITY_SCALE / cpu_layout(cpu)->capacity;
	others = rq->avg_rt.util_avg + rq->avg_dl.util_avg;
	target -= min(target, others);
	held = rq->scx.cpuperf_target;
	if (always || (held > target ? held - target : target - held) * CPUPERF_STEP > cap)
		scx_bpf_cpuperf_set(cpu, target);
}

/* Set the target of @cpu after its utilization has changed. The rq lock of @cpu is held. */
static void update_cpuperf(s32 cpu, struct cpu_ctx *cctx, bool tick)
{
	u32 util = cctx->pelt.util_avg;

	if (!machine.cpufreq)
		return;
	/* A CPU that leaves idle starts at the utilization of its last busy period. */
	if (!cctx->pelt.running)
		cctx->util_est = peak(cctx->util_est, util);
	else
		util = max(util, cctx->util_est);
	set_cpuperf(cpu, util, tick);
}

/* Lower the target of @cpu if it is idle. No lock is held; if it wakes now, a tick corrects it. */
static void decay_cpuperf(s32 cpu, u64 now)
{
	if (!cpu_ctx(cpu)->pelt.running)
		set_cpuperf(cpu, util_avg_at(cpu, now), false);
}

/* Return the target that the kernel has; full speed if its rq is not known. */
static u32 cpuperf_target(s32 cpu)
{
	struct rq *rq = kernel_rq(cpu);

	return rq ? rq->scx.cpuperf_target : CAPACITY_SCALE;
}

/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The frequency of a CPU follows its utilization, as under the kernel's own scheduler. This program
 * reports what sched_ext tasks use; the governor schedutil does all else, as for the fair class:
 *
 *	cpuperf_target      util_avg less what real-time and deadline tasks use, 0..capacity
 *	schedutil           + what these use + interrupts, * 1.25, within uclamp.min .. uclamp.max
 *	                    = frequency
 *
 *	CPU leaves idle     util_avg, or what it was when the CPU last went idle: util_est
 *	tick                the same
 *	CPU goes idle       util_avg
 *	CPU stays idle      decays each util_interval (decay_cpuperfs(), run by the loader)
 *
 * Where no CPU has that governor machine.cpufreq is false, and the verifier removes all of this.
 */
#pragma once

/* a target that differs by less than a part of so many of the capacity is left as it is */
enum { CPUPERF_STEP = 32 };

/* Not in the BTF of every kernel. */
extern struct rq runqueues __ksym __weak;

/*
 * NULL where the kernel's BTF has no runqueues. @cpu is not always this one: order/tickless.bpf.h.
 */
static struct rq *kernel_rq(s32 cpu)
{
	return bpf_ksym_exists(&runqueues) ? bpf_per_cpu_ptr(&runqueues, cpu) : NULL;
}

/*
 * Set the target of @cpu from its utilization, unless it is nearly what the kernel has; @always:
 * the governor does not listen if it was told something less than its rate limit ago.
 */
static void set_cpuperf(s32 cpu, u64 util, bool always)
{
	u32 cap = scx_bpf_cpuperf_cap(cpu), held, target, others;
	struct rq *rq = kernel_rq(cpu);

	if (!rq)
		return;
	/*
	 * On the scale of the kernel's capacities, which may know no difference where the loader
	 * does (hybrid x86). Power profiles take part of schedutil's headroom away.
	 */
	target = util * cap * machine.perf_scale / CAPACITY_SCALE / cpu_layout(cpu)->capacity;
	others = rq->avg_rt.util_avg + rq->avg_dl.util_avg;
	target -= min(target, others);
	held = rq->scx.cpuperf_target;
	if (always || (held > target ? held - target : target - held) * CPUPERF_STEP > cap)
		scx_bpf_cpuperf_set(cpu, target);
}

/* The utilization of @cpu has changed, and its rq lock is held. */
static void update_cpuperf(s32 cpu, struct cpu_ctx *cctx, bool tick)
{
	u32 util = cctx->pelt.util_avg;

	if (!machine.cpufreq)
		return;
	/* A CPU that a busy task leaves for a while starts at what that task needs. */
	if (!cctx->pelt.running)
		cctx->util_est = peak(cctx->util_est, util);
	else
		util = max(util, cctx->util_est);
	set_cpuperf(cpu, util, tick);
}

/*
 * If @cpu is idle, lower its target. No lock is held: if it wakes meanwhile its next tick sets it.
 */
static void decay_cpuperf(s32 cpu, u64 now)
{
	if (!cpu_ctx(cpu)->pelt.running)
		set_cpuperf(cpu, util_avg_at(cpu, now), false);
}

/* Return the target that the kernel has. */
static u32 cpuperf_target(s32 cpu)
{
	struct rq *rq = kernel_rq(cpu);

	return rq ? rq->scx.cpuperf_target : CAPACITY_SCALE;
}

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

/* Has the target of @cpu to be another one than the kernel has? */
static bool cpuperf_differs(s32 cpu, u32 held, u32 target)
{
	u32 diff = held > target ? held - target : target - held;

	return diff * CPUPERF_STEP > scx_bpf_cpuperf_cap(cpu);
}

/*
 * On the scale of the kernel's capacities, which may know no difference where the loader does
 * (hybrid x86). Power profiles take part of schedutil's headroom away.
 */
static u32 kernel_perf(s32 cpu, u64 util)
{
	return util * scx_bpf_cpuperf_cap(cpu) * machine.perf_scale / CAPACITY_SCALE /
	       cpu_layout(cpu)->capacity;
}

/*
 * Utilization of @cpu has changed, and its rq lock is held. A governor that was told something less
 * than its rate limit ago does not listen: ticks tell it again.
 */
static void update_cpuperf(s32 cpu, struct cpu_ctx *cctx, bool tick)
{
	u32 target = cctx->pelt.util_avg;
	struct rq *rq;
	u64 others;

	if (!machine.cpufreq || !bpf_ksym_exists(&runqueues))
		return;
	/* A CPU that a busy task leaves for a while starts at what that task needs. */
	if (!cctx->pelt.running)
		cctx->util_est = peak(cctx->util_est, target);
	else
		target = max(target, cctx->util_est);
	/* Not always this CPU's: order/tickless.bpf.h. */
	rq = bpf_per_cpu_ptr(&runqueues, cpu);
	if (!rq)
		return;
	target = kernel_perf(cpu, target);
	others = rq->avg_rt.util_avg + rq->avg_dl.util_avg;
	target = target > others ? target - others : 0;
	if (tick || cpuperf_differs(cpu, rq->scx.cpuperf_target, target))
		scx_bpf_cpuperf_set(cpu, target);
}

/*
 * Of the loader: @cpu is idle, and no lock is held. If it wakes meanwhile its next tick sets it
 * right.
 */
static void decay_cpuperf(s32 cpu, u64 now)
{
	struct rq *rq = bpf_ksym_exists(&runqueues) ? bpf_per_cpu_ptr(&runqueues, cpu) : NULL;
	u32 target = kernel_perf(cpu, util_avg_at(cpu, now));

	if (rq && !cpu_ctx(cpu)->pelt.running &&
	    cpuperf_differs(cpu, rq->scx.cpuperf_target, target))
		scx_bpf_cpuperf_set(cpu, target);
}

/* What the kernel holds. */
static u32 cpuperf_target(s32 cpu)
{
	struct rq *rq = bpf_ksym_exists(&runqueues) ? bpf_per_cpu_ptr(&runqueues, cpu) : NULL;

	return rq ? rq->scx.cpuperf_target : CAPACITY_SCALE;
}

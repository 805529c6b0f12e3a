/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The utilization of a task: util_avg by PELT, and what it is expected to use when it wakes, on the
 * scale of capacities.
 *
 *	util_avg    ___/\___/\______     decays while the task sleeps or waits
 *	util_est    ___|~~~~|~~~~\__     its peaks: rises immediately, falls by a quarter of the
 *	                                 difference at each sleep
 *	task_util   the greater of both, within uclamp.min .. uclamp.max
 *
 *	select_cpu  decay_task_util()  tick      util_runs()
 *	running     util_starts()      stopping  util_stops()
 *
 * A new task starts at half of the spare capacity of its CPU. sched_ext does not maintain
 * p->se.avg, so this program does, on asymmetric machines only.
 */
#pragma once

#ifdef __VMLINUX_H__
/* Fields of kernels with CONFIG_UCLAMP_TASK, which the kernel of vmlinux.h does not have. */
struct uclamp_se___magpie {
	unsigned int value : 11;
	unsigned int active : 1;
} __attribute__((preserve_access_index));

struct task_struct___uclamp {
	struct uclamp_se___magpie uclamp[2];
} __attribute__((preserve_access_index));
#endif

/*
 * Note the uclamp of @p: its own, within that of its cgroup and of the system. The kernel has
 * computed it if @p is runnable. Otherwise it remains as it was when @p last ran.
 */
static void read_uclamp(const struct task_struct *p, struct task_ctx *tctx)
{
	const struct task_struct___uclamp *clamped = (const void *)p;

	if (!bpf_core_field_exists(clamped->uclamp) ||
	    !BPF_CORE_READ_BITFIELD_PROBED(clamped, uclamp[UCLAMP_MAX].active))
		return;
	tctx->uclamp_min = BPF_CORE_READ_BITFIELD_PROBED(clamped, uclamp[UCLAMP_MIN].value);
	tctx->uclamp_max = BPF_CORE_READ_BITFIELD_PROBED(clamped, uclamp[UCLAMP_MAX].value);
}

/* Update task_util after util_avg or util_est has changed. */
static void update_task_util(const struct task_struct *p, struct task_ctx *tctx)
{
	u32 util = max(tctx->util.util_avg, tctx->util_est);

	read_uclamp(p, tctx);
	tctx->task_util = min(max(util, tctx->uclamp_min), tctx->uclamp_max);
}

/*
 * Return the spare capacity of @cpu. The task does not run: what it has left in util_avg of its
 * last CPU counts as spare.
 */
static u32 spare_capacity(s32 cpu, const struct task_ctx *tctx)
{
	u32 capacity = capacity_of(cpu), util = util_avg_at(cpu, unlocked_now());

	if (tctx->vtime_cpu == cpu)
		util -= min(util, tctx->util.util_avg);
	return capacity - min(capacity, util);
}

/*
 * Decay util_avg, because the task did not run until @now; start util_avg if the task is new. @cpu
 * is the CPU on which the task ran last, or on which it starts to run.
 */
static void decay_task_util(const struct task_struct *p, struct task_ctx *tctx, s32 cpu, u64 now)
{
	if (tctx->util.updated_at) {
		pelt_accumulate(&tctx->util, now, 0, 0, 0);
	} else {
		tctx->util.util_avg = spare_capacity(cpu, tctx) / 2;
		tctx->util.util_sum = (u64)tctx->util.util_avg * PELT_MIN_DIVIDER;
		tctx->util.updated_at = now;
	}
	update_task_util(p, tctx);
}

/* Update util_avg: the task has run on @cpu until now. */
static void util_runs(const struct task_struct *p, struct task_ctx *tctx, s32 cpu,
		      const struct cpu_ctx *cctx)
{
	u64 since = tctx->util.updated_at, now = scx_bpf_now();

	pelt_accumulate(&tctx->util, now, now - since, cpu_layout(cpu)->capacity, cpu_freq(cpu));
	update_task_util(p, tctx);
	if (cctx->misfit)
		stat_add(STAT_MISFIT_NS, tctx->util.updated_at - since);
}

/* Note the utilization of the task that runs on @cpu, or starts to run there. */
static void publish_curr_util(const struct task_ctx *tctx, s32 cpu, struct cpu_ctx *cctx)
{
	bool misfit;

	cctx->curr_util = tctx->task_util;
	misfit = !fits_cpu(cctx->curr_util, cpu);
	if (misfit && !cctx->misfit)
		stat_inc(STAT_MISFIT);
	cctx->misfit = misfit;
}

static void util_starts(const struct task_struct *p, struct task_ctx *tctx, s32 cpu,
			struct cpu_ctx *cctx)
{
	decay_task_util(p, tctx, cpu, scx_bpf_now());
	publish_curr_util(tctx, cpu, cctx);
}

static void util_stops(const struct task_struct *p, struct task_ctx *tctx, s32 cpu,
		       struct cpu_ctx *cctx, bool sleeps)
{
	util_runs(p, tctx, cpu, cctx);
	cctx->misfit = false;
	cctx->curr_util = 0;
	if (sleeps)
		tctx->util_est = peak(tctx->util_est, tctx->util.util_avg);
}

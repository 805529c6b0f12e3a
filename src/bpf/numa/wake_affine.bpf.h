/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Wake-affine: near which CPU a wakeup looks for an idle one, the previous or the waking, by the kernel's rules. Each
 * can be switched off by --wake-affine.
 *
 *	        not a plain wakeup (fork), or the waking CPU not allowed ------------------> previous
 *	wide    the waker wakes many tasks, and so does the wakee (wake_wide) -------------> previous
 *	idle    waking CPU idle (an interrupt wakes), cache shared with the previous ------> previous if idle, else waking
 *	sync    the waker is about to sleep, and nothing waits for its CPU ----------------> waking
 *	idle    previous CPU idle ---------------------------------------------------------> previous
 *	weight  waking CPU's load with the wakee is less than the previous one's ----------> waking
 *	        else ----------------------------------------------------------------------> previous
 *
 * A pull to a node that is not the task's preferred one starts the back-off of home.bpf.h, for the task and its waker (Mel
 * Gorman's update_wa_numa_placement()).
 */
#pragma once

enum {
	FLIPS_HALVE_NS = 1000000000,
	/* How much more loaded the previous CPU has to be, %: half of what sched domains call imbalance_pct (117). */
	AFFINE_BIAS_PCT = 108,
};

/* The running task of this CPU wakes @pid (record_wakee). Its time is that of its slice: at most a tick ago. */
static void note_wakee(struct cpu_ctx *cctx, s32 pid)
{
	struct wakes *wakes = &cctx->wakes;

	if (cctx->curr_started - wakes->decayed_at > FLIPS_HALVE_NS) {
		wakes->flips >>= 1;
		wakes->decayed_at = cctx->curr_started;
	}
	if (wakes->last != pid) {
		wakes->last = pid;
		wakes->flips++;
	}
}

/* Do the two wake so many others that one LLC is too small for all? */
static bool wake_wide(const struct cpu_ctx *cctx, const struct task_ctx *tctx, u32 llc)
{
	u32 few = tctx->wakes.flips, many = cctx->wakes.flips, factor = llc_layout(llc)->nr_cpus;

	if (many < few) {
		many = tctx->wakes.flips;
		few = cctx->wakes.flips;
	}
	return few >= factor && many >= few * factor;
}

/* Both loads relative to what the CPUs can do, and the wakee counted at the waking CPU. */
static bool wake_affine_weight(const struct task_struct *p, struct task_ctx *tctx, s32 waking, s32 prev, bool sync)
{
	const struct cpu_ctx *cctx = cpu_ctx(waking);
	u64 here = cpu_load(cctx), there = cpu_load(cpu_ctx(prev));

	if (sync)
		here -= cctx->curr_weight;
	here += task_weight(p, tctx);
	here *= 100 * cpu_layout(prev)->capacity;
	there *= AFFINE_BIAS_PCT * cpu_layout(waking)->capacity;
	/* So that, other things being equal, the wakee follows a waker that makes room. */
	return here < there + sync;
}

/* Is @waking to be the target rather than @prev? @p may use both. */
static bool wake_affine(const struct task_struct *p, struct task_ctx *tctx, s32 waking, s32 prev, bool sync)
{
	const struct cpu_ctx *cctx = cpu_ctx(waking);

	if (tunables.affine_idle && cctx->idle && share_llc(waking, prev))
		return !cpu_ctx(prev)->idle;
	if (tunables.affine_sync && sync && cctx->curr_weight && !cctx->queued)
		return true;
	if (tunables.affine_idle && cpu_ctx(prev)->idle)
		return false;
	return tunables.affine_weight && wake_affine_weight(p, tctx, waking, prev, sync);
}

/* In select_cpu. @prev is a CPU that @p may use. @interrupt: what wakes it is not current. */
static s32 affine_target(struct task_struct *p, struct task_ctx *tctx, s32 prev, u64 wake_flags, bool interrupt)
{
	s32 waking = bpf_get_smp_processor_id();
	struct cpu_ctx *cctx = cpu_ctx(waking);
	bool has_waker = !interrupt && cctx->curr_weight;

	if (!(wake_flags & SCX_WAKE_TTWU))
		return prev;
	if (tunables.affine_wide && has_waker)
		note_wakee(cctx, p->pid);
	if (waking == prev || !is_present(waking) || !may_use(p, waking))
		return prev;
	if (tunables.affine_wide && has_waker && wake_wide(cctx, tctx, cpu_layout(waking)->llc)) {
		stat_inc(STAT_WIDE);
		return prev;
	}
	if (!wake_affine(p, tctx, waking, prev, wake_flags & SCX_WAKE_SYNC))
		return prev;
	stat_inc(STAT_AFFINE);
	if (is_numa() && cpu_node(waking) != cpu_node(prev)) {
		stat_inc(STAT_AFFINE_FAR);
		back_off(tctx, cpu_node(waking), has_waker);
	}
	return waking;
}

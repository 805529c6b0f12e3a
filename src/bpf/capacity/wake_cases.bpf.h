/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Rasmussen's wake cases, counted on the waking CPU of machines with CPUs of different capacity:
 *
 *	case  task    previous  waking CPU     new CPU
 *	1     little  little    little         little or big; found fast,
 *	..                                     by a search, or not at all (queued)
 *	8     big     big       big
 *
 * A task is little if it fits the weakest CPUs. A CPU is big if it is not weak (capacity.bpf.h).
 */
#pragma once

struct wake_cases wake_cases[MAX_CPUS];

/* Count a wakeup to @cpu, or into the queue of @target if @cpu is -1. In select_cpu. */
static void count_wake_case(const struct task_ctx *tctx, s32 prev, s32 target, s32 cpu)
{
	s32 waking = bpf_get_smp_processor_id(), to = cpu >= 0 ? cpu : target;
	struct wake_cases *cases = &wake_cases[waking & (MAX_CPUS - 1)];
	bool fast = cpu == target || cpu == prev || cpu == tctx->recent;
	u32 end = cpu < 0 ? WAKE_FALLBACK : fast ? WAKE_FAST : WAKE_SCAN;
	u32 at = 0;

	if (!fits_all(tctx->task_util))
		at |= WAKE_BIG_TASK;
	if (!is_weak(prev))
		at |= WAKE_BIG_PREV;
	if (!is_weak(waking))
		at |= WAKE_BIG_WAKING;
	if (is_weak(to))
		cases->little[at][end]++;
	else
		cases->big[at][end]++;
}

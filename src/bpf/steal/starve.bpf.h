/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Nothing waits until the watchdog bites. Virtual time is fair, but a task of weight 1 among many heavy ones
 * may have to wait for minutes, and the kernel ejects a scheduler that lets a task wait for timeout_ms.
 *
 *	dispatch, starve_ns / STARVE_LOOKS after the last look in vain -> the last MAX_STARVE tasks of each own queue
 *	    one waits for starve_ns (a quarter of timeout_ms)? run it next
 */
#pragma once

enum {
	STARVE_LOOKS = 8, /* in starve_ns */
	MAX_STARVE = 16,
};

/* In dispatch of the CPU that @queue is of. True if a task was taken. Looks at MAX_STARVE tasks. */
__noinline bool run_starved_of(u64 queue)
{
	u32 looks = bpf_arena_loop_zero;
	struct task_struct *p;

	bpf_for_each(scx_dsq, p, queue, SCX_DSQ_ITER_REV)
	{
		if (wait_time(p) >= tunables.starve_ns && scx_bpf_dsq_move(BPF_FOR_EACH_ITER, p, SCX_DSQ_LOCAL, 0)) {
			stat_inc(STAT_STARVED);
			return true;
		}
		looks += bpf_arena_loop_one;
		if (looks >= MAX_STARVE)
			break;
	}
	return false;
}

static bool starved_due(const struct cpu_ctx *cctx, u64 now)
{
	return now - cctx->starved_at >= tunables.starve_ns / STARVE_LOOKS;
}

/* In dispatch of @cpu. True if a task was taken. */
static bool run_starved(s32 cpu, struct cpu_ctx *cctx, u64 now)
{
	if (!cctx->waiting || !starved_due(cctx, now))
		return false;
	if (run_starved_of(cpu) || run_starved_of(pinned_queue(cpu)))
		return true;
	cctx->starved_at = now;
	return false;
}

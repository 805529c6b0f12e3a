/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Nothing waits until the watchdog bites. Virtual time is fair, but a task of weight 1 among many heavy ones
 * may have to wait for minutes, and the kernel ejects a scheduler that lets a task wait for timeout_ms.
 *
 *	dispatch, starve_ns / STARVE_LOOKS after the last look -> the last task of the own queue
 *	    waits for starve_ns (a quarter of timeout_ms)? run it next
 */
#pragma once

enum {
	STARVE_LOOKS = 8, /* in starve_ns */
};

/* In dispatch of @cpu. True if a task was taken. Looks at one task. */
static bool run_starved(s32 cpu, struct cpu_ctx *cctx)
{
	u64 now = scx_bpf_now();
	struct task_struct *p;
	bool taken = false;

	if (!cctx->waiting || now - cctx->starved_at < tun.starve_ns / STARVE_LOOKS)
		return false;
	cctx->starved_at = now;

	bpf_for_each(scx_dsq, p, cpu, SCX_DSQ_ITER_REV)
	{
		if (waited(p) >= tun.starve_ns)
			taken = scx_bpf_dsq_move(BPF_FOR_EACH_ITER, p, SCX_DSQ_LOCAL, 0);
		break;
	}
	if (taken)
		stat_inc(STAT_STARVED);
	return taken;
}

/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Where a task waits on machines with CPUs of different capacity when no CPU is idle for it: not
 * with tasks of the other kind, for a small one would take a strong CPU from a big one, and a big
 * one would run on a weak CPU.
 */
#pragma once

/* A weak CPU leaves a waiting task that is too big for it to stronger ones for so long. */
enum { WEAK_WAIT_NS = 500000 };

/* ns for which weak CPUs are still to leave the waiting task to stronger ones. */
static s64 weak_wait(const struct task_ctx *tctx, u64 now)
{
	return tctx->enqueued_at + WEAK_WAIT_NS - now;
}

/* Of the strong CPUs, or of the weakest, the next in turn; -1 if there is none. */
static s32 next_of_kind(bool strong)
{
	u32 first = strong ? 0 : machine.nr_stronger;
	u32 nr = strong ? machine.nr_stronger : machine.nr_cpus - machine.nr_stronger;

	if (!nr)
		return -1;
	return capacity_order[(first + this_cpu_ctx()->fallback_turn++ % nr) & (MAX_CPUS - 1)];
}

/*
 * In select_cpu: the @target if it is of the task's kind, or has room; else the previous CPU, or
 * the less loaded of two of its kind.
 */
__noinline s32 fallback_cpu(struct task_struct *p __arg_trusted, s32 prev, s32 target)
{
	struct task_ctx *tctx = task_ctx(p);
	bool big = tctx && is_big(tctx);
	s32 best = target, cpu, i;

	if (big != is_weak(target) || (!big && fits_all(READ_ONCE(cpu_ctx(target)->curr_util))))
		return target;
	if (is_weak(prev) != big && may_use(p, prev))
		return prev;
	bpf_for(i, 0, 2) {
		cpu = next_of_kind(big);
		if (cpu >= 0 && is_present(cpu) && may_use(p, cpu) &&
		    (i == 0 || cpu_load(cpu_ctx(cpu)) <= cpu_load(cpu_ctx(best))))
			best = cpu;
	}
	return best;
}

/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The CPU for which a task waits if none is idle, on machines with CPUs of different capacity. Big
 * tasks wait for strong CPUs, small ones for weak CPUs: a small task would take a strong CPU from a
 * big one, and a big one would run on a weak CPU.
 */
#pragma once

/* How long a weak CPU leaves a waiting task that is too big for it to stronger ones. */
enum { WEAK_WAIT_NS = 500000 };

/* Return for how many more ns weak CPUs leave the task to stronger ones; 0 or less: none. */
static s64 weak_wait(const struct task_ctx *tctx, u64 now)
{
	return tctx->enqueued_at + WEAK_WAIT_NS - now;
}

/*
 * Return the next CPU in turn: if @strong, of those stronger than the weakest; otherwise of the
 * weakest. -1 if there is none.
 */
static s32 next_of_kind(bool strong)
{
	u32 first = strong ? 0 : machine.nr_stronger;
	u32 nr = strong ? machine.nr_stronger : machine.nr_cpus - machine.nr_stronger;

	if (!nr)
		return -1;
	return capacity_order[(first + this_cpu_ctx()->fallback_turn++ % nr) & (MAX_CPUS - 1)];
}

/* Return true if @cpu is right for the task: a big task fits it; for a small task it is weak. */
static bool is_right(const struct task_ctx *tctx, bool big, s32 cpu)
{
	return big ? fits_cpu(tctx->task_util, cpu) : is_weak(cpu);
}

/*
 * Return the CPU whose queue @p is to join. In select_cpu.
 *
 * 1. @target, if it is right for @p; or if @p is small, and current of @target is small, too.
 * 2. @prev, if it is right for @p, and @p may use it.
 * 3. Of the next two CPUs that next_of_kind() returns, the less loaded one that is right for @p,
 *    and that @p may use; @target if there is none.
 */
__noinline s32 fallback_cpu(struct task_struct *p __arg_trusted, s32 prev, s32 target)
{
	struct task_ctx *tctx = task_ctx(p);
	s32 best = -1, cpu, i;
	bool big;

	if (!tctx)
		return target;
	big = is_big(tctx);
	if (is_right(tctx, big, target) ||
	    (!big && fits_all(READ_ONCE(cpu_ctx(target)->curr_util))))
		return target;
	if (is_right(tctx, big, prev) && may_use(p, prev))
		return prev;
	bpf_for(i, 0, 2) {
		cpu = next_of_kind(big);
		if (cpu >= 0 && is_usable(cpu) && is_right(tctx, big, cpu) && may_use(p, cpu) &&
		    (best < 0 || cpu_load(cpu_ctx(cpu)) <= cpu_load(cpu_ctx(best))))
			best = cpu;
	}
	return best >= 0 ? best : target;
}

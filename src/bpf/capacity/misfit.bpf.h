/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Misfits: running tasks that have become too big for their CPU, which Rasmussen's patches do not
 * cover. Within a tick a misfit moves to a stronger CPU (MOVE_UP in search/move.bpf.h) that is
 * idle, or that runs a task which fits the misfit's CPU. That task is preempted and waits, until
 * the misfit's old CPU steals it.
 *
 * Bounded by MAX_MOVE_CHECKS CPUs, from move_turn on, which has_room() advances.
 */
#pragma once

/* Return true if @cpu runs a preemptible task of sched_ext that fits @weaker. */
static bool runs_small(s32 cpu, s32 weaker)
{
	const struct cpu_ctx *cctx = cpu_ctx(cpu);

	return is_usable(cpu) && is_preemptible(cctx) &&
	       fits_capacity(READ_ONCE(cctx->curr_util), capacity_of(weaker));
}

/*
 * Return a CPU stronger than @cpu that is idle, or else one that runs a task which fits @cpu.
 * Return -1 if there is none. A task that never preempts moves to idle CPUs only.
 */
__noinline s32 find_stronger(struct task_struct *p __arg_trusted, s32 cpu)
{
	u32 turn = cpu_ctx(cpu)->move_turn, i;
	s32 other, small = -1;

	bpf_for(i, 0, min(machine.nr_stronger, MAX_MOVE_CHECKS)) {
		other = capacity_order[((turn + i) % machine.nr_stronger) & (MAX_CPUS - 1)];
		if (!is_stronger(capacity_of(other), capacity_of(cpu)) || !may_use(p, other))
			continue;
		if (map_test(&idle_map, cpu_layout(other)->slot))
			return other;
		if (small < 0 && !no_preempt(p) && runs_small(other, cpu))
			small = other;
	}
	return small;
}

/* Return true if @p is too big for @cpu, where it runs, and a stronger CPU may take it. In tick. */
static bool outgrows(struct task_struct *p, struct task_ctx *tctx, s32 cpu, struct cpu_ctx *cctx)
{
	util_runs(p, tctx, cpu, cctx);
	publish_curr_util(tctx, cpu, cctx);
	return cctx->misfit && find_stronger(p, cpu) >= 0;
}

/* Return true if @p takes @to: idle and now claimed, or its task fits @cpu. In enqueue. */
static bool takes_stronger(const struct task_struct *p, s32 cpu, s32 to)
{
	if (claim_idle(to))
		return true;
	if (no_preempt(p) || !runs_small(to, cpu))
		return false;
	stat_inc(STAT_MISFIT_SWAP);
	return true;
}

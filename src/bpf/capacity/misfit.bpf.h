/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Misfits: running tasks that have outgrown their CPU, which Rasmussen's patches leave open. Within
 * a tick they move to a stronger one (MOVE_UP in search/move.bpf.h) that idles, or runs a task that
 * fits the misfit's CPU. That task is preempted, and waits in the queue; the misfit's old CPU has
 * nothing else to do, and steals it.
 *
 * Bounded by MAX_MOVE_LOOKS CPUs, the next ones each time.
 */
#pragma once

/* A task of ours that would do as well on @weaker runs on @cpu. */
static bool runs_small(s32 cpu, s32 weaker)
{
	const struct cpu_ctx *cctx = cpu_ctx(cpu);

	return is_present(cpu) && is_preemptible(cctx) &&
	       fits_capacity(READ_ONCE(cctx->curr_util), capacity_of(weaker));
}

/*
 * A CPU stronger than @cpu that is idle, or else that runs what would do here; -1 if there is none.
 * A task that never preempts gets idle ones only.
 */
__noinline s32 find_stronger(struct task_struct *p __arg_trusted, s32 cpu)
{
	u32 turn = cpu_ctx(cpu)->move_turn, i;
	s32 other, small = -1;

	bpf_for(i, 0, min(machine.nr_stronger, MAX_MOVE_LOOKS)) {
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

/* In tick of @cpu, on which @p runs: is it too big for it, and could go to a stronger one? */
static bool outgrows(struct task_struct *p, struct task_ctx *tctx, s32 cpu, struct cpu_ctx *cctx)
{
	util_runs(p, tctx, cpu, cctx);
	note_curr_util(tctx, cpu, cctx);
	return cctx->misfit && find_stronger(p, cpu) >= 0;
}

/* In enqueue of @p, which is on @cpu: has it come to run on @to, claimed if that is idle? */
static bool takes_stronger(const struct task_struct *p, s32 cpu, s32 to)
{
	if (claim_idle(to))
		return true;
	if (no_preempt(p) || !runs_small(to, cpu))
		return false;
	stat_inc(STAT_MISFIT_SWAP);
	return true;
}

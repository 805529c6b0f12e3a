/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Moves of running tasks:
 *
 *	MOVE_HOME   away from its preferred node, where a CPU idles       numa/migrate_home.bpf.h
 *	MOVE_UP     too big for its CPU                                   capacity/misfit.bpf.h
 *	MOVE_ROOM   a preferred core is idle; or it has run for ROOM_NS
 *	            without a sleep, and for that long there was a core
 *	            or an LLC with more room                              room.bpf.h
 *
 *	tick     one of these, and it may migrate: its slice ends         check_move()
 *	enqueue  search again, claim the CPU, send the task there         send_away()
 */
#pragma once

/*
 * For which room elsewhere is to last: a few slices, as what others do changes from tick to tick.
 */
enum { ROOM_NS = 20000000 };

/*
 * In tick of @cpu, on which @p runs: is there a preferred core, or has there been room elsewhere
 * for long enough? A look that finds none goes to the next LLC the next time.
 */
static bool has_room(struct task_struct *p, struct task_ctx *tctx, s32 cpu, u64 now)
{
	if (machine.ranked && !is_short(tctx) && find_core(p, cpu, cpu_layout(cpu)->llc, true) >= 0)
		return true;
	if (burst(tctx) < ROOM_NS || machine.pack || find_room(p, cpu) < 0) {
		tctx->room_since = 0;
		cpu_ctx(cpu)->move_turn++;
	} else if (!tctx->room_since) {
		tctx->room_since = now;
	}
	return tctx->room_since && now - tctx->room_since >= ROOM_NS;
}

/* In tick of @cpu, on which @p runs, charged until now. */
static void check_move(struct task_struct *p, struct task_ctx *tctx, s32 cpu, struct cpu_ctx *cctx,
		       u64 now)
{
	u32 why = MOVE_NOT;

	if (has_room(p, tctx, cpu, now))
		why = MOVE_ROOM;
	if (is_asym() && outgrows(p, tctx, cpu, cctx))
		why = MOVE_UP;
	if (goes_home(p, tctx, cpu, cctx, now))
		why = MOVE_HOME;
	if (!why || !can_migrate_now(p))
		return;
	tctx->move_why = why;
	scx_bpf_task_set_slice(p, 0);
}

/*
 * In enqueue: @p goes to @cpu, another one, and takes it from the task that runs there. Kernels
 * whose enqueue_task_scx() has an int for enq_flags (6.18 for one) lose SCX_ENQ_PREEMPT on that
 * way: the kick does the same. It finds @p there, because kicks and inserts of this CPU are
 * carried out last first once its interrupts are on.
 */
static void send(struct task_struct *p, struct task_ctx *tctx, s32 cpu, u64 enq_flags)
{
	tctx->arrives = true;
	scx_bpf_dsq_insert(p, SCX_DSQ_LOCAL_ON | cpu, tunables.slice_ns,
			   enq_flags | arrival_flags(p, cpu));
	if (!waits_on_arrival(p, cpu))
		kick_cpu(cpu, SCX_KICK_PREEMPT);
}

/*
 * In enqueue of @p, which is on @cpu and is to go elsewhere. True: it was sent. A wakeup has
 * searched already.
 */
__noinline bool send_away(struct task_struct *p __arg_trusted, s32 cpu, u64 enq_flags)
{
	struct task_ctx *tctx = task_ctx(p);
	u32 why, stat = STAT_ROOM_MOVE;
	s32 to;

	if (!tctx)
		return false;
	why = tctx->move_why;
	tctx->move_why = MOVE_NOT;
	if (enq_flags & SCX_ENQ_WAKEUP || !can_migrate_now(p))
		return false;
	if (why == MOVE_HOME) {
		begin_search(p, tctx, false);
		to = tctx->preferred_node == cpu_node(cpu)
			     ? -1
			     : scan_node(p, tctx->preferred_node, cpu_layout(cpu)->slot);
		stat = STAT_HOME_MOVE;
	} else if (is_asym() && why == MOVE_UP) {
		to = find_stronger(p, cpu);
		if (to >= 0 && !takes_stronger(p, cpu, to))
			return false;
		stat = STAT_MISFIT_MOVE;
	} else {
		to = find_room(p, cpu);
		if (to >= 0 && !claim_idle(to))
			return false;
		tctx->room_since = 0;
	}
	if (to < 0)
		return false;
	stat_inc(stat);
	send(p, tctx, to, enq_flags);
	return true;
}

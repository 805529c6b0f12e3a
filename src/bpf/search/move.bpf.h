/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Moves of running tasks, which seldom wake, so no wakeup finds them a better CPU:
 *
 *	MOVE_PREFERRED  a CPU of the task's preferred node is idle        numa/migrate.bpf.h
 *	MOVE_UP         the task is too big for its CPU                   capacity/misfit.bpf.h
 *	MOVE_ROOM       a preferred core is idle; or the task has run for
 *	                ROOM_NS without a sleep, and for as long it has
 *	                shared its core, or an LLC has had more room      room.bpf.h
 *
 *	tick     a reason applies, and the task may migrate: end its slice    check_move()
 *	enqueue  search again, claim the CPU, send the task there             send_away()
 */
#pragma once

/* How long there must have been room elsewhere: a few slices, because load changes at each tick. */
enum { ROOM_NS = 20000000 };

/*
 * Return true if a preferred core is idle, or if there has been room elsewhere for ROOM_NS. A task
 * that has shared its core for ROOM_NS needs a core that is idle only now: short tasks on the other
 * cores would make it wait for a long time. If there is no room now, advance move_turn: the next
 * tick checks the next LLC. In tick of @cpu, where @p runs.
 */
static bool has_room(struct task_struct *p, struct task_ctx *tctx, s32 cpu, u64 now)
{
	const volatile struct cpu_layout *l = cpu_layout(cpu);

	if (machine.ranked && !is_short(tctx) && find_core(p, cpu, l->llc, true) >= 0)
		return true;
	if (burst(tctx) < ROOM_NS || machine.pack || (!shares_core(l) && find_room(p, cpu) < 0)) {
		tctx->room_since = 0;
		cpu_ctx(cpu)->move_turn++;
		return false;
	}
	if (!tctx->room_since)
		tctx->room_since = now;
	return now - tctx->room_since >= ROOM_NS && find_room(p, cpu) >= 0;
}

/*
 * End the slice of @p, charged until @now, if there is a reason to move it. Priority: preferred
 * node, misfit, room. In tick of @cpu, where @p runs.
 */
static void check_move(struct task_struct *p, struct task_ctx *tctx, s32 cpu, struct cpu_ctx *cctx,
		       u64 now)
{
	u32 why = MOVE_NOT;

	if (has_room(p, tctx, cpu, now))
		why = MOVE_ROOM;
	if (is_asym() && outgrows(p, tctx, cpu, cctx))
		why = MOVE_UP;
	if (moves_to_preferred(p, tctx, cpu, cctx, now))
		why = MOVE_PREFERRED;
	if (!why || !can_migrate_now(p))
		return;
	tctx->move_why = why;
	scx_bpf_task_set_slice(p, 0);
}

/*
 * Send @p to @cpu, another CPU, and preempt the task that runs there. In enqueue. Kernels whose
 * enqueue_task_scx() has an int for enq_flags (6.18 for one) lose SCX_ENQ_PREEMPT; the kick does
 * the same. The kick comes after the insertion: the kernel defers both as irq_work, queues the kick
 * first, and runs irq_work in reverse order.
 */
static void send(struct task_struct *p, struct task_ctx *tctx, s32 cpu, u64 enq_flags)
{
	tctx->arrives = true;
	/* The local DSQ of @cpu, because the CPU was claimed for @p, or @p preempts its current. */
	scx_bpf_dsq_insert(p, SCX_DSQ_LOCAL_ON | cpu, slice_of(p),
			   enq_flags | arrival_flags(p, cpu));
	if (!waits_on_arrival(p, cpu))
		kick_cpu(cpu, SCX_KICK_PREEMPT);
}

/*
 * Search again for a better CPU for @p, which is on @cpu, and send it there. Return true if it was
 * sent; never for a wakeup, which has searched already. In enqueue.
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
	if (why == MOVE_PREFERRED) {
		begin_search(p, tctx, false);
		to = tctx->preferred_node == cpu_node(cpu)
			     ? -1
			     : scan_node(p, tctx->preferred_node, cpu_layout(cpu)->slot);
		stat = STAT_PREFERRED_MOVE;
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
		/* It would return at once, although its node has no core for it. */
		if (to >= 0 && cpu_node(to) != cpu_node(cpu))
			back_off(tctx, cpu_node(to), false);
	}
	if (to < 0)
		return false;
	stat_inc(stat);
	send(p, tctx, to, enq_flags);
	return true;
}

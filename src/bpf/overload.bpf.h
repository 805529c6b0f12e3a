/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Which CPUs have tasks waiting that another may take: overload_map (seed 003), and the per-CPU queues
 * whose state it tells. A CPU's queue is the DSQ with the CPU's id.
 *
 *	enqueue()   in line behind the running task, may move?  -> bit set
 *	dispatch()  queue found empty?                          -> bit cleared
 *
 * Both happen under the rq lock of the queue's CPU, so a cleared bit never hides a waiting task. A thief
 * takes tasks and leaves the bit alone: a stale bit costs the next thief one look, and
 * lasts until the CPU finds its queue empty: with pinned tasks always in line, for as long. Writes only when the state changes.
 */
#pragma once

struct map_line overload_map[MAX_LINES];

/* @p is about to wait in @cpu's queue. The kernel inserts it when enqueue() returns. */
static void mark_waiting(const struct task_struct *p, s32 cpu, struct cpu_ctx *cctx)
{
	cctx->waiting = true;
	if (!cctx->overloaded && may_move(p)) {
		cctx->overloaded = true;
		map_set(overload_map, cpu_layout(cpu)->slot);
	}
}

static void clear_waiting(s32 cpu, struct cpu_ctx *cctx)
{
	cctx->waiting = false;
	if (cctx->overloaded) {
		cctx->overloaded = false;
		map_test_and_clear(overload_map, cpu_layout(cpu)->slot);
	}
}

/*
 * A task was put in line on @cpu: wake an idle CPU that may take it. Comes after the bit was set, and a CPU
 * that goes idle looks for bits after it marked itself idle, so one of the two sees the other. The kick is
 * delivered when interrupts come on again, which is after the kernel inserted the task.
 */
static void kick_thief(struct task_struct *p, s32 cpu)
{
	s32 thief;

	if (!may_move(p))
		return;
	thief = scan_any(p, cpu);
	if (thief < 0)
		return;
	stat_inc(STAT_KICK);
	scx_bpf_kick_cpu(thief, SCX_KICK_IDLE);
}

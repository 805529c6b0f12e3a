/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Which CPUs have tasks waiting that another may take: overload_map (Sistare's task stealing), and the per-CPU queues
 * whose state it tells. A CPU's queue is the DSQ with the CPU's id.
 *
 *	enqueue()   in line behind the running task, may move?  -> bit set
 *	dispatch()  queue found empty?                          -> bit cleared
 *	tick()      only tasks in line that may not move?       -> bit cleared
 *
 * All of it under the rq lock of the queue's CPU, so a cleared bit never hides a waiting task that may move. A
 * thief takes tasks and leaves the bit alone: one that is stale costs a look, until the next tick. Writes only when
 * the state changes.
 */
#pragma once

enum {
	MAX_OFFER_LOOKS = 16, /* waiting tasks looked at for one that may move */
};

struct sparse_map overload_map;

/* @p is about to wait in @cpu's queue. The kernel inserts it when enqueue() returns. */
static void mark_waiting(const struct task_struct *p, s32 cpu, struct cpu_ctx *cctx)
{
	cctx->waiting = true;
	if (!cctx->overloaded && tun.steal && may_move(p)) {
		cctx->overloaded = true;
		map_set(&overload_map, cpu_layout(cpu));
	}
}

static void clear_overloaded(s32 cpu, struct cpu_ctx *cctx)
{
	if (cctx->overloaded) {
		cctx->overloaded = false;
		map_test_and_clear(&overload_map, cpu_layout(cpu)->slot);
	}
}

/* In dispatch of @cpu. Takes the first task of its own queue; false if there is none. */
static bool take_own(s32 cpu, struct cpu_ctx *cctx)
{
	bool taken;

	if (!cctx->waiting)
		return false;
	taken = scx_bpf_dsq_move_to_local(cpu, 0);
	if (taken)
		stat_inc(STAT_OWN);
	if (!taken || !scx_bpf_dsq_nr_queued(cpu)) {
		cctx->waiting = false;
		clear_overloaded(cpu, cctx);
	}
	return taken;
}

/*
 * A task was put in line on @cpu: wake an idle CPU that may take it; false if there is none. Comes after the bit
 * was set, and a CPU that goes idle looks for bits after it marked itself idle, so one of the two sees the other.
 * The kick is delivered when interrupts come on again, which is after the kernel inserted the task.
 */
static bool kick_thief(struct task_struct *p, s32 cpu)
{
	s32 thief;

	if (!tun.steal || !may_move(p))
		return false;
	thief = scan_thief(p, cpu);
	if (thief < 0)
		return false;
	stat_inc(STAT_KICK);
	scx_bpf_kick_cpu(thief, SCX_KICK_IDLE);
	return true;
}

/*
 * Offers one of @cpu's waiting tasks, the first that an idle CPU may take. Its rq lock is held. Bounded by
 * MAX_OFFER_LOOKS: only when all were seen and none may move, the CPU is not overloaded. Returns 0, for a function that
 * the verifier looks at once has to return something.
 */
__noinline s32 offer_waiting(s32 cpu)
{
	struct cpu_ctx *cctx = cpu_ctx(cpu);
	struct task_struct *p;
	u32 looks = bpf_arena_loop_zero;
	bool movable = false;

	if (!cctx->overloaded)
		return 0;
	bpf_for_each(scx_dsq, p, cpu, 0)
	{
		if (may_move(p)) {
			movable = true;
			/* No CPU is idle for one that may use all: then none is for the others. */
			if (kick_thief(p, cpu) || p->nr_cpus_allowed >= tun.nr_cpus_possible)
				return 0;
		}
		looks += bpf_arena_loop_one;
		if (looks >= MAX_OFFER_LOOKS)
			return 0;
	}
	if (!movable)
		clear_overloaded(cpu, cctx);
	return 0;
}

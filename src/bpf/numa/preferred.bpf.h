/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Preferred nodes, on machines with several nodes: where a task's memory is, or else where it has
 * run most. migrate.bpf.h moves tasks there. In tick, PREFERRED_CHECK_NS after the last check:
 *
 * 1. If the loader knows the node of the process's memory (src/numa), that is the preferred node.
 * 2. Otherwise, if the task has spent less than half of its run time, decaying, on its preferred
 *    node, the present node becomes the preferred one.
 *
 * A task that wake-affine pulls away from its preferred node would be moved back, pulled again, and
 * so on. So neither the task nor its waker is moved back for numa_backoff scan periods (Mel
 * Gorman's delayed retry). Nor is a task that left for a core of its own (search/room.bpf.h). After
 * any other attempt to move a task back, the next one is RETRY_NS later. The kernel adapts its scan
 * period, 1 to 60 s, to the pages that each scan finds. This program scans no pages, so its scan
 * period is always 1 s.
 */
#pragma once

enum {
	PREFERRED_CHECK_NS = 2000000, /* ticks within this time of the last check are skipped */
	PREFERRED_ALL = 1 << 16,
	/* preferred_share averages over 1 << PREFERRED_DECAY checks: 0.5 s of run time at HZ=250 */
	PREFERRED_DECAY = 7,
	SCAN_PERIOD_NS = 1000000000,	/* the kernel's numa_balancing_scan_period_min */
	RETRY_NS = SCAN_PERIOD_NS / 16, /* as task_numa_fault() retries */
};

/* Ticks add processes. The loader writes their nodes, and removes those that have exited. */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, MAX_PROCESSES);
	__type(key, s32);
	__type(value, struct process);
} processes SEC(".maps");

static bool is_numa(void)
{
	return machine.nr_nodes > 1;
}

/*
 * Do not move the task to its preferred node for @wait ns. Never shorten a longer wait. @held: this
 * is wake-affine's back-off, which also cancels a move that is due.
 */
static void delay_return(struct task_ctx *tctx, u64 now, u64 wait, bool held)
{
	if (!time_before(tctx->preferred_retry_at, now + wait))
		return;
	tctx->preferred_retry_at = now + wait;
	tctx->numa_backoff = held;
	if (held)
		tctx->move_why = MOVE_NOT;
}

/*
 * Start the back-off of the task, which leaves for @node, and of its waker if it @has_waker: then
 * wake-affine pulls the task to the waker's node. In select_cpu and enqueue.
 */
static void back_off(struct task_ctx *tctx, u32 node, bool has_waker)
{
	u64 now, wait = tunables.numa_backoff * (u64)SCAN_PERIOD_NS;
	struct task_ctx *waker;

	if (!wait || tctx->preferred_node == NO_NODE || tctx->preferred_node == node)
		return;
	now = unlocked_now();
	delay_return(tctx, now, wait, true);
	waker = has_waker ? task_ctx(bpf_get_current_task_btf()) : NULL;
	if (waker)
		delay_return(waker, now, wait, true);
}

/* Return true if @node is not the preferred node, and the task need not wait to return there. */
static bool wants_preferred_node(const struct task_ctx *tctx, u32 node, u64 now)
{
	return is_numa() && tctx->preferred_node != NO_NODE && tctx->preferred_node != node &&
	       !time_before(now, tctx->preferred_retry_at);
}

/*
 * Return the node that has the process's memory, NO_NODE if not known. Count the check, because the
 * loader samples the processes that use most CPU time.
 */
static s32 memory_node(s32 tgid)
{
	struct process *process, first = {
					 .checks = 1,
					 .node = NO_NODE,
				 };

	if (!tunables.numa_sampler)
		return NO_NODE;
	process = bpf_map_lookup_elem(&processes, &tgid);
	if (!process) {
		bpf_map_update_elem(&processes, &tgid, &first, BPF_NOEXIST);
		return NO_NODE;
	}
	__sync_fetch_and_add(&process->checks, 1);
	return READ_ONCE(process->node);
}

static void set_preferred_node(struct task_ctx *tctx, s32 node)
{
	tctx->preferred_node = node;
	tctx->preferred_share = PREFERRED_ALL / 2;
}

/*
 * Update the preferred node: the task runs on @node, its memory is on @memory, NO_NODE if unknown.
 */
static void update_preferred_node(struct task_ctx *tctx, s32 node, s32 memory)
{
	if (memory != NO_NODE && tctx->preferred_node != memory)
		set_preferred_node(tctx, memory);
	else if (tctx->preferred_node == NO_NODE)
		set_preferred_node(tctx, node);
	tctx->preferred_share +=
		((tctx->preferred_node == node ? PREFERRED_ALL : 0) - tctx->preferred_share) >>
		PREFERRED_DECAY;
	if (memory == NO_NODE && tctx->preferred_share < PREFERRED_ALL / 2)
		set_preferred_node(tctx, node);
}

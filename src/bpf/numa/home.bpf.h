/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Home nodes: where a task's memory is, or else where it has run most. migrate_home.bpf.h has what
 * follows from that. All of it happens on machines with several nodes only, and at ticks:
 *
 *	tick, HOME_LOOK_NS after the last one
 *	    the process's node is known to the loader (src/numa)    that is home
 *	    else, less than half of its run time is at home,
 *	    decaying                                                home is here now
 *
 * A task that wake-affine pulls to a node that is not its home would be moved back, pulled again,
 * and so on. So neither it nor its waker is moved home for numa_backoff scan periods then (Mel
 * Gorman's delayed retry). Otherwise an attempt to move a task home is repeated after RETRY_NS. The
 * kernel adapts the scan period, between 1 and 60 s, to how many pages each scan finds; nothing is
 * scanned here, so it is the shortest of them.
 */
#pragma once

enum {
	HOME_LOOK_NS = 2000000, /* ticks that come faster are left out */
	HOME_ALL = 1 << 16,
	/* the share is an average over 1 << this looks: half a second of run time at HZ=250 */
	HOME_DECAY = 7,
	SCAN_PERIOD_NS = 1000000000,	/* the kernel's numa_balancing_scan_period_min */
	RETRY_NS = SCAN_PERIOD_NS / 16, /* as task_numa_fault() retries */
};

/* Filled by ticks; the loader writes nodes, and throws out processes that are gone. */
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

/* The task is not to be moved home for @wait ns from now. A longer wait stays. */
static void delay_return(struct task_ctx *tctx, u64 now, u64 wait, bool held)
{
	if (!time_before(tctx->home_retry_at, now + wait))
		return;
	tctx->home_retry_at = now + wait;
	tctx->numa_backoff = held;
	if (held)
		tctx->move_why = MOVE_NOT;
}

/*
 * In select_cpu: wake-affine pulls the task from another node to @node, where its waker runs, if it
 * has one.
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

/* Is the task, on @node or about to be, away from home, and to go there if there is room? */
static bool wants_home(const struct task_ctx *tctx, u32 node, u64 now)
{
	return is_numa() && tctx->preferred_node != NO_NODE && tctx->preferred_node != node &&
	       !time_before(now, tctx->home_retry_at);
}

/*
 * Where the loader says that the process has its memory. The looks tell the loader which processes
 * use CPU time.
 */
static s32 memory_node(s32 tgid)
{
	struct process *process, first = {
					 .looks = 1,
					 .node = NO_NODE,
				 };

	if (!tunables.numa_sampler)
		return NO_NODE;
	process = bpf_map_lookup_elem(&processes, &tgid);
	if (!process) {
		bpf_map_update_elem(&processes, &tgid, &first, BPF_NOEXIST);
		return NO_NODE;
	}
	__sync_fetch_and_add(&process->looks, 1);
	return READ_ONCE(process->node);
}

static void set_home(struct task_ctx *tctx, s32 node)
{
	tctx->preferred_node = node;
	tctx->home_share = HOME_ALL / 2;
}

/* The task was seen to run on @node; @memory is where its process has its memory, or NO_NODE. */
static void settle_preferred_node(struct task_ctx *tctx, s32 node, s32 memory)
{
	if (memory != NO_NODE && tctx->preferred_node != memory)
		set_home(tctx, memory);
	else if (tctx->preferred_node == NO_NODE)
		set_home(tctx, node);
	tctx->home_share +=
		((tctx->preferred_node == node ? HOME_ALL : 0) - tctx->home_share) >> HOME_DECAY;
	if (memory == NO_NODE && tctx->home_share < HOME_ALL / 2)
		set_home(tctx, node);
}

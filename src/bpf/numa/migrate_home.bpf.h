/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * A task that is away returns to its home node (home.bpf.h)
 *
 *	when it wakes   and no CPU of the target's node is idle         find_idle()
 *	while it waits  taken by a CPU of its home that idles           pull()
 *	while it runs   at a tick, if a CPU of its home seems to idle   MOVE_HOME, search/move.bpf.h
 */
#pragma once

/* May an idle CPU be on @node? Bounded by MAX_BEYOND. */
__noinline bool node_any_idle(u32 node)
{
	const volatile struct llc_layout *l = llc_layout(node_llc(node));
	u32 i;

	if (map_any(&idle_map, node_llc(node)))
		return true;
	for (i = bpf_arena_loop_zero; i < MAX_BEYOND && i < l->nr_near && can_loop; i++)
		if (map_any(&idle_map, other_llc(l, i)))
			return true;
	return false;
}

/*
 * In tick of @cpu, on which @p runs: is it to be sent home? Also takes note of where it runs.
 * Kernel threads have no memory of their own.
 */
static bool goes_home(struct task_struct *p, struct task_ctx *tctx, s32 cpu, struct cpu_ctx *cctx,
		      u64 now)
{
	s32 node = cpu_node(cpu);

	if (!is_numa() || p->flags & PF_KTHREAD || now - cctx->homed_at < HOME_LOOK_NS)
		return false;
	cctx->homed_at = now;
	settle_preferred_node(tctx, node, memory_node(p->tgid));
	if (tctx->preferred_node == node) {
		stat_inc(STAT_HOME);
		return false;
	}
	stat_inc(STAT_AWAY);
	if (!wants_home(tctx, node, now)) {
		if (tctx->numa_backoff)
			stat_inc(STAT_HOME_HELD);
		return false;
	}
	delay_return(tctx, now, RETRY_NS, false);
	return node_any_idle(tctx->preferred_node);
}

/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * A task that is away returns to its preferred node (preferred.bpf.h)
 *
 *	when it wakes   if no CPU of the target's node is idle      find_idle()
 *	while it waits  if a CPU of its preferred node takes it     pull()
 *	while it runs   at a tick, if a CPU there seems to be idle  search/move.bpf.h
 */
#pragma once

/* Return true if a CPU of @node seems to be idle. Bounded by MAX_BEYOND other LLCs. */
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
 * Note where @p runs, and return true if it is to move to its preferred node. Never for kernel
 * threads, which have no memory of their own. In tick of @cpu, where @p runs.
 */
static bool moves_to_preferred(struct task_struct *p, struct task_ctx *tctx, s32 cpu,
			       struct cpu_ctx *cctx, u64 now)
{
	s32 node = cpu_node(cpu);

	if (!is_numa() || p->flags & PF_KTHREAD ||
	    now - cctx->preferred_checked_at < PREFERRED_CHECK_NS)
		return false;
	cctx->preferred_checked_at = now;
	update_preferred_node(tctx, node, memory_node(p->tgid));
	if (tctx->preferred_node == node) {
		stat_inc(STAT_ON_PREFERRED);
		return false;
	}
	stat_inc(STAT_OFF_PREFERRED);
	if (!wants_preferred_node(tctx, node, now)) {
		if (tctx->numa_backoff)
			stat_inc(STAT_PREFERRED_HELD);
		return false;
	}
	delay_return(tctx, now, RETRY_NS, false);
	return node_any_idle(tctx->preferred_node);
}

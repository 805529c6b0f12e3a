/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Going home (numa/home.bpf.h): a task that is away comes back to its home node
 *
 *	when it wakes     and no CPU of the node that it was to wake on is idle            scan_home() in search/scan.bpf.h
 *	while it waits    taken by a CPU of its home that has nothing else to run          PULL_HOME in steal/pull.bpf.h
 *	while it runs     tick: a CPU of its home seems to be idle? its slice ends         check_preferred_node()
 *	                  enqueued again: an idle CPU of its home claimed, sent there      send_home()
 *
 * The kernel ejects a scheduler that sends away a task which may not migrate, so whether it may has to be known exactly:
 * can_migrate_now().
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

/* @p may be the current task, in which the prolog may count. */
static bool can_migrate_now(const struct task_struct *p)
{
	u32 ours = p == bpf_get_current_task_btf() ? prolog_disables : 0;

	return p->nr_cpus_allowed > 1 && p->migration_disabled == ours;
}

/* In tick of @cpu, on which @p runs. Kernel threads have no memory of their own. */
static void check_preferred_node(struct task_struct *p, struct task_ctx *tctx, s32 cpu, struct cpu_ctx *cctx)
{
	u64 now = scx_bpf_now();
	s32 node = cpu_node(cpu);

	if (!is_numa() || p->flags & PF_KTHREAD || now - cctx->homed_at < HOME_LOOK_NS)
		return;
	cctx->homed_at = now;
	settle_preferred_node(tctx, node, memory_node(p->tgid));
	adapt_scan_period(tctx, now);
	if (tctx->preferred_node == node) {
		stat_inc(STAT_HOME);
		return;
	}
	stat_inc(STAT_AWAY);
	if (!wants_home(tctx, node)) {
		if (tctx->numa_backoff)
			stat_inc(STAT_HOME_HELD);
		return;
	}
	delay_return(tctx, now, min_u32(scan_period(tctx) / RETRY_SHARE, RETRY_MAX), false);
	if (can_migrate_now(p) && node_any_idle(tctx->preferred_node)) {
		tctx->migrate_to = MIGRATE_HOME;
		scx_bpf_task_set_slice(p, 0);
	}
}

/*
 * In enqueue: @p goes to @cpu, another one, and takes it from the task that runs there. Kernels whose enqueue_task_scx() has an int
 * for enq_flags (6.18 for one) lose SCX_ENQ_PREEMPT on that way: the kick does the same, and comes after @p, for both wait
 * until this CPU's interrupts come on, and what was asked for last is done first.
 */
static void send(struct task_struct *p, struct task_ctx *tctx, s32 cpu, u64 enq_flags)
{
	tctx->arrives = true;
	scx_bpf_dsq_insert(p, SCX_DSQ_LOCAL_ON | cpu, tunables.slice_ns, enq_flags | arrival_flags(p));
	if (!no_preempt(p))
		kick_cpu(cpu, SCX_KICK_PREEMPT);
}

/* In enqueue of @p, which is on @cpu. True: it was sent home. */
static bool send_home(struct task_struct *p, struct task_ctx *tctx, s32 cpu, u64 enq_flags)
{
	s32 idle;

	tctx->migrate_to = MIGRATE_NOT;
	if (tctx->preferred_node == cpu_node(cpu) || !can_migrate_now(p))
		return false;
	begin_search(tctx, false);
	idle = scan_node(p, tctx->preferred_node, cpu_layout(cpu)->slot);
	if (idle < 0)
		return false;
	stat_inc(STAT_HOME_MOVE);
	send(p, tctx, idle, enq_flags);
	return true;
}

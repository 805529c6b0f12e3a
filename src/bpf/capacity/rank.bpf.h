/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Preferred cores: CPUs of one kind of which some reach higher frequencies than others (Intel's ITMT, AMD's preferred cores).
 * An LLC's slots are by rank, the best core first:
 *
 *	slots    [best . next . . . . worst]
 *	wakeup   takes the first idle one from the left, if the target is busy (search/scan.bpf.h)
 *	tick     current runs for long, and one further left idles, or any while it shares its core: check_rank(), and its slice ends
 *	enqueue  send_better() claims that one, and sends it there
 *
 * Bounded by MAX_MISFIT_LOOKS idle cores. Where ranks are alike machine.ranked is false, and the verifier removes this.
 */
#pragma once

/* Under SMT: does another CPU of the core do something? */
static bool shares_core(const volatile struct cpu_layout *l)
{
	u64 core = map_bit(l->slot & ~(machine.smt_width - 1));
	u64 idle = READ_ONCE(map_line(&idle_map, l->slot)->bits) | map_bit(l->slot);

	return machine.smt_width > 1 && !(whole_cores(idle, l->slot / SLOTS_PER_LINE) & core);
}

/*
 * A core idle as a whole that is preferred to that of @cpu, or any if another task runs on that; -1 if there is none that @p may
 * use.
 */
__noinline s32 find_better(struct task_struct *p __arg_trusted, s32 cpu)
{
	const volatile struct cpu_layout *l = cpu_layout(cpu);
	struct map_walk walk = map_walk_from(&idle_map, l->llc, last_slot(l->llc), ALL_SLOTS);
	u32 looks = bpf_arena_loop_zero;
	bool shares = shares_core(l);
	s32 other;

	walk.whole_cores = machine.smt_width > 1;
	while (map_walk_more(&walk) && can_loop) {
		if (!map_walk_next(&idle_map, &walk))
			continue;
		other = slot_cpu(walk.slot);
		if ((!shares && walk.slot >= l->slot) || looks >= MAX_MISFIT_LOOKS)
			return -1;
		looks += bpf_arena_loop_one;
		if ((shares || cpu_layout(other)->rank > l->rank) && may_use(p, other))
			return other;
	}
	return -1;
}

/* In tick of @cpu, on which @p runs. */
static void check_rank(struct task_struct *p, struct task_ctx *tctx, s32 cpu)
{
	if (!machine.ranked || tctx->migrate_to || is_short(tctx) || !can_migrate_now(p) || find_better(p, cpu) < 0)
		return;
	tctx->migrate_to = MIGRATE_BETTER;
	scx_bpf_task_set_slice(p, 0);
}

/* In enqueue of @p, which is on @cpu. True: it was sent to a better one. */
static bool send_better(struct task_struct *p, struct task_ctx *tctx, s32 cpu, u64 enq_flags)
{
	s32 to;

	tctx->migrate_to = MIGRATE_NOT;
	if (enq_flags & SCX_ENQ_WAKEUP || !can_migrate_now(p))
		return false;
	to = find_better(p, cpu);
	if (to < 0 || !claim_idle(to))
		return false;
	stat_inc(STAT_RANK_MOVE);
	send(p, tctx, to, enq_flags);
	return true;
}

/* In enqueue of @p, which is to be sent somewhere. True: it was. */
static bool send_away(struct task_struct *p, struct task_ctx *tctx, s32 cpu, u64 enq_flags)
{
	if (machine.ranked && tctx->migrate_to == MIGRATE_BETTER)
		return send_better(p, tctx, cpu, enq_flags);
	return send_home(p, tctx, cpu, enq_flags);
}

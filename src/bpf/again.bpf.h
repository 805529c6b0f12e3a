/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * A timer for each CPU, for tasks that shall not be taken yet, nor be left until the next tick:
 *
 *	CPU goes idle, tasks elsewhere are hot (heat.bpf.h) ----> in what is left: kicked, looks for itself
 *	task makes way for an urgent one, which is brief ------> in OFFER_NS: is it not? an idle CPU is kicked, and looks
 *	task handed its CPU off (handoff.bpf.h) --------------> at latest in HANDOFF_LOOK_NS: does it still run? it makes way
 *	task has its first turn (first_turn.bpf.h) -----------> when it is over: does another wait for one? it makes way
 *
 * A CPU that makes way is not idle, so one timer does for all; what it was set for may have been settled before it fires.
 */
#pragma once

enum {
	OFFER_NS = 250000,
	HANDOFF_LOOK_NS = 400000, /* the woken one waits for twice as long, at most */
};

struct look_timer {
	struct bpf_timer timer;
};

/* By CPU. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, MAX_CPUS);
	__type(key, u32);
	__type(value, struct look_timer);
} look_timers SEC(".maps");

static void look_again(s32 cpu, u64 in_ns)
{
	struct look_timer *t = bpf_map_lookup_elem(&look_timers, &cpu);

	cpu_ctx(cpu)->handoff_look_at = 0;
	if (t)
		bpf_timer_start(&t->timer, in_ns, 0);
}

/* Claims an idle CPU of @llc, whoever may use it: a timer may not look at a task's CPUs. -1 if there is none. */
__noinline s32 any_idle(u32 llc, u32 slot)
{
	struct map_walk walk = map_walk_from(&idle_map, llc, slot, ALL_SLOTS);

	while (map_walk_more(&walk) && can_loop)
		if (map_walk_next(&idle_map, &walk) && map_test_and_clear(&idle_map, walk.slot))
			return slot_cpu(walk.slot);
	return -1;
}

/* Bounded by MAX_BEYOND. */
static s32 any_idle_in_reach(s32 cpu)
{
	const volatile struct cpu_layout *l = cpu_layout(cpu);
	s32 idle = any_idle(l->llc, l->slot);
	u32 i;

	for (i = bpf_arena_loop_zero; idle < 0 && i < MAX_BEYOND && i < llc_layout(l->llc)->nr_reach && can_loop; i++)
		idle = any_idle(other_llc(llc_layout(l->llc), i), l->slot);
	return idle;
}

/* The running task of @cpu was to sleep soon, and did not? Then it makes way. When it has not had the time yet: later. */
static void look_handoff(s32 cpu)
{
	struct cpu_ctx *cctx = cpu_ctx(cpu);

	if (!cctx->handed_off)
		return;
	if ((s64)(unlocked_now() - cctx->sync_woke_at - tun.handoff_ns) < 0)
		look_again(cpu, HANDOFF_LOOK_NS);
	else
		scx_bpf_kick_cpu(cpu, SCX_KICK_PREEMPT);
}

static void look_turn(s32 cpu); /* first_turn.bpf.h */

/* An idle CPU of the system fires it, or this one. */
static int look_timer_fires(void *map, s32 *key, struct look_timer *t)
{
	s32 cpu = *key, idle = cpu;

	look_handoff(cpu);
	/* Before 6.18 the verifier asks for it. */
	bpf_rcu_read_lock();
	look_turn(cpu);
	bpf_rcu_read_unlock();
	if (!cpu_ctx(cpu)->idle)
		idle = tun.steal && cpu_ctx(cpu)->making_way && cpu_ctx(cpu)->overloaded ? any_idle_in_reach(cpu) : -1;
	if (idle >= 0) {
		stat_inc(STAT_KICK);
		scx_bpf_kick_cpu(idle, SCX_KICK_IDLE);
	}
	return 0;
}

/* In init, which is sleepable. */
static void init_look_timer(s32 cpu)
{
	struct look_timer *t = bpf_map_lookup_elem(&look_timers, &cpu);

	if (!t)
		return;
	bpf_timer_init(&t->timer, &look_timers, CLOCK_MONOTONIC);
	bpf_timer_set_callback(&t->timer, look_timer_fires);
}

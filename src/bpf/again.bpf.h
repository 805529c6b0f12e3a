/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * A timer for each CPU, for tasks that shall not be taken yet, nor be left until the next tick:
 *
 *	CPU goes idle, tasks elsewhere are hot (steal/heat.bpf.h) ----> in what is left: kicked, looks for itself
 *	task makes way for an urgent one, which is brief ------> in OFFER_NS: is it not? an idle CPU is kicked, and looks
 *	task handed its CPU off (numa/handoff.bpf.h) --------------> at latest in HANDOFF_LOOK_NS: does it still run? it makes way
 *	task has its first turn (first_turn.bpf.h) -----------> when it is over: does another wait for one? it makes way
 *
 * A CPU that makes way is not idle, so one timer does for all; what it was set for may have been settled before it fires.
 */
#pragma once

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

/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * A CPU's timer fires (again.bpf.h): whatever it was set for is looked at, each by the file that set it.
 *
 *	look_timer_fires() ---> look_handoff()   numa/handoff.bpf.h
 *	                   ---> look_turn()      first_turn.bpf.h
 *	                   ---> idle: it looks for itself; one makes way (make_way.bpf.h): another idle CPU looks
 */
#pragma once

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
		idle = tunables.steal && cpu_ctx(cpu)->making_way && cpu_ctx(cpu)->overloaded ? any_idle_in_reach(cpu)
											      : -1;
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

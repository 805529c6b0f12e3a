/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * A timer of each CPU ends the slice of current if a task waits, because the tick comes up to a
 * tick later.
 *
 *	running, dispatch, tick   a task waits, and the timer is not set, or too late: set it
 *	timer                     current's slice is over: the CPU is kicked
 *	                          ... and current has sent messages: wait for the tick
 *	                          current is another one by now: set it to the end of its slice
 *
 * So it is set once or twice a slice, however often the CPU switches. A task that sends messages
 * may hold the mutex of a pipe; others would sleep for it. If the timer cannot be set (from 7.0 on
 * the kernel allocates memory for it), the tick ends the slice.
 */
#pragma once

enum { SLICE_SLACK_NS = 30000 }; /* 1 % of a slice */

struct slice_timer {
	struct bpf_timer timer;
};

/* By CPU. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, MAX_CPUS);
	__type(key, u32);
	__type(value, struct slice_timer);
} slice_timers SEC(".maps");

/* The timer of @cpu is to fire when the slice of current ends. Returns 0. */
__noinline s32 start_slice_timer(s32 cpu, u64 now)
{
	struct slice_timer *t = bpf_map_lookup_elem(&slice_timers, &cpu);
	struct cpu_ctx *cctx = cpu_ctx(cpu);
	s64 left = cctx->slice_ends - now;

	if (t && left > 0 && !bpf_timer_start(&t->timer, left, 0))
		cctx->slice_timer_at = cctx->slice_ends;
	return 0;
}

static int slice_timer_fires(void *map, u32 *key, struct slice_timer *t)
{
	s32 cpu = *key;
	struct cpu_ctx *cctx = cpu_ctx(cpu);
	u64 now = unlocked_now();

	cctx->slice_timer_at = 0;
	if (!cctx->curr_weight || cctx->fifo || !others_wait(cpu, cctx))
		return 0;
	if ((s64)(cctx->slice_ends - now) > SLICE_SLACK_NS)
		start_slice_timer(cpu, now);
	else if (!cctx->sync_wakes)
		kick_cpu(cpu, SCX_KICK_PREEMPT);
	return 0;
}

/* In init. */
static void init_slice_timer(s32 cpu)
{
	struct slice_timer *t = bpf_map_lookup_elem(&slice_timers, &cpu);

	if (!t)
		return;
	bpf_timer_init(&t->timer, &slice_timers, CLOCK_MONOTONIC);
	bpf_timer_set_callback(&t->timer, slice_timer_fires);
}

/* Current of @cpu, where a task @waits or not, has @slice from @now on. Its rq lock is held. */
static void note_slice(s32 cpu, struct cpu_ctx *cctx, u64 now, u64 slice, bool waits)
{
	cctx->slice_ends = now + slice;
	if (!waits || cctx->fifo || is_tickless(cctx) || !slice ||
	    (cctx->slice_timer_at &&
	     (s64)(cctx->slice_timer_at - cctx->slice_ends) < SLICE_SLACK_NS))
		return;
	start_slice_timer(cpu, now);
}

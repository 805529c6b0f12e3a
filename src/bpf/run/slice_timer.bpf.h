/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * A timer of each CPU ends the slice of current if a task waits, because the tick comes up to a
 * tick later.
 *
 *	running, dispatch, tick   if a task waits, and the timer is not set, or fires too late:
 *	                          set the timer to the end of current's slice
 *	timer fires               if current's slice is not over, because the CPU has switched:
 *	                          set the timer to the end of the new current's slice
 *	                          otherwise, if current has sent messages: leave it to the tick
 *	                          otherwise: kick the CPU
 *
 * So the timer is set once or twice a slice, however often the CPU switches. A task that sends
 * messages may hold the mutex of a pipe, and other tasks would sleep until the task runs again. If
 * the timer cannot be set (from 7.0 on the kernel allocates memory for it), the tick ends the
 * slice.
 */
#pragma once

enum { SLICE_SLACK_NS = 30000 }; /* 1 % of the default slice */

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

/*
 * Set the timer of @cpu to fire when the slice of current ends. Timers of nohz_full CPUs would fire
 * on another one, which would have to interrupt them: they are pinned. Return 0.
 */
__noinline s32 start_slice_timer(s32 cpu, u64 now)
{
	struct slice_timer *t = bpf_map_lookup_elem(&slice_timers, &cpu);
	struct cpu_ctx *cctx = cpu_ctx(cpu);
	s64 left = cctx->slice_ends - now;
	u64 flags = is_nohz_full(cpu) ? BPF_F_TIMER_CPU_PIN : 0;

	if (t && left > 0 && !bpf_timer_start(&t->timer, left, flags))
		cctx->slice_timer_at = cctx->slice_ends;
	return 0;
}

/*
 * In softirq of any CPU, without the rq lock: what it reads of the CPU is a hint. If the CPU has
 * switched in between, the kick ends the slice of the new current.
 */
static int slice_timer_fires(void *map, u32 *key, struct slice_timer *t)
{
	s32 cpu = *key;
	struct cpu_ctx *cctx = cpu_ctx(cpu);
	u64 now = unlocked_now();

	cctx->slice_timer_at = 0;
	if (!cctx->curr_weight || !others_wait(cpu, cctx))
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

/*
 * Note that current of @cpu has @slice from @now on. Set the timer if a task @waits. The rq lock of
 * @cpu is held.
 */
static void set_slice_timer(s32 cpu, struct cpu_ctx *cctx, u64 now, u64 slice, bool waits)
{
	cctx->slice_ends = now + slice;
	if (!waits || is_tickless(cctx) || !slice ||
	    (cctx->slice_timer_at &&
	     (s64)(cctx->slice_timer_at - cctx->slice_ends) < SLICE_SLACK_NS))
		return;
	start_slice_timer(cpu, now);
}

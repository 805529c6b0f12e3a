/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * What becomes of the tasks of a group that has used up its cpu.max (cgroup/bandwidth.bpf.h): they wait in a queue of
 * the group's own until its timer has filled the pool. Then CPUs take them from there, at their next dispatch,
 * before what is in their own queues.
 *
 *	running, slice over   no slice left  ---> the kernel enqueues it again: enqueue
 *	enqueue, select_cpu   a group above it is throttled ---> the group's queue
 *	timer, each period    pool filled: not throttled; its bit in released_groups set; the CPUs of those that wait are
 *	                      kicked, if they are idle
 *	dispatch              bits of released_groups ---> the first task of the group's queue; or the bit is cleared
 *
 * A group costs nothing while it is throttled: its bit is cleared by the first CPU that looks in vain. A task that the kernel
 * inserts after that waits for the next round of the timer, which goes on until the queue is empty.
 *
 * A task that waits for a quarter of timeout_ms is released by the timer though its group is throttled, for the kernel ejects us
 * when one waits for too long. It does not get far: running() finds no slice, and sends it back.
 */
#pragma once

enum {
	MAX_PULLS = 8,	/* queues tried in vain in a dispatch */
	MAX_KICKS = 16, /* waiting tasks that a timer finds CPUs for */
	GROUP_WORDS = MAX_GROUPS / 64,
};

u64 released_groups[GROUP_WORDS]; /* by id: tasks may be taken from the group's queue */
u64 released_words;		  /* those of them that are not 0 */

/* After the CPUs' queues: order/queue.bpf.h. */
static u64 group_dsq(u32 id)
{
	return 2 * MAX_CPUS + id;
}

static void mark_released(u32 id)
{
	u32 word = id / 64 % GROUP_WORDS;

	__sync_fetch_and_or(&released_groups[word], 1ULL << id % 64);
	__sync_fetch_and_or(&released_words, 1ULL << word);
}

static void clear_released(u32 id)
{
	u32 word = id / 64 % GROUP_WORDS;
	u64 bits = __sync_fetch_and_and(&released_groups[word], ~(1ULL << id % 64));

	if (bits & ~(1ULL << id % 64))
		return;
	__sync_fetch_and_and(&released_words, ~(1ULL << word));
	if (READ_ONCE(released_groups[word]))
		__sync_fetch_and_or(&released_words, 1ULL << word);
}

/* Has it not run since it was put in a group's queue? It is owed no more for that than for sleep. */
static bool has_waited_throttled(const struct task_ctx *tctx)
{
	return tctx->enqueued_at && tctx->queued_cpu == NO_CPU;
}

/* In enqueue. True if @p has to wait for a throttled group. */
static bool wait_throttled(struct task_struct *p, struct task_ctx *tctx, u64 enq_flags)
{
	struct group *g;
	u32 id;

	if (!is_limited(tctx) || is_exempt(p))
		return false;
	id = throttled_group(tctx->group);
	if (!id)
		return false;
	g = group(id);
	/* A full barrier before the timer is armed: pairs with bw_timer_fires(), which disarms it and then looks at this. */
	__sync_lock_test_and_set(&g->waiting, 1);
	bw_arm(id, g);
	stat_inc(STAT_THROTTLED);
	tctx->enqueued_at = unlocked_now();
	tctx->queued_cpu = NO_CPU;
	scx_bpf_dsq_insert(p, group_dsq(id), tunables.slice_ns, enq_flags);
	return true;
}

/*
 * May a task in the group's queue be taken by this CPU? Of a throttled one the first, which waits for too long, and no
 * other in its place: that would be sent back at once, and taken again. If no CPU may, the group's bit goes.
 */
__noinline bool may_pull(u32 id)
{
	struct group *g = group(id);

	if (READ_ONCE(g->throttled)) {
		struct task_struct *p = __COMPAT_scx_bpf_dsq_peek(group_dsq(id));

		if (p && wait_time(p, scx_bpf_now()) >= tunables.starve_ns)
			return can_migrate_to(p, bpf_get_smp_processor_id());
	} else if (scx_bpf_dsq_nr_queued(group_dsq(id)) > 0) {
		return true;
	}
	clear_released(id);
	/* Released meanwhile: pairs with bw_timer_fires(), which unthrottles the group and then sets the bit. */
	if (!READ_ONCE(g->throttled) && scx_bpf_dsq_nr_queued(group_dsq(id)) > 0)
		mark_released(id);
	return false;
}

/* In dispatch of @cpu, which has taken a task from the group's queue: the next one may go elsewhere. */
static void offer_next(s32 cpu, u32 id)
{
	struct task_struct *p;

	bpf_for_each(scx_dsq, p, group_dsq(id), 0)
	{
		struct task_ctx *tctx = task_ctx(p);

		if (tctx)
			kick_idle_for(p, tctx, cpu, scx_bpf_now());
		break;
	}
}

/* The first group after @id whose first task may be taken; 0: none. Bounded by the bits that are set. */
__noinline u32 next_released(u32 id)
{
	u32 word = id / 64 % GROUP_WORDS;
	u64 words = READ_ONCE(released_words) & ~((1ULL << word) - 1), bits = 0;
	u64 mask = ~(2ULL << id % 64) + 1;

	while ((bits || words) && can_loop) {
		if (!bits) {
			if (ctzll(words) != word)
				mask = ~0ULL;
			word = ctzll(words) % GROUP_WORDS;
			words &= words - 1;
			bits = READ_ONCE(released_groups[word]) & mask;
			continue;
		}
		id = word * 64 + ctzll(bits);
		bits &= bits - 1;
		if (may_pull(id))
			return id;
	}
	return 0;
}

/* In dispatch of @cpu. True if a task was taken. Bounded by MAX_PULLS. */
__noinline bool pull_waiting(s32 cpu)
{
	u32 i, id = 0;

	for (i = bpf_arena_loop_zero; i < MAX_PULLS && can_loop; i++) {
		id = next_released(id);
		if (!id)
			return false;
		if (scx_bpf_dsq_move_to_local(group_dsq(id), 0)) {
			stat_inc(STAT_RELEASED);
			offer_next(cpu, id);
			return true;
		}
	}
	return false;
}

/*
 * Wakes the CPUs of tasks that may go on, if they are idle; they call for others. Bounded by MAX_KICKS. (No mask
 * is looked at here: to the verifier a timer's callback is part of the sleepable program that sets the timer up.)
 */
static void kick_waiting(u32 id)
{
	u32 kicks = bpf_arena_loop_zero;
	struct task_struct *p;

	bpf_for_each(scx_dsq, p, group_dsq(id), 0)
	{
		s32 cpu = scx_bpf_task_cpu(p);

		if (claim_idle(cpu)) {
			stat_inc(STAT_KICK);
			scx_bpf_kick_cpu(cpu, SCX_KICK_IDLE);
		}
		kicks += bpf_arena_loop_one;
		if (kicks >= MAX_KICKS)
			return;
	}
}

static bool is_starving(u32 id, u64 now)
{
	struct task_struct *p = __COMPAT_scx_bpf_dsq_peek(group_dsq(id));

	return p && wait_time(p, now) >= tunables.starve_ns;
}

/* A group's timer, armed while it is throttled or has tasks waiting. */
static int bw_timer_fires(void *map, u32 *key, struct bw_timer *t)
{
	u32 id = *key, came;
	struct group *g = group(id);
	u64 now = unlocked_now();
	s32 nr;

	/* Full barriers: a CPU that throttles the group, or puts a task into its queue, after these looks arms the timer. */
	__sync_lock_test_and_set(&g->armed, 0);
	came = __sync_lock_test_and_set(&g->waiting, 0);
	bw_refill(g, now);
	if (!g->quota || (s64)READ_ONCE(g->budget) > 0)
		unthrottle(g, now);
	/* Before 6.18 the verifier asks for it, too. */
	bpf_rcu_read_lock();
	nr = scx_bpf_dsq_nr_queued(group_dsq(id));
	if (nr > 0 && (!READ_ONCE(g->throttled) || is_starving(id, now))) {
		mark_released(id);
		kick_waiting(id);
	}
	bpf_rcu_read_unlock();
	/* One that came may not be in the queue yet. */
	if (g->throttled || nr > 0 || came)
		bw_arm(id, g);
	return 0;
}

/* cpu.max is set, in ns; a quota of 0: there is none. */
static void set_limit(u32 id, u64 period, u64 quota, u64 burst)
{
	struct bw_timer *t = bpf_map_lookup_elem(&bw_timers, &id);
	struct group *g = group(id);
	u64 now = unlocked_now();

	g->period = period;
	g->burst = burst;
	g->quota = quota;
	g->period_start = now;
	g->budget = quota;
	unthrottle(g, now);
	/* Its timer sees to those that wait, and comes now if it is armed. */
	if (t && READ_ONCE(g->armed))
		bw_start(g, t, BW_TIMER_MIN);
	__sync_fetch_and_add(&group(g->top_group)->share_gen, 1);
}

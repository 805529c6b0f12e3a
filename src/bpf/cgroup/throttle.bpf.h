/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * What becomes of the tasks of a group that has used up its cpu.max (cgroup/bandwidth.bpf.h): they wait in a queue of
 * the group's own until its timer has filled the pool. Then CPUs take them from there, at their next dispatch,
 * before what is in their own queues.
 *
 *	running, slice over   no slice left  ---> the kernel enqueues it again: enqueue
 *	enqueue, select_cpu   a group above it is throttled ---> the group's queue, its bit in waiting_groups set
 *	timer, each period    pool filled: not throttled; the CPUs of those that wait are kicked, if they are idle
 *	dispatch              bits of groups that are not throttled ---> the first task of the group's queue
 *
 * A bit is set before the kernel has inserted the task, so only the timer clears it, when it finds the queue
 * empty twice in a row.
 *
 * A task that waits for a quarter of timeout_ms is taken though its group is throttled, for the kernel ejects us when one waits
 * for too long. It does not get far: running() finds no slice, and sends it back.
 */
#pragma once

enum {
	MAX_PULLS = 8,	/* queues tried in vain in a dispatch */
	MAX_KICKS = 16, /* waiting tasks that a timer finds CPUs for */
	GROUP_WORDS = MAX_GROUPS / 64,
};

u64 waiting_groups[GROUP_WORDS]; /* by id */
u64 waiting_words;		 /* those of them that are not 0 */

/* After the CPUs' queues: order/queue.bpf.h. */
static u64 group_dsq(u32 id)
{
	return 2 * MAX_CPUS + id;
}

static void mark_group_waiting(u32 id, struct group *g)
{
	u32 word = id / 64 % GROUP_WORDS;

	g->empty_rounds = 0;
	if (g->waiting)
		return;
	g->waiting = true;
	__sync_fetch_and_or(&waiting_groups[word], 1ULL << id % 64);
	__sync_fetch_and_or(&waiting_words, 1ULL << word);
}

static void clear_group_waiting(u32 id, struct group *g)
{
	u32 word = id / 64 % GROUP_WORDS;

	g->waiting = false;
	__sync_fetch_and_and(&waiting_groups[word], ~(1ULL << id % 64));
	if (READ_ONCE(waiting_groups[word]))
		return;
	__sync_fetch_and_and(&waiting_words, ~(1ULL << word));
	if (READ_ONCE(waiting_groups[word]))
		__sync_fetch_and_or(&waiting_words, 1ULL << word);
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
	mark_group_waiting(id, g);
	bw_arm(id, g);
	stat_inc(STAT_THROTTLED);
	tctx->enqueued_at = unlocked_now();
	tctx->queued_cpu = NO_CPU;
	scx_bpf_dsq_insert(p, group_dsq(id), tunables.slice_ns, enq_flags);
	return true;
}

/*
 * May a task in the group's queue be taken by this CPU? Of a throttled one the first, which waits for too long, and no
 * other in its place: that would be sent back at once, and taken again.
 */
static bool may_pull(u32 id)
{
	struct task_struct *p;

	if (!READ_ONCE(group(id)->throttled))
		return scx_bpf_dsq_nr_queued(group_dsq(id)) > 0;
	p = __COMPAT_scx_bpf_dsq_peek(group_dsq(id));
	return p && wait_time(p, scx_bpf_now()) >= tunables.starve_ns && can_migrate_to(p, bpf_get_smp_processor_id());
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
	u64 words = READ_ONCE(waiting_words) & ~((1ULL << word) - 1), bits = 0;
	u64 mask = ~(2ULL << id % 64) + 1;

	while ((bits || words) && can_loop) {
		if (!bits) {
			if (ctzll(words) != word)
				mask = ~0ULL;
			word = ctzll(words) % GROUP_WORDS;
			words &= words - 1;
			bits = READ_ONCE(waiting_groups[word]) & mask;
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
	u32 id = *key;
	struct group *g = group(id);
	u64 now = unlocked_now();

	bw_refill(g, now);
	if (!g->quota || (s64)READ_ONCE(g->budget) > 0)
		unthrottle(g, now);
	/* Before 6.18 the verifier asks for it, too. */
	bpf_rcu_read_lock();
	if (g->waiting && scx_bpf_dsq_nr_queued(group_dsq(id)) <= 0 && g->empty_rounds++)
		clear_group_waiting(id, g);
	else if (g->waiting && (!g->throttled || is_starving(id, now)))
		kick_waiting(id);
	bpf_rcu_read_unlock();
	/* Full barrier: a CPU that throttles the group after this look arms the timer. */
	__sync_lock_test_and_set(&g->armed, 0);
	if (g->throttled || g->waiting)
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
	/* Its timer sees to those that wait. */
	if (t && g->waiting)
		bpf_timer_start(&t->timer, BW_TIMER_MIN, 0);
	__sync_fetch_and_add(&group(g->top_group)->share_gen, 1);
}

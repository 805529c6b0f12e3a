/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Fairness among busy CPUs: one that never runs out of work would never steal, and three hogs on two CPUs would share
 * by luck of placement. So now and then a busy CPU looks at two overloaded CPUs (the power of two choices), and takes
 * the first task in line of the one that is further behind, if that is owed more than its own next task.
 *
 *	dispatch, BALANCE_NS after the last look -> the next two overloaded CPUs of the LLC, of others every second time
 *	    own next is prompt (order/deadline.bpf.h)?                not now: it is brief, and the CPU looks when it has run
 *	    its deadline + gran, by weight < own next's?     take it: owed
 *	    it wait_time patience() longer, by weight?          take it: its CPU does other things
 *
 * Clocks of CPUs run at different speeds, and how they are apart is what one CPU's tasks are owed by another's:
 *
 *	vclock + voffset     CPU 0: two hogs  ---------|
 *	                     CPU 1: one hog   ------------------|
 *	                     CPU 2: idle      ------------------|   as if a task of default weight ran
 *
 * When they are further apart than MAX_DRIFT_NS by its tasks' weights, the one that looks forgets the rest: tasks that
 * no other CPU may take (pinned, too heavy for a fair share) have kept them apart, and no others shall have to pay for it.
 *
 * A strong CPU that runs a big task (capacity/capacity.bpf.h) takes from weak ones only what wait_time too long: they are owed more, as
 * all that sleep much are, but big tasks have nowhere else to go.
 *
 * Bounded by two victims, MAX_BALANCE_LOOKS tasks and nr_reach + 1 maps a look.
 */
#pragma once

enum {
	BALANCE_NS = 4000000,
	BALANCE_GRAN_NS = 10000000, /* twice that between LLCs */
	BALANCE_WAIT_NS = 20000000,
	MAX_DRIFT_NS = 100000000,
	MAX_BALANCE_LOOKS = 4,
	NO_CPU = -1,
};

/* Time for which @p has been in line. */
static u64 wait_time(struct task_struct *p)
{
	struct task_ctx *tctx = task_ctx(p);
	s64 wait = tctx && tctx->enqueued_at ? scx_bpf_now() - tctx->enqueued_at : 0;

	return wait > 0 ? wait : 0;
}

static u64 by_weight(u64 ns, u32 weight)
{
	return ns * weight / (WEIGHT_DFL << WEIGHT_SHIFT);
}

static u64 wait_by_weight(struct task_struct *p)
{
	struct task_ctx *tctx = task_ctx(p);

	return tctx ? by_weight(wait_time(p), last_weight(p, tctx)) : 0;
}

/* The wait, by weight, that is due to what runs on @victim: heavy tasks have many slices before a light one has its. */
static u64 patience(const struct cpu_ctx *victim)
{
	u32 weight = victim->curr_weight;

	return weight > WEIGHT_DFL << WEIGHT_SHIFT ? by_weight(BALANCE_WAIT_NS, weight) : BALANCE_WAIT_NS;
}

/* @cpu leaves the idle loop: its clock ran on, so that nobody is owed for what nobody wanted. */
static void account_idle(struct cpu_ctx *cctx)
{
	s64 idle = scx_bpf_now() - cctx->pelt.updated_at;

	if (!cctx->pelt.running && idle > 0)
		cctx->voffset += idle;
}

/* The next overloaded CPU of @llc after @slot, not @cpu. */
__noinline s32 next_overloaded(s32 cpu, u32 llc, u32 slot)
{
	struct map_walk walk = map_walk_from(&overload_map, llc, slot, ALL_SLOTS);

	while (map_walk_more(&walk) && can_loop)
		if (map_walk_next(&overload_map, &walk) && slot_cpu(walk.slot) != cpu)
			return slot_cpu(walk.slot);
	return NO_CPU;
}

/* The deadline of the first task in line on @victim, on the common scale. False: there is none. */
static bool first_deadline(s32 victim, u64 *at)
{
	struct task_struct *p = __COMPAT_scx_bpf_dsq_peek(victim);

	if (!p)
		return false;
	*at = p->scx.dsq_vtime + cpu_ctx(victim)->voffset;
	return true;
}

/* Of the next two overloaded CPUs of @llc after @slot, not @cpu, the one whose first task is further behind. */
static s32 sample_two(s32 cpu, u32 llc, u32 slot)
{
	s32 a = next_overloaded(cpu, llc, slot), b;
	u64 at_a, at_b;

	if (a < 0)
		return NO_CPU;
	b = next_overloaded(cpu, llc, cpu_layout(a)->slot);
	if (b < 0 || b == a || !first_deadline(b, &at_b))
		return a;
	return first_deadline(a, &at_a) && !vtime_before(at_b, at_a) ? a : b;
}

/* Where a look at another LLC starts: elsewhere each time that its turn comes. */
static u32 far_slot(u32 llc, u32 round)
{
	const volatile struct llc_layout *l = llc_layout(llc);

	return l->first_line * SLOTS_PER_LINE + (l->nr_slots ? round % l->nr_slots : 0);
}

/* Whom @cpu looks at this time. */
__noinline s32 balance_victim(s32 cpu)
{
	const volatile struct llc_layout *l = llc_layout(cpu_layout(cpu)->llc);
	struct cpu_ctx *cctx = cpu_ctx(cpu);
	u32 i, turn = cctx->balance_turn++;
	s32 victim = NO_CPU;

	if (turn % 2)
		victim = sample_two(cpu, cpu_layout(cpu)->llc, cctx->balance_slot);
	for (i = bpf_arena_loop_zero; victim < 0 && i < l->nr_reach && can_loop; i++) {
		u32 llc = other_llc(l, (turn / 2 + i) % l->nr_reach);

		if (map_any(&overload_map, llc))
			victim = sample_two(cpu, llc, far_slot(llc, turn / 2 / l->nr_reach));
	}
	if (victim < 0 && !(turn % 2))
		victim = sample_two(cpu, cpu_layout(cpu)->llc, cctx->balance_slot);
	if (victim >= 0 && share_llc(cpu, victim))
		cctx->balance_slot = cpu_layout(victim)->slot;
	return victim;
}

/* It is next there, and who runs is so light that without it the CPU would be theirs who are owed little. */
static bool outweighs(u32 weight, const struct cpu_ctx *victim)
{
	return victim->curr_weight && weight / 2 > victim->curr_weight;
}

static bool holds_big(s32 cpu, const struct cpu_ctx *cctx, s32 victim)
{
	return is_asym() && is_weak(victim) && !is_weak(cpu) && !fits_all(cctx->curr_util);
}

/* How far apart the clocks may be: for the lighter of who runs on the victim and who is first in line there. */
static u64 most_drift(const struct cpu_ctx *victim, u32 weight)
{
	if (victim->curr_weight && victim->curr_weight < weight)
		weight = victim->curr_weight;
	return to_vtime(MAX_DRIFT_NS, weight);
}

/* Forget what keeps the two clocks further apart than @most. */
static void trim_drift(struct cpu_ctx *cctx, const struct cpu_ctx *victim, s64 most)
{
	s64 ahead = cctx->vclock + cctx->voffset - victim->vclock - victim->voffset;

	if (ahead > most)
		cctx->voffset -= ahead - most;
	else if (ahead < -most)
		cctx->voffset += -ahead - most;
}

/*
 * @p comes from @victim to @cpu by its turn on the common scale, not by its distance to the clock. What it is owed is
 * bounded: it shall not shut out those that were here.
 */
static void carry_over(const struct task_struct *p, struct task_ctx *tctx, s32 cpu, const struct cpu_ctx *victim,
		       u64 gran)
{
	struct cpu_ctx *cctx = cpu_ctx(cpu);
	u64 earliest = cctx->vclock - to_vtime(2 * gran, last_weight(p, tctx));

	tctx->vruntime += victim->voffset - cctx->voffset;
	if (vtime_before(tctx->vruntime, earliest))
		tctx->vruntime = earliest;
	tctx->recent = tctx->home;
	tctx->home = cpu;
}

/* Is the @next in line here, which NULL is not, prompt? It has just woken: where many wait for long, all wait_time longer. */
static bool comes_promptly(struct task_struct *next)
{
	struct task_ctx *tctx = next ? task_ctx(next) : NULL;

	return tctx && is_prompt(next, tctx);
}

static bool balance_due(const struct cpu_ctx *cctx, u64 now)
{
	return now - cctx->balanced_at >= BALANCE_NS;
}

/*
 * In dispatch of @cpu, which has work of its own: @next_deadline is that of the task it would go on with, and @next that
 * task if it waits. True if another CPU's task was taken. Not inlined, for steal() needs its stack.
 */
static __noinline bool balance(s32 cpu, struct cpu_ctx *cctx, struct task_struct *next, u64 next_deadline)
{
	u64 now = scx_bpf_now(), gran, own_wait;
	u32 looks = bpf_arena_loop_zero;
	struct cpu_ctx *from;
	struct task_struct *p;
	s32 victim;

	if (!balance_due(cctx, now) || comes_promptly(next))
		return false;
	cctx->balanced_at = now;
	victim = balance_victim(cpu);
	if (victim < 0)
		return false;
	from = cpu_ctx(victim);
	gran = share_llc(cpu, victim) ? BALANCE_GRAN_NS : 2 * BALANCE_GRAN_NS;
	own_wait = next ? wait_by_weight(next) : 0;

	bpf_for_each(scx_dsq, p, victim, 0)
	{
		struct task_ctx *tctx = task_ctx(p);
		bool owed;
		u32 weight;
		u64 at;

		if (!tctx)
			return false;
		weight = last_weight(p, tctx);
		if (!looks)
			trim_drift(cctx, from, most_drift(from, weight));
		at = p->scx.dsq_vtime + from->voffset + to_vtime(gran, weight);
		owed = vtime_before(at, next_deadline + cctx->voffset) && !outweighs(weight, from);
		if ((!owed || holds_big(cpu, cctx, victim)) &&
		    (wait_time(p) < BALANCE_WAIT_NS || wait_by_weight(p) < own_wait + patience(from)))
			return false;
		/* An idle CPU is on its way to it. */
		if (tctx->offered && wait_time(p) < OFFER_NS)
			return false;
		if (can_migrate_to(p, cpu) && scx_bpf_dsq_move(BPF_FOR_EACH_ITER, p, SCX_DSQ_LOCAL, 0)) {
			carry_over(p, tctx, cpu, from, gran);
			stat_inc(STAT_BALANCE);
			return true;
		}
		looks += bpf_arena_loop_one;
		if (looks >= MAX_BALANCE_LOOKS)
			break;
	}
	return false;
}

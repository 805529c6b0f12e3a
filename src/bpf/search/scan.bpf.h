/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The search for an idle CPU (select_idle_sibling), bounded by nr_scan (Chen Yu's SIS_UTIL,
 * nr_scan.bpf.h):
 *
 *	fast    target, previous, recently used CPU, if they share the target's LLC ---> claimed
 *	core    under SMT, an idle core, if the target's LLC may have one --------------> claimed
 *	scan    nr_scan CPUs of the target's LLC, from the one after the target on,
 *	        wrapping, so that successive wakeups cover all of it -------------------> claimed
 *	beyond  the other LLCs of the node, then the preferred node (numa/preferred.bpf.h),
 *	        then the nearest other LLCs, each by its own nr_scan -------------------> claimed
 *	weak    the best of the idle CPUs that are too weak ----------------------------> claimed
 *	none    -1
 *
 * The search passes over idle CPUs that are too weak for the task (capacity/capacity.bpf.h), until
 * only they are left. nr_scan does not bound the search for a big task: an idle CPU that is strong
 * enough is worth the longer search.
 *
 * If some cores are preferred (room.bpf.h), or tasks are to be packed, a scan begins at the first
 * slot of the LLC (scan_from): the same cores are used each time, and the last ones stay idle.
 *
 * A search that finds no idle CPU reads one word of the bitmap for every 16 CPUs.
 */
#pragma once

/* State of the search on each CPU. It is not on the BPF stack, which is too small for it. */
struct search {
	u32 util;    /* the CPU has to be strong enough for this utilization */
	s32 weak;    /* the idle CPU with the most spare capacity of those too weak; -1: none */
	u32 spare;   /* ... and its spare capacity */
	u32 scanned; /* CPUs scanned, of those that the task may use */
	u8 bounded;  /* nr_scan bounds the search */
	u8 counted;  /* the search is for a wakeup: add up scanned */
} __attribute__((aligned(CACHE_LINE)));

struct search searches[MAX_CPUS];
struct latency_hist latency_hists[MAX_CPUS];

static struct search *this_search(void)
{
	return &searches[bpf_get_smp_processor_id() & (MAX_CPUS - 1)];
}

/*
 * Start a search for @p on this CPU. If @p @wakes, count the search, and bound it by nr_scan,
 * except for a big task and for the loader, because a task that the loader preempts would wait.
 */
static struct search *begin_search(const struct task_struct *p, const struct task_ctx *tctx,
				   bool wakes)
{
	struct search *s = this_search();

	s->util = tctx->task_util;
	s->weak = -1;
	s->scanned = 0;
	s->counted = wakes;
	s->bounded = wakes && !is_big(tctx) && !is_critical(p);
	return s;
}

/*
 * Claim an idle CPU of a window of @llc that @p may use and that is strong enough. Return -1 if
 * there is none. Bounded by the window.
 */
__noinline s32 scan_window(struct task_struct *p __arg_trusted, u32 llc, u32 slot, u32 window,
			   bool whole_cores)
{
	struct map_walk walk = map_walk_from(llc, slot, window);
	struct search *s = this_search();
	s32 cpu, found = -1;

	walk.whole_cores = whole_cores;
	map_for_each(&idle_map, &walk) {
		cpu = slot_cpu(walk.slot);
		if (!may_use(p, cpu))
			continue;
		if (is_asym() && !fits_cpu(s->util, cpu)) {
			struct task_ctx *tctx = task_ctx(p);
			u32 spare = tctx ? spare_capacity(cpu, tctx) : 0;

			if (s->weak < 0 || spare > s->spare) {
				s->weak = cpu;
				s->spare = spare;
			}
			continue;
		}
		if (map_test_and_clear(&idle_map, walk.slot)) {
			found = cpu;
			break;
		}
	}
	if (s->counted) {
		u32 walked = map_walked(&walk, found >= 0), all = machine.nr_cpus_possible;

		/* Count the CPUs that the task may use, assuming that they are spread evenly. */
		if (is_restricted(p))
			walked = (walked * p->nr_cpus_allowed + all - 1) / all;
		s->scanned += walked;
	}
	return found;
}

/*
 * Claim an idle CPU of @llc that @p may use and that is strong enough. Return -1 if there is none.
 *
 * 1. Claim a CPU of an idle core, from the entire LLC.
 * 2. Claim an idle CPU, from nr_scan CPUs after @slot.
 */
__noinline s32 scan_llc(struct task_struct *p __arg_trusted, u32 llc, u32 slot)
{
	u32 window = this_search()->bounded ? scan_budget(llc) : ALL_SLOTS;
	s32 cpu;

	if (!window)
		return -1;
	if (llc_ctx(llc)->has_idle_core) {
		cpu = scan_window(p, llc, slot, ALL_SLOTS, true);
		if (cpu >= 0)
			return cpu;
		llc_ctx(llc)->has_idle_core = false;
	}
	/* nr_scan counts CPUs that the task may use: assume that they are spread evenly. */
	if (window != ALL_SLOTS && is_restricted(p))
		window = window * machine.nr_cpus_possible / p->nr_cpus_allowed;
	return scan_window(p, llc, slot, window, false);
}

/*
 * Call scan_llc() for others[@first..@end) of @llc, nearest first, but only for the first
 * MAX_BEYOND of others[].
 */
static s32 scan_beyond(struct task_struct *p, u32 llc, u32 slot, u32 first, u32 end)
{
	const volatile struct llc_layout *l = llc_layout(llc);
	s32 cpu;
	u32 i;

	for (i = first + bpf_arena_loop_zero; i < MAX_BEYOND && i < end && can_loop; i++) {
		u32 other = other_llc(l, i);

		if (!map_any(&idle_map, other))
			continue;
		cpu = scan_llc(p, other, slot);
		if (cpu >= 0)
			return cpu;
	}
	return -1;
}

/* Call scan_llc() for the LLCs of @node. Bounded by MAX_BEYOND. */
static s32 scan_node(struct task_struct *p, u32 node, u32 slot)
{
	u32 llc = node_llc(node);
	s32 cpu = scan_llc(p, llc, slot);

	return cpu >= 0 ? cpu : scan_beyond(p, llc, slot, 0, llc_layout(llc)->nr_near);
}

/* Claim the best CPU that the search found too weak. Return -1 if there is none. */
static s32 claim_weak(const struct search *s)
{
	return is_asym() && s->weak >= 0 && claim_idle(s->weak) ? s->weak : -1;
}

/* Return true if tasks are to be packed, @cpu is strong, and a weak CPU would do. */
static bool is_wasted_on(u32 util, s32 cpu)
{
	return machine.pack && !is_weak(cpu) && fits_all(util);
}

/* Claim @cpu, a fast candidate, if it shares the LLC of @target. */
static bool claim_fast(struct task_struct *p, const struct search *s, s32 cpu, s32 target)
{
	return share_llc(cpu, target) && may_use(p, cpu) &&
	       (!is_asym() || (fits_cpu(s->util, cpu) && !is_wasted_on(s->util, cpu))) &&
	       claim_idle(cpu);
}

/*
 * Claim an idle CPU of @target's LLC, a fast candidate or by a scan, and count which. Return -1 if
 * there is none.
 */
static s32 find_near(struct task_struct *p, const struct task_ctx *tctx, const struct search *s,
		     s32 prev, s32 target)
{
	const volatile struct cpu_layout *l = cpu_layout(target);
	s32 cpu;

	/* If a CPU of the LLC becomes idle later, enqueue() finds it, because it searches again. */
	if (!map_any(&idle_map, l->llc))
		return -1;
	if (claim_fast(p, s, target, target)) {
		stat_inc(STAT_TARGET);
		return target;
	}
	if (prev != target && claim_fast(p, s, prev, target)) {
		stat_inc(STAT_PREV);
		return prev;
	}
	if (tctx->recent >= 0 && claim_fast(p, s, tctx->recent, target)) {
		stat_inc(STAT_RECENT);
		return tctx->recent;
	}
	cpu = scan_llc(p, l->llc, l->scan_from);
	if (cpu >= 0)
		stat_inc(STAT_SCAN);
	return cpu;
}

/* Count the time of a search (--latency-hist). Two clock reads cost as much as some searches. */
static void count_latency(u64 started)
{
	u64 ns = bpf_ktime_get_ns() - started, bucket = ns ? 63 - __builtin_clzll(ns) : 0;

	latency_hists[bpf_get_smp_processor_id() & (MAX_CPUS - 1)]
		.buckets[min(bucket, LATENCY_BUCKETS - 1)]++;
}

/*
 * Claim an idle CPU for @p to wake on, and count where it was found. Return -1 if there is none. In
 * select_cpu.
 */
static s32 find_idle(struct task_struct *p, const struct task_ctx *tctx, s32 prev, s32 target)
{
	const volatile struct cpu_layout *l = cpu_layout(target);
	u64 started = tunables.latency_hist ? bpf_ktime_get_ns() : 0;
	u32 near = llc_layout(l->llc)->nr_near;
	struct search *s = begin_search(p, tctx, true);
	s32 cpu = find_near(p, tctx, s, prev, target);

	if (cpu < 0) {
		cpu = scan_beyond(p, l->llc, l->scan_from, 0, near);
		if (cpu < 0 && wants_preferred_node(tctx, l->node, unlocked_now())) {
			cpu = scan_node(p, tctx->preferred_node, l->scan_from);
			if (cpu >= 0)
				stat_inc(STAT_PREFERRED_WAKE);
		}
		if (cpu < 0)
			cpu = scan_beyond(p, l->llc, l->scan_from, near, machine.nr_llcs - 1);
		if (cpu < 0)
			cpu = claim_weak(s);
		stat_inc(cpu >= 0 ? STAT_BEYOND : STAT_FAILED);
	}
	if (s->scanned)
		stat_add(STAT_SCANNED, s->scanned);
	if (started)
		count_latency(started);
	return cpu;
}

/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * How long the search for an idle CPU, and that for a task to steal, take: one in FIND_SAMPLE is timed, for reading the
 * clock twice costs as much as some searches. With --latency-hist each search for a CPU is, and counted by powers of two.
 */
#pragma once

enum {
	FIND_SAMPLE = 64,
};

struct latency_hist latency_hists[MAX_CPUS];

static u32 log2_bucket(u64 ns)
{
	u32 bucket = ns ? 63 - __builtin_clzll(ns) : 0;

	return min_u32(bucket, LATENCY_BUCKETS - 1);
}

/* Is this one timed? */
static bool sample_find(void)
{
	return this_cpu_ctx()->nr_finds++ % FIND_SAMPLE == 0;
}

/*
 * In select_cpu: counts a search that was timed, as a sample or for --latency-hist. A function of its own, so that the
 * verifier goes through what follows once. Returns 0.
 */
__noinline s32 count_find(u64 took)
{
	if (this_cpu_ctx()->nr_finds % FIND_SAMPLE == 1)
		stat_add(STAT_FIND_NS, took * FIND_SAMPLE);
	if (tunables.latency_hist)
		latency_hists[bpf_get_smp_processor_id() & (MAX_CPUS - 1)]
			.buckets[log2_bucket(took) & (LATENCY_BUCKETS - 1)]++;
	return 0;
}

static s32 timed_find_idle(struct task_struct *p, const struct task_ctx *tctx, s32 prev, s32 target)
{
	u64 started;
	s32 cpu;

	if (!sample_find() && !tunables.latency_hist)
		return find_idle(p, tctx, prev, target);
	started = bpf_ktime_get_ns();
	cpu = find_idle(p, tctx, prev, target);
	count_find(bpf_ktime_get_ns() - started);
	return cpu;
}

/* In dispatch of @cpu. */
static bool timed_steal(s32 cpu)
{
	u64 started;
	bool stolen;

	if (!sample_find())
		return steal(cpu);
	started = bpf_ktime_get_ns();
	stolen = steal(cpu);
	stat_add(STAT_FIND_NS, (bpf_ktime_get_ns() - started) * FIND_SAMPLE);
	return stolen;
}

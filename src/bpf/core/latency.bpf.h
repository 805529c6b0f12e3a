/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * How long searches for an idle CPU take, by powers of two: with --latency-hist only, because reading the clock twice costs as
 * much as some searches.
 */
#pragma once

struct latency_hist latency_hists[MAX_CPUS];

static u32 log2_bucket(u64 ns)
{
	u32 bucket = ns ? 63 - __builtin_clzll(ns) : 0;

	return min_u32(bucket, LATENCY_BUCKETS - 1);
}

static s32 timed_find_idle(struct task_struct *p, const struct task_ctx *tctx, s32 prev, s32 target)
{
	u64 started = tunables.latency_hist ? bpf_ktime_get_ns() : 0;
	s32 cpu = find_idle(p, tctx, prev, target);

	if (started)
		latency_hists[bpf_get_smp_processor_id() & (MAX_CPUS - 1)]
			.buckets[log2_bucket(bpf_ktime_get_ns() - started) & (LATENCY_BUCKETS - 1)]++;
	return cpu;
}

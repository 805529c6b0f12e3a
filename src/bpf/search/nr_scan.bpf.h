/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * nr_scan: how many CPUs of an LLC a search may scan (Chen Yu's SIS_UTIL, commit 70fb5ccf2e). The
 * more of its capacity an LLC uses, the less likely it has an idle CPU, and the fewer of its CPUs
 * are scanned. Above 100 / imbalance_pct (85 %) none are:
 *
 *	x = sum_util / capacity    y = 1 - (x * imbalance_pct / 100)^2    nr_scan = nr_cpus * y
 *
 *	loader, each util_interval    publishes sum_util, capacity, nr_scan    src/nr_scan.rs
 *	tick, if the loader is late   nr_scan from util_avg                    estimate_nr_scan()
 *	search                        reads nr_scan                            scan_budget()
 *
 * The capacity is that under the present frequency limits. util_avg is relative to the highest
 * frequency: a CPU under a limit never reaches its full capacity, and would never seem full.
 */
#pragma once

/* Return nr_scan by the kernel's arithmetic. src/nr_scan.rs has the same function. */
static u32 nr_scan_of(u64 sum_util, u64 capacity, u32 nr_cpus)
{
	u64 x = sum_util * CAPACITY_SCALE / capacity;
	u64 used =
		x * x * tunables.imbalance_pct * tunables.imbalance_pct / (10000 * CAPACITY_SCALE);
	u32 nr;

	if (used >= CAPACITY_SCALE)
		return 0;
	nr = nr_cpus * (CAPACITY_SCALE - used) / CAPACITY_SCALE;
	if (tunables.small_llc_boost && nr_cpus <= SMALL_LLC)
		nr = min(nr * 2 * SMALL_LLC / nr_cpus, nr_cpus);
	return nr;
}

/* Return how many slots of @llc a search may scan: nr_scan, or ALL_SLOTS. */
static u32 scan_budget(u32 llc)
{
	u32 nr = READ_ONCE(llc_published(llc)->nr_scan);

	return !tunables.scan_limit || nr >= llc_layout(llc)->nr_cpus ? ALL_SLOTS : nr;
}

/*
 * Return the sum of util_avg of the usable CPUs of @llc. Bounded by its slots: 16 take about 1 us.
 */
__noinline u64 sum_util(u32 llc, u64 now)
{
	const volatile struct llc_layout *l = llc_layout(llc);
	u32 first = l->first_line * SLOTS_PER_LINE, i;
	u64 sum = 0;

	bpf_for(i, first, first + l->nr_slots) {
		if (is_usable_slot(i))
			sum += util_avg_at(slot_cpu(i), now);
	}
	return sum;
}

/*
 * Compute nr_scan of @cpu's LLC if the published one is out of date, because the loader is stopped
 * or starved. The first CPU that notices does so, once an interval. In tick of @cpu.
 */
static void estimate_nr_scan(s32 cpu, const struct cpu_ctx *cctx)
{
	u32 llc = cpu_layout(cpu)->llc;
	struct llc_published *published = llc_published(llc);
	struct llc_ctx *lctx = llc_ctx(llc);
	u64 now = scx_bpf_now(), mono = now + cctx->mono_offset;
	u64 at = READ_ONCE(published->at), last = READ_ONCE(lctx->estimated_at);

	if (!tunables.scan_limit || !is_usable(cpu) || !published->capacity ||
	    (s64)(mono - at) < (s64)(STALE_INTERVALS * tunables.util_interval_ns) ||
	    (s64)(mono - last) < (s64)tunables.util_interval_ns)
		return;
	if (__sync_val_compare_and_swap(&lctx->estimated_at, last, mono) != last)
		return;
	if (last <= at)
		stat_inc(STAT_STALE);
	WRITE_ONCE(published->nr_scan,
		   nr_scan_of(sum_util(llc, now), published->capacity, llc_layout(llc)->nr_cpus));
}

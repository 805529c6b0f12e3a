/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Per-entity load tracking of each CPU: util_avg, as in the kernel's pelt.c. Time is cut into
 * periods of 1024 us. The usage n periods ago counts y^n, with y^32 = 1/2, and is scaled by the
 * CPU's capacity, so that util_avg <= capacity.
 *
 *	|<- d1 ->|<-- n whole periods, 1024 us each -->|<- d3 ->|
 *	|--------|---------|---------|--------|--------|--------> now
 *	updated_at                                     period_contrib
 *
 * At half the frequency the same work takes twice the time. So while the CPU runs, time passes in
 * proportion to its frequency, and idle time makes up for the difference (behind). As long as there
 * is idle time, util_avg is the same as at the highest frequency.
 *
 *	highest frequency    |####........|####........|
 *	half of it           |########....|########....|    runs as |####|, then idles as |........|
 *
 * A CPU notes how long it ran at each tick, and when it enters or leaves idle. Once a period or
 * later it updates the sum, as if it had run evenly since the last update. The loader reads the
 * state and advances it to its own time (src/pelt.rs).
 */
#pragma once

#define PELT_PERIOD_NS (PELT_PERIOD << PELT_UNIT_SHIFT)

enum {
	PELT_MIN_DIVIDER = PELT_LOAD_AVG_MAX - PELT_PERIOD,
	/* longer than any time without a tick: a busy CPU has one each second or more often */
	STOOD_STILL_NS = 2000000000
};

/* (2^32 - 1) * y^n, from src/pelt.rs. */
const volatile u32 pelt_decay[PELT_HALFLIFE];

/* Return @val * y^n. */
static u64 decay_load(u64 val, u64 n)
{
	if (n >= 64 * PELT_HALFLIFE)
		return 0;
	return (val >> (n / PELT_HALFLIFE)) * pelt_decay[n % PELT_HALFLIFE] >> 32;
}

/* Account @delta units in which the CPU was used at @scale (0: idle). */
static void pelt_add(struct pelt *pelt, u64 delta, u32 scale)
{
	u64 total = delta + pelt->period_contrib, periods = total / PELT_PERIOD, contrib = delta;

	if (periods) {
		u64 d1 = PELT_PERIOD - pelt->period_contrib, d3 = total % PELT_PERIOD;

		pelt->util_sum = decay_load(pelt->util_sum, periods);
		contrib = decay_load(d1, periods) + d3 + PELT_MIN_DIVIDER -
			  decay_load(PELT_LOAD_AVG_MAX, periods);
	}
	pelt->period_contrib = total % PELT_PERIOD;
	pelt->util_sum += contrib * scale;
	pelt->util_avg = pelt->util_sum / (PELT_MIN_DIVIDER + pelt->period_contrib);
}

/*
 * Account the time since updated_at. The CPU ran for @ran ns of it, at @freq (0..CAPACITY_SCALE) of
 * its capacity @scale.
 */
static void pelt_accumulate(struct pelt *pelt, u64 now, u64 ran, u32 scale, u32 freq)
{
	u64 delta = (now - pelt->updated_at) >> PELT_UNIT_SHIFT, used = ran >> PELT_UNIT_SHIFT,
	    slow;

	if ((s64)(now - pelt->updated_at) < 0 || !delta)
		return;
	pelt->updated_at += delta << PELT_UNIT_SHIFT;
	used = min(used, delta);
	slow = used * (CAPACITY_SCALE - min(freq, CAPACITY_SCALE)) / CAPACITY_SCALE;
	if (used < delta) {
		/*
		 * The idle time makes up for pelt->behind: account that as idle. The slow part of
		 * this time is the new pelt->behind.
		 */
		pelt_add(pelt, pelt->behind, 0);
		pelt_add(pelt, delta - slow, scale * (used - slow) / (delta - slow));
		pelt->behind = slow;
	} else {
		pelt_add(pelt, delta - slow, scale);
		pelt->behind += slow;
	}
	/* The CPU is full at its present frequency: no idle time is left to make up for it. */
	if (pelt->util_avg + 1 >= scale)
		pelt->behind = 0;
}

/* Return the present frequency of @cpu, 0..CAPACITY_SCALE of its highest one. */
static u32 cpu_freq(s32 cpu)
{
	return bpf_ksym_exists(scx_bpf_cpuperf_cur) ? scx_bpf_cpuperf_cur(cpu) : CAPACITY_SCALE;
}

/*
 * Update the sum of @cpu, whose rq lock is held. Not inlined, because most calls of pelt_update()
 * do not need it. Return 0.
 */
static __noinline s32 pelt_fold(s32 cpu, struct cpu_ctx *cctx, u64 now)
{
	struct pelt *pelt = &cctx->pelt;

	/* For the loader (src/scheduler/jump.rs). */
	if (!pelt->idled && (s64)(now - pelt->updated_at) > STOOD_STILL_NS)
		cctx->stood_still = now - pelt->updated_at;
	set_mono_offset(cctx, now);
	/* Rounding must not create idle time, which would make up for the entire difference. */
	pelt_accumulate(pelt, now, pelt->idled ? pelt->ran : now - pelt->updated_at,
			cpu_layout(cpu)->capacity, cpu_freq(cpu));
	pelt->ran = 0;
	pelt->idled = false;
	if (!pelt->running) {
		pelt_add(pelt, pelt->behind, 0);
		pelt->behind = 0;
	}
	return 0;
}

/* Account the time until @now; the CPU is @running from here on. The rq lock of @cpu is held. */
static void pelt_update(s32 cpu, struct cpu_ctx *cctx, u64 now, bool running)
{
	struct pelt *pelt = &cctx->pelt;
	s64 ran = now - pelt->since;

	if (pelt->running && ran > 0) {
		pelt->ran += ran;
		/* Not by stat_add(), because another CPU does it for a CPU without a tick. */
		cctx->stats[STAT_BUSY_NS] += ran;
	} else if (ran > 0) {
		pelt->idled = true;
	}
	pelt->since = now;
	pelt->running = running;
	/* An idle CPU makes up immediately, or its util_avg would remain too high. */
	if ((s64)(now - pelt->updated_at) >= PELT_PERIOD_NS || (!running && pelt->behind))
		pelt_fold(cpu, cctx, now);
}

/* Return util_avg of a CPU at @now, rounded down to whole periods after the last update. */
static u64 util_avg_at(s32 cpu, u64 now)
{
	const struct pelt *pelt = &cpu_ctx(cpu)->pelt;
	u64 updated_at = READ_ONCE(pelt->updated_at), util_avg = READ_ONCE(pelt->util_avg);
	u64 periods = now > updated_at ? (now - updated_at) / PELT_PERIOD_NS : 0;
	u64 capacity = cpu_layout(cpu)->capacity;

	if (!pelt->running)
		return decay_load(util_avg, periods);
	return util_avg < capacity ? capacity - decay_load(capacity - util_avg, periods) : util_avg;
}

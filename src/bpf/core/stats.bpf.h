/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Counters: plain adds on the executing CPU's own lines, with interrupts off. A count may be lost
 * in timers and in the loader's programs, which an interrupt can interrupt.
 */
#pragma once

static void stat_add(enum magpie_stat stat, u64 count)
{
	this_cpu_ctx()->stats[stat] += count;
}

static void stat_inc(enum magpie_stat stat)
{
	stat_add(stat, 1);
}

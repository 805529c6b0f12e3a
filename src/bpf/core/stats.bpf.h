/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Counters: plain adds on the executing CPU's own lines. Callbacks that count run with interrupts off, so nothing comes between
 * load and store; the timer and the programs that the loader runs may lose one. The loader sums the CPUs up when asked.
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

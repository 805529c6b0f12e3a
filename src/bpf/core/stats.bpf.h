/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Counters: plain adds on the executing CPU's own lines, with interrupts off. The timer and the
 * loader's programs may lose one.
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

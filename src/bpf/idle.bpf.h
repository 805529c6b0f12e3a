/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Which CPUs are idle: idle_map, kept by the CPUs themselves, so that the kernel need not keep its own.
 *
 *	          update_idle(true)                    claim_idle()
 *	running -------------------> idle, bit set ------------------> idle, bit clear
 *	   ^                              |                               |      |
 *	   |                              | update_idle(false), running() |      | dispatch() finds nothing yet
 *	   +------------------------------+-------------------------------+      +--> idle, bit set again
 *
 * Whoever claims a CPU owes it a task or a kick.
 */
#pragma once

struct map_line idle_map[MAX_LINES];

/* Nothing is sent to a CPU that came online after the loader looked: it has no slot. */
static void mark_idle(s32 cpu, struct cpu_ctx *cctx)
{
	if (!cpu_layout(cpu)->present)
		return;
	cctx->idle = true;
	map_set(idle_map, cpu_layout(cpu)->slot);
}

static void mark_busy(s32 cpu, struct cpu_ctx *cctx)
{
	u32 slot = cpu_layout(cpu)->slot;

	if (!cctx->idle)
		return;
	cctx->idle = false;
	if (map_test(idle_map, slot))
		map_test_and_clear(idle_map, slot);
}

/* Take the CPU, if it is idle and nobody else took it. */
static bool claim_idle(s32 cpu)
{
	const volatile struct cpu_layout *l = cpu_layout(cpu);

	return l->present && map_test(idle_map, l->slot) && map_test_and_clear(idle_map, l->slot);
}

/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Which CPUs are idle: idle_map, kept by the CPUs themselves, so that the kernel need not keep its
 * own.
 *
 *	          update_idle(true)                   claim_idle()
 *	running -------------------> idle, bit set -----------------> idle, bit clear
 *	   ^                              |                              |      |
 *	   |                              | update_idle(false)           |      | dispatch() finds
 *	   +------------------------------+ or running() <---------------+      | nothing yet
 *	                                                                        v
 *	                                                                   idle, bit set again
 *
 * A CPU that is claimed gets a task or a kick from its claimer. cctx->idle is the truth; the bit
 * says that it is not claimed. pelt.running is the same for utilization, also on CPUs that are not
 * present.
 */
#pragma once

enum { MAX_BEYOND = 8 }; /* other LLCs that a search for an idle CPU goes to */

struct sparse_map idle_map;

/* Are all CPUs of the core idle, or would be if those of @bits were? */
static bool is_core_idle(const volatile struct cpu_layout *l, u64 bits)
{
	u64 core = map_bit(l->slot & ~(machine.smt_width - 1));

	bits |= READ_ONCE(map_line(&idle_map, l->slot)->bits);
	return whole_cores(bits, l->slot / SLOTS_PER_LINE) & core;
}

/*
 * Keep the hint that the LLC has a core which is idle, as the kernel's sd_llc_shared does: set by
 * the last CPU of the core to go idle, cleared by a search that finds none. Written only when it
 * changes.
 */
static void note_idle_core(s32 cpu)
{
	const volatile struct cpu_layout *l = cpu_layout(cpu);

	if (machine.smt_width > 1 && !llc_ctx(l->llc)->has_idle_core && is_core_idle(l, 0))
		llc_ctx(l->llc)->has_idle_core = true;
}

/*
 * If it is present, also when its bit is set: pairs with cpu_goes(), which has the CPU not present
 * any more and then clears the bit.
 */
static void mark_idle(s32 cpu, struct cpu_ctx *cctx)
{
	if (!is_present(cpu))
		return;
	cctx->idle = true;
	map_set(&idle_map, cpu_layout(cpu)->slot);
	if (!is_present(cpu))
		map_test_and_clear(&idle_map, cpu_layout(cpu)->slot);
	note_idle_core(cpu);
}

static void mark_busy(s32 cpu, struct cpu_ctx *cctx)
{
	u32 slot = cpu_layout(cpu)->slot;

	if (!cctx->idle)
		return;
	cctx->idle = false;
	map_test_and_clear(&idle_map, slot);
}

/* Claims the CPU; false if it is not idle, or claimed already. */
static bool claim_idle(s32 cpu)
{
	return is_present(cpu) && map_test_and_clear(&idle_map, cpu_layout(cpu)->slot);
}

/* Claims an idle CPU of @llc; -1 if there is none. */
__noinline s32 any_idle(u32 llc, u32 slot)
{
	struct map_walk walk = map_walk_from(llc, slot, ALL_SLOTS);

	map_for_each(&idle_map, &walk)
		if (map_test_and_clear(&idle_map, walk.slot))
			return slot_cpu(walk.slot);
	return -1;
}

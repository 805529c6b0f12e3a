/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * idle_map: the idle CPUs that no waker has claimed. Each CPU sets and clears its own bit; who
 * claims a CPU clears the bit of that CPU. The kernel's idle tracking is switched off.
 *
 *	          update_idle(true)                   claim_idle()
 *	running -------------------> idle, bit set -----------------> idle, bit clear
 *	   ^                              |                              |      |
 *	   |                              | update_idle(false)           |      | dispatch() finds
 *	   +------------------------------+ or running() <---------------+      | nothing yet
 *	                                                                        v
 *	                                                                   idle, bit set again
 *
 * The claimer sends the claimed CPU a task or a kick. cctx->idle says whether the CPU is idle, the
 * bit whether it is also unclaimed. pelt.running is the opposite of cctx->idle, for utilization; it
 * is also maintained on CPUs that are not usable.
 */
#pragma once

struct sparse_map idle_map;

/* Return true if all CPUs of the core are idle, counting those in @bits as idle. */
static bool is_core_idle(const volatile struct cpu_layout *l, u64 bits)
{
	u64 core = map_bit(l->slot & ~(machine.smt_width - 1));

	core |= core << (machine.smt_width - 1);
	bits |= READ_ONCE(map_line(&idle_map, l->slot)->bits);
	return whole_cores(bits, l->slot / SLOTS_PER_LINE) & core;
}

/*
 * Set the hint that the LLC has an idle core, as the kernel's sd_llc_shared does. The last CPU of
 * the core to go idle sets it; a search that finds no idle core clears it. Write it only when it
 * changes.
 */
static void set_idle_core_hint(s32 cpu)
{
	const volatile struct cpu_layout *l = cpu_layout(cpu);

	if (machine.smt_width > 1 && !llc_ctx(l->llc)->has_idle_core && is_core_idle(l, 0))
		llc_ctx(l->llc)->has_idle_core = true;
}

/*
 * Set the idle bit of @cpu, then recheck that the CPU is usable. Pairs with cpu_removed(): make the
 * CPU unusable, then clear the bit. Runs on @cpu, or in init.
 */
static void mark_idle(s32 cpu, struct cpu_ctx *cctx)
{
	if (!is_usable(cpu))
		return;
	cctx->idle = true;
	map_set(&idle_map, cpu_layout(cpu)->slot);
	if (!is_usable(cpu))
		map_test_and_clear(&idle_map, cpu_layout(cpu)->slot);
	set_idle_core_hint(cpu);
}

static void mark_busy(s32 cpu, struct cpu_ctx *cctx)
{
	u32 slot = cpu_layout(cpu)->slot;

	if (!cctx->idle)
		return;
	cctx->idle = false;
	map_test_and_clear(&idle_map, slot);
}

/* Claim @cpu. Return false if it is not idle, or is claimed already. */
static bool claim_idle(s32 cpu)
{
	return is_usable(cpu) && map_test_and_clear(&idle_map, cpu_layout(cpu)->slot);
}

/* Claim an idle CPU of @llc, the first after @slot. Return -1 if there is none. */
__noinline s32 any_idle(u32 llc, u32 slot)
{
	struct map_walk walk = map_walk_from(llc, slot, ALL_SLOTS);

	map_for_each(&idle_map, &walk)
		if (map_test_and_clear(&idle_map, walk.slot))
			return slot_cpu(walk.slot);
	return -1;
}

/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * CPUs that come online and go offline while the program is attached: SMT switched off, suspend, a
 * virtual machine. A CPU is usable when both bits of its state are set:
 *
 *	CPU_ONLINE   the kernel uses it            init, cpu_online, cpu_offline
 *	CPU_PLACED   cpu_layouts[] describes it    the loader: before it loads the program, or when
 *	                                           a CPU appears that it had never seen
 *
 * Only usable CPUs are searched, receive tasks and are counted. The tasks in the queues of a CPU
 * that goes offline move to its local DSQ, from where the kernel moves them to other CPUs.
 *
 * The kernel does not call dispatch() on a CPU that is not online; it takes the first task of the
 * local DSQ. A task whose slice is over goes there, too. If it is the only one, the CPU idles
 * although the task waits (SCX_OPS_ENQ_LAST). So slices on a CPU that is not usable are infinite.
 *
 * Hotplug callbacks do not run at the same time; the loader's place_cpu() may.
 */
#pragma once

enum { UNUSABLE_CPUS = 4 }; /* CPUs that one check_unusable() checks */

u64 nr_hotplugs; /* CPUs that came online or went offline; the loader polls it */

/*
 * Update nr_cpus and usable_slots of the LLC, because @cpu has become usable, or no longer is.
 *
 *	CPU 0, @cpu appears                  CPU 1, @cpu goes offline
 *	set the slot's bit, full barrier     clear the state, full barrier
 *	not usable: clear the slot's bit     clear the slot's bit
 */
static void count_usable(s32 cpu, bool usable)
{
	const volatile struct cpu_layout *l = cpu_layout(cpu);
	u32 *slots = &usable_slots[(l->slot / SLOTS_PER_LINE) & (MAX_LINES - 1)];
	u32 *nr_cpus = &llc_layouts[l->llc & (MAX_LLCS - 1)].nr_cpus;

	if (usable) {
		u32 was = __sync_fetch_and_or(slots, map_bit(l->slot));

		barrier_var(was);
		if (!is_usable(cpu))
			__sync_fetch_and_and(slots, ~map_bit(l->slot));
		__sync_fetch_and_add(nr_cpus, 1);
	} else {
		__sync_fetch_and_and(slots, ~map_bit(l->slot));
		__sync_fetch_and_add(nr_cpus, -1);
	}
}

/*
 * Set the slice of @p on a CPU that is not usable: 0 at a @tick if others wait, otherwise infinite.
 */
static void run_on_unusable(struct task_struct *p, bool tick)
{
	bool others = tick && scx_bpf_dsq_nr_queued(SCX_DSQ_LOCAL_ON | scx_bpf_task_cpu(p));

	scx_bpf_task_set_slice(p, others ? 0 : SCX_SLICE_INF);
}

/*
 * In tick of any CPU: kick CPUs that are not usable and have a task in the local DSQ. They may
 * idle, or run a task without a tick. Bounded by UNUSABLE_CPUS; the next call continues.
 */
static void check_unusable(struct cpu_ctx *cctx)
{
	u32 i;

	bpf_for(i, 0, UNUSABLE_CPUS) {
		s32 other = cctx->unusable_turn++ % machine.nr_cpu_ids;

		if (!is_usable(other) && is_possible(other) &&
		    scx_bpf_dsq_nr_queued(SCX_DSQ_LOCAL_ON | other) > 0)
			kick_cpu(other, is_nohz_full(other) ? SCX_KICK_PREEMPT : 0);
	}
}

/* Note that @cpu came online (@by is CPU_ONLINE), or that the loader has placed it. */
static void cpu_appears(s32 cpu, u32 by)
{
	u32 was = __sync_fetch_and_or(&cpu_layouts[cpu & (MAX_CPUS - 1)].state, by);

	if (was != CPU_USABLE && (was | by) == CPU_USABLE)
		count_usable(cpu, true);
}

/*
 * Note that @cpu goes offline. Full barrier, because the value is used: pairs with mark_idle(),
 * which sets the idle bit and then checks that the CPU is usable.
 */
static void cpu_removed(s32 cpu)
{
	u32 was = __sync_fetch_and_and(&cpu_layouts[cpu & (MAX_CPUS - 1)].state, ~CPU_ONLINE);

	if (was != CPU_USABLE)
		return;
	count_usable(cpu, false);
	map_test_and_clear(&idle_map, cpu_layout(cpu)->slot);
}

/*
 * In cpu_offline: move all tasks of @queue to the local DSQ of @cpu, from where the kernel moves
 * them to other CPUs. The runqueue is offline: no task is added to @queue any more. Bounded by the
 * tasks that wait there. Return 0.
 */
__noinline s32 empty_queue(s32 cpu, u64 queue)
{
	struct task_struct *p;

	bpf_for_each(scx_dsq, p, queue, 0)
		scx_bpf_dsq_move(BPF_FOR_EACH_ITER, p, SCX_DSQ_LOCAL_ON | cpu, 0);
	return 0;
}

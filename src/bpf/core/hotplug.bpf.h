/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * CPUs that go and come while we are attached: SMT switched off, suspend, a virtual machine. A CPU is present when
 *
 *	CPU_ONLINE   the kernel has it         init, cpu_online, cpu_offline
 *	CPU_PLACED   cpu_layouts[] has it      the loader: before it loads the program, or when a CPU comes that it had never seen
 *
 * Only present CPUs are searched for, sent tasks and counted. What stays behind in the queues of one that goes is put into its
 * local DSQ, from where the kernel moves tasks to other CPUs, also those that were pinned.
 *
 * Callbacks of CPUs that go and come do not run at the same time; the loader's place_cpus() may.
 */
#pragma once

u64 nr_hotplugs; /* CPUs that went or came; the loader looks whether it has to do something */

/* What the other CPUs of its LLC go by follows whether @cpu is present. */
static void count_present(s32 cpu, bool present)
{
	const volatile struct cpu_layout *l = cpu_layout(cpu);
	u32 *slots = &present_slots[(l->slot / SLOTS_PER_LINE) & (MAX_LINES - 1)];
	u32 *nr_cpus = &llc_layouts[l->llc & (MAX_LLCS - 1)].nr_cpus;

	if (present) {
		__sync_fetch_and_or(slots, map_bit(l->slot));
		__sync_fetch_and_add(nr_cpus, 1);
	} else {
		__sync_fetch_and_and(slots, ~map_bit(l->slot));
		__sync_fetch_and_add(nr_cpus, -1);
	}
}

/* In init, where no CPU comes or goes. */
static bool is_online(s32 cpu)
{
	const struct cpumask *online = scx_bpf_get_online_cpumask();
	bool is = bpf_cpumask_test_cpu(cpu, online);

	scx_bpf_put_cpumask(online);
	return is;
}

/* @cpu came, or the loader has found its place. */
static void cpu_comes(s32 cpu, u32 by)
{
	u32 was = __sync_fetch_and_or(&cpu_layouts[cpu & (MAX_CPUS - 1)].state, by);

	if (was != CPU_PRESENT && (was | by) == CPU_PRESENT)
		count_present(cpu, true);
}

/*
 * @cpu went. The value makes it a full barrier: pairs with mark_idle(), which sets the CPU's bit and then looks whether the CPU is
 * present.
 */
static void cpu_goes(s32 cpu)
{
	u32 was = __sync_fetch_and_and(&cpu_layouts[cpu & (MAX_CPUS - 1)].state, ~CPU_ONLINE);

	if (was != CPU_PRESENT)
		return;
	count_present(cpu, false);
	map_test_and_clear(&idle_map, cpu_layout(cpu)->slot);
}

/*
 * In cpu_offline: all that waits in @queue goes to the local DSQ of @cpu. Its runqueue is offline: nothing is put into @queue any
 * more. Bounded by the tasks that wait there.
 */
__noinline s32 empty_queue(s32 cpu, u64 queue)
{
	struct task_struct *p;

	bpf_for_each(scx_dsq, p, queue, 0) scx_bpf_dsq_move(BPF_FOR_EACH_ITER, p, SCX_DSQ_LOCAL_ON | cpu, 0);
	return 0;
}

/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Kicks: interrupts that make a CPU schedule, one at most for a task that is placed or
 * queued.
 */
#pragma once

/*
 * May this CPU kick others? A kick is an irq_work of the CPU that it comes from: of one that serves
 * no interrupts any more it stays pending, and with it all kicks of that CPU when it is back. What
 * is not kicked finds its tasks with a tick.
 */
__noinline bool can_kick(void)
{
	s32 cpu = bpf_get_smp_processor_id();

	return READ_ONCE(cpu_layout(cpu)->state) & CPU_ONLINE || is_online(cpu);
}

/*
 * As kick_cpu(), where can_kick() was asked. A function of its own for the callers' stacks. Returns
 * 0.
 */
__noinline s32 send_kick(s32 cpu, u64 flags)
{
	if (cpu != (s32)bpf_get_smp_processor_id())
		stat_inc(STAT_IPI);
	scx_bpf_kick_cpu(cpu, flags);
	return 0;
}

static void kick_cpu(s32 cpu, u64 flags)
{
	if (can_kick())
		send_kick(cpu, flags);
}

/*
 * A cpu.max was set: a task that has no tick does not see it. Bounded by the number of CPUs.
 * Returns 0.
 */
__noinline s32 kick_tickless(void)
{
	s32 cpu;

	bpf_for(cpu, 0, machine.nr_cpu_ids)
		if (is_tickless(cpu_ctx(cpu)))
			kick_cpu(cpu, SCX_KICK_PREEMPT);
	return 0;
}

/* SPDX-License-Identifier: GPL-2.0-only */
/* Kicks: a kick makes a CPU call schedule(). The kernel sends an interrupt to another CPU. */
#pragma once

/*
 * Return true if this CPU may kick CPUs. A kick is an irq_work of the kicking CPU. If that CPU no
 * longer serves interrupts, the irq_work remains pending, and the CPU can kick no CPU when it is
 * online again. A CPU that is not kicked finds its tasks at a tick.
 */
__noinline bool can_kick(void)
{
	s32 cpu = bpf_get_smp_processor_id();

	return READ_ONCE(cpu_layout(cpu)->state) & CPU_ONLINE || is_online(cpu);
}

/* Kick @cpu; the caller has checked can_kick(). Not inlined, to save stack there. Return 0. */
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
 * Kick all CPUs without a tick, which do not notice that a cpu.max was set. Bounded by the number
 * of CPUs. Return 0.
 */
__noinline s32 kick_tickless(void)
{
	s32 cpu;

	bpf_for(cpu, 0, machine.nr_cpu_ids)
		if (is_tickless(cpu_ctx(cpu)))
			kick_cpu(cpu, SCX_KICK_PREEMPT);
	return 0;
}

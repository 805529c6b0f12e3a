/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Programs that the loader runs, for data that only the kernel has or may change. No lock is held;
 * interrupts are on.
 */
#pragma once

/* Note the process of the loader by its PID of the initial namespace. */
SEC("syscall")
int register_loader(void *ctx)
{
	loader_tgid = bpf_get_current_pid_tgid() >> 32;
	return 0;
}

/*
 * Note the kernel's capacities, once the program is attached: the kernel reports them only then,
 * and on x86 they say more than sysfs.
 */
SEC("syscall")
int read_capacities(void *ctx)
{
	s32 cpu;

	bpf_for(cpu, 0, machine.nr_cpu_ids)
		if (is_usable(cpu))
			kernel_capacities[cpu & (MAX_CPUS - 1)] = scx_bpf_cpuperf_cap(cpu);
	return 0;
}

/* Lower the frequency targets of CPUs that stay idle, each util_interval. */
SEC("syscall")
int decay_cpuperfs(void *ctx)
{
	s32 cpu;

	bpf_for(cpu, 0, machine.nr_cpu_ids)
		if (is_usable(cpu))
			decay_cpuperf(cpu, unlocked_now());
	return 0;
}

/*
 * Make a new CPU usable that the loader has placed in cpu_layouts[], slot_cpus[] and its LLC's
 * nr_slots. If the CPU is idle, it sets its idle bit itself.
 */
SEC("syscall")
int place_cpu(struct placed_cpu *placed)
{
	cpu_appears(placed->cpu, CPU_PLACED);
	/* The slice of its current is infinite. */
	kick_cpu(placed->cpu, SCX_KICK_PREEMPT);
	return 0;
}

/*
 * Poll what the kernel does not report: autogroups, and some settings of cgroups. Run 10 times a
 * second; not with --no-cgroups.
 */
SEC("syscall")
int poll_groups(void *ctx)
{
	check_groups();
	return 0;
}

/* Return 1 if programs use core scheduling now. */
SEC("syscall")
int core_sched(void *ctx)
{
	return core_sched_in_use();
}

/* Note how many tasks wait in the queues of each CPU, and its frequency target, for statistics. */
SEC("syscall")
int sample_queues(void *ctx)
{
	s32 cpu;

	bpf_for(cpu, 0, machine.nr_cpu_ids) {
		if (!is_usable(cpu))
			continue;
		cpu_ctx(cpu)->nr_queued =
			scx_bpf_dsq_nr_queued(cpu) + scx_bpf_dsq_nr_queued(pinned_queue(cpu));
		cpu_ctx(cpu)->cpuperf_target = cpuperf_target(cpu);
	}
	return 0;
}

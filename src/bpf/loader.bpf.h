/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Programs that the loader runs, for what only the kernel knows or may change. No lock is held;
 * interrupts are on.
 */
#pragma once

/* Run by the loader: notes its process, whatever PID namespace it is in. */
SEC("syscall")
int register_loader(void *ctx)
{
	loader_tgid = bpf_get_current_pid_tgid() >> 32;
	return 0;
}

/*
 * Run by the loader once we are attached, which is when the kernel tells: it knows more than sysfs
 * shows (x86).
 */
SEC("syscall")
int note_capacities(void *ctx)
{
	s32 cpu;

	bpf_for(cpu, 0, machine.nr_cpu_ids)
		if (is_present(cpu))
			kernel_capacities[cpu & (MAX_CPUS - 1)] = scx_bpf_cpuperf_cap(cpu);
	return 0;
}

/* Run by the loader each util_interval: lowers the targets of CPUs that stay idle. */
SEC("syscall")
int decay_cpuperfs(void *ctx)
{
	s32 cpu;

	bpf_for(cpu, 0, machine.nr_cpu_ids)
		if (is_present(cpu))
			decay_cpuperf(cpu, unlocked_now());
	return 0;
}

/*
 * Run by the loader: a CPU has come, and cpu_layouts[], slot_cpus[] and its LLC's nr_slots have it.
 * If it idles, it says so.
 */
SEC("syscall")
int place_cpu(struct placed_cpu *placed)
{
	cpu_comes(placed->cpu, CPU_PLACED);
	/* The slice of its current is infinite. */
	kick_cpu(placed->cpu, SCX_KICK_PREEMPT);
	return 0;
}

/* Run by the loader ten times a second, unless --no-cgroups. */
SEC("syscall")
int poll_groups(void *ctx)
{
	look_at_groups();
	return 0;
}

/*
 * Run by the loader when statistics are asked for: notes how many tasks wait in each queue, and the
 * CPUs' targets.
 */
SEC("syscall")
int sample_queues(void *ctx)
{
	s32 cpu;

	bpf_for(cpu, 0, machine.nr_cpu_ids) {
		if (!is_present(cpu))
			continue;
		cpu_ctx(cpu)->nr_queued =
			scx_bpf_dsq_nr_queued(cpu) + scx_bpf_dsq_nr_queued(pinned_queue(cpu));
		cpu_ctx(cpu)->cpuperf_target = cpuperf_target(cpu);
	}
	return 0;
}

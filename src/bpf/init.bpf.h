/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The queues of all CPUs, and what becomes of them when a CPU comes or goes (core/hotplug.bpf.h).
 */
#pragma once

/*
 * @cpu has come, and its runqueue is about to be used. No rq lock is held. An id beyond what there
 * is room for would be taken for another CPU's.
 */
void BPF_STRUCT_OPS(magpie_cpu_online, s32 cpu)
{
	if (cpu >= machine.nr_cpu_ids) {
		scx_bpf_error("CPU %d came: there is room for %d", cpu, machine.nr_cpu_ids);
		return;
	}
	cpu_comes(cpu, CPU_ONLINE);
	nr_hotplugs++;
}

/*
 * @cpu goes, and its runqueue is not used any more, but for its local DSQ. On its own thread for
 * that; no rq lock is held.
 */
void BPF_STRUCT_OPS(magpie_cpu_offline, s32 cpu)
{
	cpu_goes(cpu);
	run_on_absent(bpf_get_current_task_btf(), false);
	empty_queue(cpu, cpu);
	empty_queue(cpu, pinned_queue(cpu));
	empty_queue(cpu, throttled_queue(cpu));
	note_none_queued(cpu, cpu_ctx(cpu));
	nr_hotplugs++;
}

/*
 * Sleepable. Creates the queues of all CPUs that may come, and notes which are online and idle.
 * None comes or goes meanwhile.
 */
s32 BPF_STRUCT_OPS_SLEEPABLE(magpie_init)
{
	struct task_struct *curr;
	s32 cpu, err;

	bpf_for(cpu, 0, machine.nr_cpu_ids) {
		s32 node = cpu_layout(cpu)->state ? cpu_node(cpu) : NO_NODE;

		if (!is_possible(cpu))
			continue;
		err = scx_bpf_create_dsq(cpu, node) ?: scx_bpf_create_dsq(pinned_queue(cpu), node)
			      ?: scx_bpf_create_dsq(throttled_queue(cpu), node);
		if (err) {
			scx_bpf_error("cannot create the queues of CPU %d: %d", cpu, err);
			return err;
		}
		init_throttle_timer(cpu);
		cpu_ctx(cpu)->pelt.updated_at = cpu_ctx(cpu)->pelt.since = scx_bpf_now();
		note_clock(cpu_ctx(cpu), scx_bpf_now());
		cpu_ctx(cpu)->steal_slot = NO_SLOT;
		if (is_online(cpu))
			cpu_comes(cpu, CPU_ONLINE);
		bpf_rcu_read_lock();
		curr = __COMPAT_scx_bpf_cpu_curr(cpu);
		if (curr && is_idle_task(curr))
			mark_idle(cpu, cpu_ctx(cpu));
		bpf_rcu_read_unlock();
	}
	return 0;
}

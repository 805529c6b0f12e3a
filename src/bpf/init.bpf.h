/* SPDX-License-Identifier: GPL-2.0-only */
/* Callbacks for the program, a CPU (hotplug.bpf.h) or a task that appears or is removed. */
#pragma once

/*
 * Note that @cpu is online, which makes it usable if it is placed. Its runqueue is not yet in use;
 * no rq lock is held. Refuse an id out of range, whose masked index would be that of another CPU.
 */
void BPF_STRUCT_OPS(magpie_cpu_online, s32 cpu)
{
	if (cpu >= machine.nr_cpu_ids) {
		scx_bpf_error("CPU %d came: there is room for %d", cpu, machine.nr_cpu_ids);
		return;
	}
	cpu_appears(cpu, CPU_ONLINE);
	nr_hotplugs++;
}

/*
 * Make @cpu unusable, and move its waiting tasks to its local DSQ. Runs on @cpu, in its hotplug
 * thread. The runqueue is no longer used, except the local DSQ; no rq lock is held.
 */
void BPF_STRUCT_OPS(magpie_cpu_offline, s32 cpu)
{
	cpu_removed(cpu);
	run_on_unusable(bpf_get_current_task_btf(), false);
	empty_queue(cpu, cpu);
	empty_queue(cpu, pinned_queue(cpu));
	empty_queue(cpu, throttled_queue(cpu));
	clear_queues(cpu, cpu_ctx(cpu));
	nr_hotplugs++;
}

/*
 * Create the queues of all possible CPUs, and note which are online and idle. Sleepable. No CPU
 * comes online or goes offline meanwhile.
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
		init_slice_timer(cpu);
		cpu_ctx(cpu)->pelt.updated_at = cpu_ctx(cpu)->pelt.since = scx_bpf_now();
		set_mono_offset(cpu_ctx(cpu), scx_bpf_now());
		cpu_ctx(cpu)->steal_slot = NO_SLOT;
		cpu_ctx(cpu)->queued_slice = SCX_SLICE_INF;
		if (is_online(cpu))
			cpu_appears(cpu, CPU_ONLINE);
		bpf_rcu_read_lock();
		curr = __COMPAT_scx_bpf_cpu_curr(cpu);
		if (curr && is_idle_task(curr))
			mark_idle(cpu, cpu_ctx(cpu));
		bpf_rcu_read_unlock();
	}
	return 0;
}

/* Create the context of @p. Sleepable. */
s32 BPF_STRUCT_OPS_SLEEPABLE(magpie_init_task, struct task_struct *p,
			     struct scx_init_task_args *args)
{
	struct task_ctx *tctx =
		bpf_task_storage_get(&task_ctxs, p, NULL, BPF_LOCAL_STORAGE_GET_F_CREATE);

	if (!tctx)
		return -ENOMEM;
	tctx->vtime_cpu = -1;
	tctx->share = WEIGHT_DFL << WEIGHT_SHIFT;
	tctx->burst_est = tunables.slice_ns;
	set_slice(tctx, slice_of(p));
	tctx->charged = tctx->woke_exec = p->se.sum_exec_runtime;
	tctx->sync_wakeup = true;
	tctx->recent = -1;
	tctx->preferred_node = NO_NODE;
	tctx->uclamp_max = CAPACITY_SCALE;
	if (machine.cgroups) {
		/* The kernel holds a reference to the group; the lock is for the verifier. */
		bpf_rcu_read_lock();
		if (bpf_core_field_exists(args->cgroup) && args->cgroup)
			tctx->group = group_id(args->cgroup);
		bpf_rcu_read_unlock();
	}
	return 0;
}

/*
 * Forget @p, which leaves sched_ext or exits, and may have been waiting. If it runs, it becomes a
 * real-time task: other CPUs may take the tasks that wait behind it. Its rq lock is held.
 */
void BPF_STRUCT_OPS(magpie_disable, struct task_struct *p)
{
	struct task_ctx *tctx = task_ctx(p);

	if (scx_bpf_task_running(p))
		release_cpu(scx_bpf_task_cpu(p));
	if (!tctx)
		return;
	queue_del(tctx);
	tctx->at_user = false;
	tctx->enqueued_at = 0;
	/* It has no lag when it returns. */
	tctx->vtime_cpu = -1;
	group_leave(tctx, scx_bpf_task_cpu(p), scx_bpf_now());
	leave_autogroup(tctx);
}

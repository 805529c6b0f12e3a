/* SPDX-License-Identifier: GPL-2.0-only */
/* The state and the kind of a task. */
#pragma once

#ifndef MAX_RT_PRIO
#define MAX_RT_PRIO 100
#endif
#ifndef SCHED_BATCH
#define SCHED_BATCH 3
#endif
#ifndef SCHED_IDLE
#define SCHED_IDLE 5
#endif

/* Why a running task should move to another CPU: search/move.bpf.h. */
enum move_why {
	MOVE_NOT,
	MOVE_PREFERRED,
	MOVE_UP,
	MOVE_ROOM,
};

/*
 * Where a task is:
 *
 *	                                    enqueued_at   queued_cpu   queued_weight
 *	runs, sleeps, or in a local DSQ     0             any          0
 *	in a queue of a CPU                 since when    the CPU      its weight
 *	taken from there, about to run      the same      the same     the same
 *	throttled                           since when    NO_CPU       0
 *
 * Written under the rq lock of the task's CPU, or in select_cpu while the task sleeps. Current
 * itself writes without that lock: at_user and asked, on its way to user space
 * (cgroup/boundary.bpf.h); move_why, preferred_retry_at and numa_backoff, as a waker (numa/).
 */
struct task_ctx {
	/* order/deadline.bpf.h */
	u64 vruntime; /* weighted ns of CPU time, on the virtual time of vtime_cpu */
	u64 deadline; /* its place in the order, on the same virtual time */
	s64 lag;      /* when it last slept */
	u64 slice;    /* slice_of() when its deadline was last computed */
	u64 short_ns; /* it is short if it runs for less */
	u64 vslice;   /* virtual time of this slice at vslice_weight */
	u32 vslice_weight;
	u8 sync_wakeup;	 /* the last wakeup was sync */
	u8 is_new;	 /* a timer, a device or a futex woke it, less than a slice ago */
	u8 has_credit;	 /* ... and its deadline includes the credit */
	u8 preempted_by; /* enum preempter, when it stopped */
	u8 resumes;	 /* it waits for the rest of its slice */
	u8 yielded;	 /* it called sched_yield(), and has not run since */
	u8 arrives;	 /* sent to an idle CPU, or taken from another one, and has not run since */
	u64 charged;	 /* sum_exec_runtime when vruntime was last updated */
	u64 woke_exec;	 /* sum_exec_runtime when it last woke: its burst begins there */
	u64 slice_end;	 /* sum_exec_runtime at the end of its slice */
	/* estimated ns of run time between two sleeps; rises immediately, falls slowly */
	u64 burst_est;
	s32 vtime_cpu; /* where it ran or waits; -1: new */
	s32 recent;    /* vtime_cpu before */

	/* order/queue.bpf.h */
	/* where it waits, or did; NO_CPU: throttled (run/throttle.bpf.h) */
	s32 queued_cpu;
	u32 queued_weight; /* its weight in queued_load; 0: not queued */
	u32 local_weight;  /* its weight in local_load of queued_cpu; 0: not there */
	u64 enqueued_at;   /* scx_bpf_now() when it was queued; 0: it has run since */
	u64 stopped_at;	   /* scx_bpf_now() when it last ran; 0: never */

	/* cgroup/weight.bpf.h */
	u64 task_group; /* p->sched_task_group at the last find_autogroup(); 0: not yet */
	u32 group;	/* id; 0: the root */
	u32 prio;	/* prio() when its weight was last checked */
	u32 counted;	/* plain_weight() in the group's sum; 0: not counted; kept in the root */
	u32 share;	/* group_share() when it was last checked, */
	u32 share_of;	/* ... for this plain weight, */
	u64 share_at;	/* ... at this scx_bpf_now() */

	/* cgroup/boundary.bpf.h */
	u8 at_user;   /* at the boundary of user space, and has done nothing since */
	u8 asked;     /* task work is requested */
	u8 sent_back; /* to the throttled queue, since it was last queued */

	/* wake/ */
	/* how often in a row it slept soon after a sync wakeup of another task */
	s32 handoff_score;
	s32 preferred_node; /* NO_NODE: none yet */
	/* part of its run time on preferred_node, decaying: 0..PREFERRED_ALL */
	s32 preferred_share;
	u64 preferred_retry_at; /* scx_bpf_now() from which on it may return there */
	u8 numa_backoff;	/* preferred_retry_at is wake-affine's back-off */

	/* search/move.bpf.h */
	u8 move_why; /* enum move_why: send it to another CPU at the next enqueue */
	/*
	 * scx_bpf_now() of the first of the last consecutive checks that found room elsewhere; 0:
	 * the last check found none
	 */
	u64 room_since;

	/* capacity/task_util.bpf.h: only where CPUs differ in capacity */
	u32 task_util;	/* expected utilization: 0..CAPACITY_SCALE */
	u32 util_est;	/* its util_avg when it last slept; rises immediately, falls slowly */
	u16 uclamp_min; /* bounds of task_util */
	u16 uclamp_max;
	struct pelt util; /* of its run time */
};

struct {
	__uint(type, BPF_MAP_TYPE_TASK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct task_ctx);
} task_ctxs SEC(".maps");

/* The loader's thread group, which never waits behind the load it measures; 0: not known yet. */
s32 loader_tgid;

/* Return the context of @p. NULL only without init_task(); sched_ext does not pass such tasks. */
static struct task_ctx *task_ctx(struct task_struct *p)
{
	return bpf_task_storage_get(&task_ctxs, p, NULL, 0);
}

static bool is_idle_task(const struct task_struct *p)
{
	return p->flags & PF_IDLE;
}

/*
 * The migrate_disable() count that the BPF trampoline adds to current in a callback: 0, 1 or
 * NO_PROLOG (unknown).
 */
enum { NO_PROLOG = 0xff };
u8 prolog_disables = NO_PROLOG;

/*
 * In a callback of an idle CPU: set prolog_disables from the idle task, which never disables
 * migration itself.
 */
static void read_prolog_depth(void)
{
	const struct task_struct *curr;

	if (prolog_disables != NO_PROLOG)
		return;
	curr = bpf_get_current_task_btf();
	if (is_idle_task(curr))
		prolog_disables = curr->migration_disabled;
}

/*
 * Return true if @p may migrate, as a hint: the kernel has the last word. If @p is current, which
 * is being put back into a queue, ignore what the prologs of callbacks add to migration_disabled.
 * There are two prologs if a higher class takes the CPU, because cpu_release() puts @p back.
 */
static bool is_migratable(const struct task_struct *p)
{
	if (!p->migration_disabled || p->nr_cpus_allowed == 1)
		return p->nr_cpus_allowed > 1;
	return p == bpf_get_current_task_btf() &&
	       p->migration_disabled <= prolog_disables << this_cpu_ctx()->released;
}

/*
 * Return true only if @p may certainly migrate: the kernel ejects a scheduler that moves a task
 * that may not. False during two prologs.
 */
static bool can_migrate_now(const struct task_struct *p)
{
	u32 ours = p == bpf_get_current_task_btf() ? prolog_disables : 0;

	return p->nr_cpus_allowed > 1 && p->migration_disabled == ours;
}

/*
 * Return true for tasks that run immediately: kernel threads of one CPU (softirq, workers), and the
 * loader except its sampling thread.
 */
static bool is_critical(const struct task_struct *p)
{
	return (p->flags & PF_KTHREAD && p->nr_cpus_allowed == 1) ||
	       (p->tgid == loader_tgid && p->policy != SCHED_BATCH);
}

/* Return true if @p may use @cpu. Not inlined: loads of cpus_ptr cost the verifier milliseconds. */
__noinline bool in_cpus_ptr(struct task_struct *p __arg_trusted, s32 cpu)
{
	return bpf_cpumask_test_cpu(cpu, p->cpus_ptr);
}

/* Return true if the CPU runs a task of sched_ext that is neither critical nor being preempted. */
static bool is_preemptible(const struct cpu_ctx *cctx)
{
	return READ_ONCE(cctx->curr_weight) && !READ_ONCE(cctx->curr_critical) &&
	       !READ_ONCE(cctx->preempted_by);
}

/* Return true if the own policy of @p lets it preempt no task. */
static bool no_preempt(const struct task_struct *p)
{
	return p->policy == SCHED_BATCH || p->policy == SCHED_IDLE;
}

static bool is_restricted(const struct task_struct *p)
{
	return p->nr_cpus_allowed < machine.nr_cpus_possible;
}

static bool may_use(struct task_struct *p, s32 cpu)
{
	return !is_restricted(p) || in_cpus_ptr(p, cpu);
}

/*
 * Return true if @p, which waits on another CPU, may move to @cpu. The kernel ejects a scheduler
 * that moves other tasks.
 */
static bool can_migrate_to(struct task_struct *p, s32 cpu)
{
	return !p->migration_disabled && may_use(p, cpu);
}

/* Return an online CPU that the task may use, else @prev: the kernel finds another one then. */
static s32 any_allowed(const struct task_struct *p, s32 prev)
{
	const struct cpumask *online = scx_bpf_get_online_cpumask();
	u32 cpu = bpf_cpumask_any_and_distribute(p->cpus_ptr, online);

	scx_bpf_put_cpumask(online);
	return cpu < machine.nr_cpu_ids ? cpu : prev;
}

/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * What is remembered of a task, and what kind of task it is.
 */
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

/* Why a running task is to go elsewhere: search/move.bpf.h. */
enum move_why {
	MOVE_NOT,
	MOVE_HOME,
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
 * Written by the task's CPU under its rq lock, or in select_cpu while the task sleeps. Current
 * itself writes without that lock at_user and asked on its way to user space
 * (cgroup/boundary.bpf.h), and move_why and home_retry_at as a waker (numa/).
 */
struct task_ctx {
	/* order/deadline.bpf.h */
	u64 vruntime; /* weighted ns of CPU time, on the clock of vclock_cpu */
	u64 deadline; /* its place in the order, on the same clock */
	u64 vslice;   /* virtual time of a slice of vslice_ns at vslice_weight */
	u64 vslice_ns;
	u32 vslice_weight;
	u8 sync_wakeup;	 /* what woke it: see there */
	u8 has_credit;	 /* and what deadline has of that */
	u8 preempted_by; /* enum preempter, when it stopped */
	u8 resumes;	 /* it waits for the rest of its slice */
	u8 arrives;	 /* sent to an idle CPU, or taken from another one, and has not run since */
	u64 charged;	 /* sum_exec_runtime when vruntime was brought up to date */
	u64 woke_exec;	 /* sum_exec_runtime when it last woke: from there on it is one burst */
	u64 slice_end;	 /* sum_exec_runtime at the end of its slice */
	/* ns for which it runs between two sleeps, rising at once and falling slowly */
	u64 burst_est;
	s32 vclock_cpu; /* where it ran or waits; -1: new */
	s32 recent;	/* vclock_cpu before */

	/* order/queue.bpf.h */
	/* where it waits, or did; NO_CPU: for its cpu.max (cgroup/throttle.bpf.h) */
	s32 queued_cpu;
	u32 queued_weight; /* what it counts for there; 0: it waits nowhere */
	u64 enqueued_at;   /* scx_bpf_now() when it was put into a queue; 0: it has run since */
	u64 stopped_at;	   /* scx_bpf_now() when it last ran; 0: never */

	/* cgroup/weight.bpf.h */
	u64 task_group; /* p->sched_task_group when find_autogroup() last looked; 0: not yet */
	u32 group;	/* id; 0: the root */
	u32 prio;	/* prio(), when its weight was last looked at */
	u32 counted;	/* plain_weight(), in the group's sum; 0: not runnable, but in the root */
	u32 share;	/* group_share() when it was last looked at, */
	u32 share_of;	/* ... of this plain weight, */
	u64 share_at;	/* ... at this scx_bpf_now() */

	/* cgroup/boundary.bpf.h */
	u8 at_user;   /* at the boundary of user space, and has done nothing since */
	u8 asked;     /* to tell when it gets there */
	u8 sent_back; /* for want of a slice, since it was last queued */

	/* numa/wake_affine.bpf.h, handoff.bpf.h, home.bpf.h */
	/* how often in a row it slept soon after a sync wakeup of another task */
	s32 handoff_score;
	s32 preferred_node; /* NO_NODE: none yet */
	s32 home_share;	    /* of its run time that is there, decaying: 0..HOME_ALL */
	u64 home_retry_at;  /* scx_bpf_now() from which on it may be moved there */
	u8 numa_backoff;    /* home_retry_at is wake-affine's back-off */

	/* search/move.bpf.h */
	u8 move_why; /* enum move_why: to be sent elsewhere when it is next put into a queue */
	/*
	 * scx_bpf_now() of the first of the last looks that all found room elsewhere; 0: the last
	 * one did not
	 */
	u64 room_since;

	/* capacity/task_util.bpf.h: where CPUs differ in capacity only */
	u32 task_util;	  /* what it is expected to use of a CPU: 0..CAPACITY_SCALE */
	u32 util_est;	  /* its util_avg when it fell asleep, rising at once and falling slowly */
	struct pelt util; /* of the time that it runs */
};

struct {
	__uint(type, BPF_MAP_TYPE_TASK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct task_ctx);
} task_ctxs SEC(".maps");

/*
 * The loader's thread group, so that it never waits behind the load it measures; 0: not known yet.
 */
s32 loader_tgid;

/* NULL only for a task that init_task() never saw, which sched_ext does not hand to us. */
static struct task_ctx *task_ctx(struct task_struct *p)
{
	return bpf_task_storage_get(&task_ctxs, p, NULL, 0);
}

static bool is_idle_task(const struct task_struct *p)
{
	return p->flags & PF_IDLE;
}

/*
 * What the prolog of a callback adds to the current task's migration_disabled: 0 or 1; NO_PROLOG:
 * not yet known.
 */
enum { NO_PROLOG = 0xff };
u8 prolog_disables = NO_PROLOG;

/*
 * When an idle CPU's callback comes to know it, for the idle task itself is never migration
 * disabled.
 */
static void note_prolog(void)
{
	const struct task_struct *curr;

	if (prolog_disables != NO_PROLOG)
		return;
	curr = bpf_get_current_task_btf();
	if (is_idle_task(curr))
		prolog_disables = curr->migration_disabled;
}

/*
 * @p is the current task when it is being put back into a queue: what prologs add is not held
 * against it. They are two when a higher class takes the CPU, for cpu_release() puts it back. Only
 * a hint: the kernel has the last word.
 */
static bool is_migratable(const struct task_struct *p)
{
	if (!p->migration_disabled || p->nr_cpus_allowed == 1)
		return p->nr_cpus_allowed > 1;
	return p == bpf_get_current_task_btf() &&
	       p->migration_disabled <= prolog_disables << this_cpu_ctx()->taken;
}

/*
 * The same, known exactly: the kernel ejects a scheduler that sends away a task which may not
 * migrate. False for two prologs.
 */
static bool can_migrate_now(const struct task_struct *p)
{
	u32 ours = p == bpf_get_current_task_btf() ? prolog_disables : 0;

	return p->nr_cpus_allowed > 1 && p->migration_disabled == ours;
}

/*
 * Kernel threads of one CPU (softirq, workers), and the loader, except its thread that samples:
 * they run immediately.
 */
static bool is_critical(const struct task_struct *p)
{
	return (p->flags & PF_KTHREAD && p->nr_cpus_allowed == 1) ||
	       (p->tgid == loader_tgid && p->policy != SCHED_BATCH);
}

/*
 * A function of its own, for the verifier takes milliseconds to judge a load of cpus_ptr: once is
 * enough.
 */
__noinline bool in_cpus_ptr(struct task_struct *p __arg_trusted, s32 cpu)
{
	return bpf_cpumask_test_cpu(cpu, p->cpus_ptr);
}

/* Does a task of sched_ext run there that may be preempted, and is not yet? */
static bool is_preemptible(const struct cpu_ctx *cctx)
{
	return READ_ONCE(cctx->curr_weight) && !READ_ONCE(cctx->curr_critical) &&
	       !READ_ONCE(cctx->preempted_by);
}

/* By its own policy it preempts no task. */
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
 * May @p, which waits on another CPU, come to @cpu? The kernel ejects a scheduler that moves one
 * that may not.
 */
static bool can_migrate_to(struct task_struct *p, s32 cpu)
{
	return !p->migration_disabled && may_use(p, cpu);
}

/* Any online CPU that the task may use; @prev if there is none, and then the kernel finds one. */
static s32 any_allowed(const struct task_struct *p, s32 prev)
{
	const struct cpumask *online = scx_bpf_get_online_cpumask();
	u32 cpu = bpf_cpumask_any_and_distribute(p->cpus_ptr, online);

	scx_bpf_put_cpumask(online);
	return cpu < machine.nr_cpu_ids ? cpu : prev;
}

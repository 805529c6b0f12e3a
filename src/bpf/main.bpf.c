/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * scx_magpie: each CPU has its own queues, a wakeup scans few CPUs, and an idle CPU steals.
 *
 * The path of a task, and the folder of each step:
 *
 *	wakes  select_cpu  near which CPU?           wake/      the previous or the waking one, or
 *	                                                        the waker hands its CPU off
 *	                   which CPU is idle?        search/    the busier the LLC, the fewer are
 *	                                                        scanned
 *	                   is it strong enough?      capacity/  where CPUs differ
 *	waits  enqueue     is its cpu.max used up?   run/       wait in a third queue of the CPU
 *	                   which deadline?           order/     vruntime + request - credit
 *	                   wait, or preempt?         run/       in a queue of its CPU
 *	                   which CPU could take it?  steal/     set overload bit, kick an idle CPU
 *	runs   dispatch    which task is next?       run/       the one with the earliest deadline
 *	                   does another CPU have     steal/     take it if it has more lag, or no
 *	                   a task for this one?                 task waits here
 *	       running, stopping                     order/     charge by weight: the nice weight
 *	                                             cgroup/    times the shares of its groups
 *	       tick        away from its memory?     numa/      move it when it is next enqueued
 *	                   too big for its CPU?      capacity/  the same, to a stronger CPU
 *	                   room elsewhere?           search/    the same, to an idle core
 *	                   how fast should it be?    capacity/  report utilization to the governor
 *
 * core/ has what all folders use: the machine, tasks, bitmaps, idle CPUs, utilization, counters. A
 * folder uses those above it in the list of includes.
 */
#include <scx/common.bpf.h>

#include "intf.h"

#include "core/topology.bpf.h"
#include "core/stats.bpf.h"
#include "core/kick.bpf.h"
#include "core/clock.bpf.h"
#include "core/context.bpf.h"
#include "core/task.bpf.h"
#include "core/bitmap.bpf.h"
#include "core/pelt.bpf.h"
#include "core/idle.bpf.h"
#include "cgroup/ids.bpf.h"
#include "cgroup/weight.bpf.h"
#include "cgroup/bandwidth.bpf.h"
#include "cgroup/boundary.bpf.h"
#include "cgroup/groups.bpf.h"
#include "cgroup/ops.bpf.h"
#include "order/deadline.bpf.h"
#include "order/core_sched.bpf.h"
#include "order/queue.bpf.h"
#include "order/preempt.bpf.h"
#include "numa/preferred.bpf.h"
#include "numa/migrate.bpf.h"
#include "capacity/capacity.bpf.h"
#include "capacity/task_util.bpf.h"
#include "capacity/cpufreq.bpf.h"
#include "capacity/fallback.bpf.h"
#include "capacity/wake_cases.bpf.h"
#include "capacity/misfit.bpf.h"
#include "search/nr_scan.bpf.h"
#include "search/scan.bpf.h"
#include "search/room.bpf.h"
#include "search/move.bpf.h"
#include "wake/wake_affine.bpf.h"
#include "wake/handoff.bpf.h"
#include "steal/overload.bpf.h"
#include "steal/pull.bpf.h"
#include "steal/steal.bpf.h"
#include "steal/balance.bpf.h"
#include "run/throttle.bpf.h"
#include "run/tickless.bpf.h"
#include "run/slice_timer.bpf.h"
#include "run/insert.bpf.h"
#include "run/pick.bpf.h"
#include "hotplug.bpf.h"
#include "dump.bpf.h"
#include "init.bpf.h"
#include "loader.bpf.h"

char _license[] SEC("license") = "GPL";

UEI_DEFINE(uei);

/*
 * Choose a CPU for @p, which wakes or is new; insert @p there if the CPU was claimed or handed off.
 * No rq lock is held. Not called if @p may use one CPU only, nor for queued remote wakeups.
 *
 * 1. If the waker hands its CPU off, choose that (wake/handoff.bpf.h).
 * 2. Otherwise claim an idle CPU near the target (search/scan.bpf.h).
 * 3. Otherwise return the CPU for which enqueue() is to queue @p.
 */
s32 BPF_STRUCT_OPS(magpie_select_cpu, struct task_struct *p, s32 prev, u64 wake_flags)
{
	struct task_ctx *tctx = task_ctx(p);
	bool handed_off;
	s32 target, cpu;

	if (!is_usable(prev) || !may_use(p, prev))
		prev = any_allowed(p, prev);
	if (!tctx)
		return prev;

	if (wake_flags & SCX_WAKE_SYNC && in_interrupt())
		wake_flags &= ~SCX_WAKE_SYNC;
	begin_burst(p, tctx, wake_flags);
	target = affine_target(p, tctx, prev, wake_flags);
	if (is_asym())
		decay_task_util(p, tctx, prev, unlocked_now());
	handed_off = hands_off(tctx, target, wake_flags);
	if (handed_off) {
		stat_inc(STAT_HANDOFF);
		cpu = target;
	} else {
		stat_inc(STAT_SEARCH);
		cpu = find_idle(p, tctx, prev, target);
	}
	if (cpu < 0 && is_asym())
		target = fallback_cpu(p, prev, target);
	if (is_asym())
		count_wake_case(tctx, prev, target, cpu);
	if (cpu < 0)
		return target;

	place(p, tctx, cpu, true);
	/* The local DSQ, because the CPU was claimed for the task, or is about to be free. */
	tctx->arrives = !handed_off;
	scx_bpf_dsq_insert(p, SCX_DSQ_LOCAL, slice_of(p), handed_off ? 0 : arrival_flags(p, cpu));
	return cpu;
}

/*
 * Queue @p, which is runnable and was not inserted by select_cpu(): no CPU was idle, the task may
 * use one CPU only, its slice is over ... The rq lock of its CPU is held.
 *
 * 1. While the CPU is not usable, it runs all tasks that the kernel sends there, in FIFO order.
 * 2. If the task's groups have used up their cpu.max, and the task is at the boundary of user space
 *    (at_user), the task waits for the next period, unless it is exempt (is_exempt()).
 * 3. A task that a tick has marked for a move (move_why) goes to a better CPU, if there still is
 *    one.
 * 4. If the CPU is idle and not claimed for another task, it runs the task.
 * 5. Otherwise the task waits, or preempts current (run/insert.bpf.h).
 */
void BPF_STRUCT_OPS(magpie_enqueue, struct task_struct *p, u64 enq_flags)
{
	s32 cpu = scx_bpf_task_cpu(p);
	struct cpu_ctx *cctx = cpu_ctx(cpu);
	struct task_ctx *tctx = task_ctx(p);
	u64 now, rest;

	if (tctx)
		queue_del(tctx);
	if (!tctx || !is_usable(cpu)) {
		/* The local DSQ, because the kernel takes tasks from it without dispatch(). */
		scx_bpf_dsq_insert(p, SCX_DSQ_LOCAL, slice_of(p), enq_flags);
		return;
	}
	if (enq_flags & SCX_ENQ_REENQ)
		stat_inc(STAT_REENQUEUE);
	if (is_tickless(cctx)) {
		advance_tickless(cpu, cctx);
		kick_cpu(cpu, SCX_KICK_PREEMPT);
	}
	if (enq_flags & SCX_ENQ_WAKEUP)
		begin_unseen_burst(p, tctx);
	if (throttle(p, tctx, cpu, cctx, enq_flags))
		return;
	now = locked_now(cpu);
	advance_to(cctx, now);
	rest = place_again(p, tctx, cpu, enq_flags & SCX_ENQ_WAKEUP || is_throttled(tctx));
	if (tctx->move_why && send_away(p, cpu, enq_flags))
		return;
	if (cctx->idle && claim_idle(cpu)) {
		stat_inc(STAT_LOCAL);
		tctx->arrives = true;
		/* The local DSQ, because the CPU was claimed for the task. */
		scx_bpf_dsq_insert(p, SCX_DSQ_LOCAL, tctx->slice, enq_flags | SCX_ENQ_IMMED);
		return;
	}
	insert_task(p, tctx, cpu, cctx, now, rest, enq_flags);
}

/*
 * Choose the next task of @cpu, whose local DSQ is empty. @prev has used up its slice, or sleeps;
 * it is NULL if it is not a task of sched_ext. The rq lock of @cpu is held, and dropped while a
 * task is moved from another runqueue.
 */
void BPF_STRUCT_OPS(magpie_dispatch, s32 cpu, struct task_struct *prev)
{
	pick_next(cpu, cpu_ctx(cpu), prev);
}

/*
 * Note that @p starts to run on its CPU, whose rq lock is held. The kernel also calls stopping()
 * before, and running() after, a change of affinity, nice value or cgroup of a running task. It may
 * do so on any CPU.
 */
void BPF_STRUCT_OPS(magpie_running, struct task_struct *p)
{
	s32 cpu = scx_bpf_task_cpu(p);
	struct cpu_ctx *cctx = cpu_ctx(cpu);
	struct task_ctx *tctx = task_ctx(p);
	u64 slice;

	mark_busy(cpu, cctx);
	if (!tctx)
		return;

	queue_leave(tctx, cpu, cctx);
	/* The cgroup or the nice value of @p has changed. */
	if ((tctx->group && !tctx->counted) || tctx->prio != prio(p))
		group_enter(p, tctx);
	rebase(tctx, cpu);
	tctx->charged = p->se.sum_exec_runtime;
	cctx->handoff_score = tctx->handoff_score;
	begin_run(p, tctx, cctx, p->scx.slice);
	if (p->se.custom_slice)
		stat_inc(STAT_OWN_SLICE);
	if (is_asym())
		util_starts(p, tctx, cpu, cctx);
	if (!is_usable(cpu)) {
		run_on_unusable(p, false);
		cctx->tickless = is_nohz_full(cpu);
		return;
	}
	/*
	 * Another task was sent to this CPU at the same time, and cannot be stolen from the local
	 * DSQ. Preempt @p: once @p is in a queue, other CPUs can steal @p.
	 */
	if (tctx->arrives) {
		tctx->arrives = false;
		if (scx_bpf_dsq_nr_queued(SCX_DSQ_LOCAL_ON | cpu))
			kick_cpu(cpu, SCX_KICK_PREEMPT);
	}
	slice = limited_slice(p, tctx, cpu);
	slice = set_tickless(p, tctx, cpu, cctx, min(slice, cctx->queued_slice));
	/* From 7.3 on p->scx.slice is the old slice until the next tick. */
	if (slice != p->scx.slice)
		scx_bpf_task_set_slice(p, slice);
	set_slice_timer(cpu, cctx, cctx->curr_started, slice, cctx->queued);
}

/*
 * Charge @p, which stops. If @runnable, @p waits again; otherwise @p sleeps, or its affinity, nice
 * value or cgroup changes. The rq lock of @p's CPU is held; on any CPU, as running().
 */
void BPF_STRUCT_OPS(magpie_stopping, struct task_struct *p, bool runnable)
{
	s32 cpu = scx_bpf_task_cpu(p);
	struct cpu_ctx *cctx = cpu_ctx(cpu);
	struct task_ctx *tctx = task_ctx(p);
	bool sleeps = !runnable && p->__state;

	/*
	 * If @p is runnable and has slice left, a higher class preempts @p. After a hand-off the
	 * slice of @p is 0: assume a higher class then, because the wakee waits in the local DSQ.
	 */
	if (runnable && (p->scx.slice || cctx->handed_off))
		release_cpu(cpu);
	if (tctx)
		charge(p, tctx, cctx);
	cctx->curr_weight = 0;
	cctx->curr_critical = false;
	if (machine.nohz_full)
		cctx->tickless = false;
	if (!tctx)
		return;
	tctx->preempted_by = runnable ? cctx->preempted_by : BY_NONE;
	cctx->preempted_by = BY_NONE;
	if (cctx->sync_wakes)
		judge_handoff(tctx, cctx, sleeps);
	if (is_asym())
		util_stops(p, tctx, cpu, cctx, sleeps);
	if (machine.nr_llcs > 1)
		tctx->stopped_at = ran_until(p, cctx);
	if (sleeps) {
		end_burst(tctx, cctx);
		tctx->at_user = false;
	}
	if (!runnable) {
		tctx->move_why = MOVE_NOT;
		group_leave(tctx, cpu, cctx->advanced_at);
	}
}

/*
 * Carry out sched_yield() (@to is NULL): the slice of @p ends, and waiting tasks come first. The rq
 * lock of @p's CPU is held. Or carry out yield_to(), which KVM calls for a virtual CPU that spins:
 * @p's CPU runs @to next, if @to waits and may migrate there. Both rq locks are held.
 */
bool BPF_STRUCT_OPS(magpie_yield, struct task_struct *p, struct task_struct *to)
{
	s32 cpu = scx_bpf_task_cpu(p);
	struct cpu_ctx *cctx = cpu_ctx(cpu);
	struct task_ctx *tctx = task_ctx(p), *target;

	if (to) {
		target = task_ctx(to);
		if (!target || !target->queued_weight ||
		    (target->queued_cpu != cpu && !can_migrate_to(to, cpu)))
			return false;
		cctx->yield_to = to->pid;
		cctx->yield_from = target->queued_cpu;
		cctx->due |= DUE_YIELD;
	}
	if (tctx && (cctx->queued || to))
		yield_turn(tctx, cctx);
	scx_bpf_task_set_slice(p, 0);
	return to;
}

/*
 * Handle a tick of the CPU on which @p runs. Runs on that CPU, or once a second on another one if
 * @p has no tick (run/tickless.bpf.h). The rq lock of @p's CPU is held.
 */
void BPF_STRUCT_OPS(magpie_tick, struct task_struct *p)
{
	s32 cpu = scx_bpf_task_cpu(p);
	struct cpu_ctx *cctx = cpu_ctx(cpu);
	struct task_ctx *tctx = task_ctx(p);
	u64 now = locked_now(cpu);

	cctx->clock_lag = now - p->se.exec_start;
	cctx->queued_slice = SCX_SLICE_INF;
	pelt_update(cpu, cctx, now, true);
	update_cpuperf(cpu, cctx, true);
	estimate_nr_scan(cpu, cctx);
	flush(cpu, cctx);
	check_unusable(cctx);
	set_due(cpu, cctx, now);
	if (!is_usable(cpu)) {
		run_on_unusable(p, true);
		return;
	}
	if (is_tickless(cctx))
		advance_tickless(cpu, cctx);
	if (tctx) {
		charge(p, tctx, cctx);
		set_at_user(p, tctx);
		set_deadline(p, tctx, cctx);
		publish_current(tctx, cctx, task_weight(tctx));
		check_move(p, tctx, cpu, cctx, now);
	}
	/* End an infinite slice: the CPU has become usable, or a kick was lost. */
	if (p->scx.slice == SCX_SLICE_INF && (!is_tickless(cctx) || others_wait(cpu, cctx)))
		scx_bpf_task_set_slice(p, 0);
	/*
	 * The kernel skips dispatch() while the local DSQ has tasks. End the slice, so that these
	 * tasks run first. While cctx->due is set, is_next() is false: only tasks that preempt
	 * current are added there. Without a tick the slice is infinite: end it, too.
	 */
	if ((cctx->due || READ_ONCE(cctx->throttle_timer_fired)) &&
	    (is_tickless(cctx) || scx_bpf_dsq_nr_queued(SCX_DSQ_LOCAL_ON | cpu)))
		scx_bpf_task_set_slice(p, 0);
	set_slice_timer(cpu, cctx, now, p->scx.slice, others_wait(cpu, cctx));
	kick_idle_for_queued(cpu);
}

/* Note that @cpu enters or leaves the idle loop. Runs on @cpu, with its rq lock held. */
void BPF_STRUCT_OPS(magpie_update_idle, s32 cpu, bool idle)
{
	struct cpu_ctx *cctx = cpu_ctx(cpu);
	u64 now = scx_bpf_now();

	if (!idle) {
		account_idle(cctx, now);
		read_prolog_depth();
	}
	pelt_update(cpu, cctx, now, !idle);
	update_cpuperf(cpu, cctx, false);
	if (!idle) {
		mark_busy(cpu, cctx);
		return;
	}
	if (!is_usable(cpu))
		return;
	cctx->lent = 0;
	cctx->checks_again = false;
	mark_idle(cpu, cctx);
	/*
	 * The other half of the handshake with enqueue(): a task may have been queued after
	 * dispatch() read the overload bits. Or the throttle timer fired while dispatch() had
	 * dropped the rq lock: its kick had no effect, because the CPU was in schedule().
	 */
	if ((tunables.steal && work_in_reach(cpu)) || READ_ONCE(cctx->throttle_timer_fired))
		kick_cpu(cpu, 0);
}

/* Let other CPUs take the tasks of @cpu, which a higher class takes. Up to 6.18 only. */
void BPF_STRUCT_OPS(magpie_cpu_release, s32 cpu, struct scx_cpu_release_args *args)
{
	release_cpu(cpu);
	scx_bpf_reenqueue_local();
}

/*
 * Return true if @a runs before @b, for core scheduling. The loader leaves this callback out on
 * kernels that pass the two tasks in the wrong order.
 */
bool BPF_STRUCT_OPS(magpie_core_sched_before, struct task_struct *a, struct task_struct *b)
{
	return runs_before(a, b);
}

void BPF_STRUCT_OPS(magpie_exit, struct scx_exit_info *ei)
{
	UEI_RECORD(uei, ei);
}

/* clang-format off */
SCX_OPS_DEFINE(magpie,
	       .select_cpu		= (void *)magpie_select_cpu,
	       .enqueue			= (void *)magpie_enqueue,
	       .dispatch		= (void *)magpie_dispatch,
	       .running			= (void *)magpie_running,
	       .stopping		= (void *)magpie_stopping,
	       .yield			= (void *)magpie_yield,
	       .tick			= (void *)magpie_tick,
	       .update_idle		= (void *)magpie_update_idle,
	       .cpu_release		= (void *)magpie_cpu_release,
	       .core_sched_before	= (void *)magpie_core_sched_before,
	       .init_task		= (void *)magpie_init_task,
	       .disable			= (void *)magpie_disable,
	       .cgroup_init		= (void *)magpie_cgroup_init,
	       .cgroup_exit		= (void *)magpie_cgroup_exit,
	       .cgroup_move		= (void *)magpie_cgroup_move,
	       .cgroup_set_weight	= (void *)magpie_cgroup_set_weight,
	       .cgroup_set_bandwidth	= (void *)magpie_cgroup_set_bandwidth,
	       .cgroup_set_idle		= (void *)magpie_cgroup_set_idle,
	       .cpu_online		= (void *)magpie_cpu_online,
	       .cpu_offline		= (void *)magpie_cpu_offline,
	       .init			= (void *)magpie_init,
	       .exit			= (void *)magpie_exit,
	       .dump			= (void *)magpie_dump,
	       .dump_cpu		= (void *)magpie_dump_cpu,
	       .dump_task		= (void *)magpie_dump_task,
	       .flags			= SCX_OPS_ENQ_LAST | SCX_OPS_ENQ_EXITING |
					  SCX_OPS_ENQ_MIGRATION_DISABLED |
					  SCX_OPS_ALLOW_QUEUED_WAKEUP,
	       .name			= "magpie");

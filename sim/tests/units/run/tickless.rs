// SPDX-License-Identifier: GPL-2.0-only
//! `run/tickless.bpf.h`: who runs without a tick, and that none waits for it.

use magpie_sim::cgroup::Spec;
use magpie_sim::dsq::TaskId;
use magpie_sim::kernel::Curr;
use magpie_sim::native::{
    ALONE_NS, HANDOFF_SCORE, PF_KTHREAD, SCX_ENQ_LAST, SCX_ENQ_PREEMPT, SCX_SLICE_INF, SCX_WAKE_SYNC,
};
use magpie_sim::task::{SCHED_BATCH, State};
use magpie_sim::trace::Op;

use scx_magpie::bpf_intf::preempter_BY_WAKEE;

use crate::rig::Rig;

const SLICE: u64 = 3_000_000;
/// ns that callbacks take.
const COSTS: u64 = 10_000;
/// CPU 0 is not nohz_full.
const CPU: usize = 1;

/// CPUs are busy, and a task has been alone on the CPU for so long.
fn rig(alone: u64) -> (Rig, TaskId) {
    let mut rig = Rig::new("1x1x2x1/nohz", &[]);
    rig.kernel.now = 1_000_000_000;
    let shared_at = rig.kernel.now - alone;
    rig.cpu(CPU, |cctx| cctx.shared_at = shared_at);
    rig.only_idle(&[]);
    let task = rig.task();
    rig.kernel.tasks[task].set_queued(true);
    has_run(&mut rig, task, SLICE);
    (rig, task)
}

fn has_run(rig: &mut Rig, task: TaskId, burst: u64) {
    let raw = rig.kernel.tasks[task].raw_mut();
    raw.se.sum_exec_runtime += burst;
    raw.scx.slice = SLICE;
    let ran = raw.se.sum_exec_runtime;
    rig.remembered(task, |tctx| tctx.charged = ran);
}

/// The task runs on the CPU, without a tick.
fn tickless() -> (Rig, TaskId) {
    let (mut rig, task) = rig(ALONE_NS.into());
    rig.running(task, CPU);
    assert!(is_tickless(&mut rig, task));
    (rig, task)
}

/// Both the program and the kernel say so.
fn is_tickless(rig: &mut Rig, task: TaskId) -> bool {
    let infinite = rig.kernel.tasks[task].raw().scx.slice == SCX_SLICE_INF;
    assert_eq!(rig.cpu(CPU, |cctx| cctx.tickless != 0), infinite);
    infinite
}

/// running() when the CPU comes from its idle task, or from a real-time one.
fn starts_after(rig: &mut Rig, task: TaskId, prev: Curr) {
    rig.run(task, CPU);
    rig.kernel.cpus[CPU].curr = prev;
    rig.kernel.cpu = CPU;
    let raw = rig.raw(task);
    // SAFETY: as the kernel calls it.
    rig.kernel.call(Op::Running, Some(task), 0, |ops| unsafe { ops.running.unwrap()(raw) });
    rig.kernel.cpus[CPU].curr = Curr::Task(task);
}

fn limited(rig: &mut Rig) -> usize {
    let group = rig.kernel.make_cgroup(&Spec::default());
    rig.kernel.set_cgroup_max(group, Some(20_000), 100_000, 0);
    group
}

#[test]
fn a_task_that_has_long_been_alone_has_no_tick() {
    let long = u64::from(ALONE_NS);
    for (alone, cpu, expected) in [(long, CPU, true), (long - COSTS, CPU, false), (long, 0, false)] {
        let (mut rig, task) = rig(alone);
        rig.running(task, cpu);
        assert_eq!(rig.kernel.tasks[task].raw().scx.slice == SCX_SLICE_INF, expected, "{alone} on {cpu}");
        assert_eq!(rig.cpu(cpu, |cctx| cctx.tickless != 0), expected);
    }
}

#[test]
fn one_that_others_wait_for_has_a_tick() {
    for pinned in [false, true] {
        let (mut rig, task) = rig(ALONE_NS.into());
        let other = if pinned { rig.task_on([CPU]) } else { rig.task() };
        rig.queue(other, CPU, 0);
        rig.running(task, CPU);
        assert!(!is_tickless(&mut rig, task));
        // Nor has it when the other has left, for a while.
        let now = rig.kernel.now;
        assert!(now - rig.cpu(CPU, |cctx| cctx.shared_at) < COSTS);
    }
}

/// Critical ones are brief.
#[test]
fn a_kernel_thread_that_comes_for_a_moment_does_not_count() {
    let (mut rig, task) = rig(ALONE_NS.into());
    let thread = rig.task_on([CPU]);
    rig.kernel.tasks[thread].raw_mut().flags |= PF_KTHREAD;
    rig.queue(task, CPU, 0);
    let before = rig.cpu(CPU, |cctx| cctx.shared_at);
    rig.running(thread, CPU);
    assert_eq!(rig.cpu(CPU, |cctx| cctx.shared_at), before);
}

/// Kernels up to 7.2 do not start it then.
#[test]
fn a_task_that_follows_none_of_sched_ext_has_no_tick() {
    for prev in [Curr::Idle, Curr::HigherClass] {
        let (mut rig, task) = rig(0);
        starts_after(&mut rig, task, prev);
        assert!(is_tickless(&mut rig, task));
        assert!(rig.kicked().is_empty());
        // So what waits already gets the CPU for a moment.
        let other = rig.task_on([CPU]);
        rig.queue(other, CPU, 0);
        starts_after(&mut rig, task, prev);
        assert!(is_tickless(&mut rig, task));
        assert_eq!(rig.kicked(), [CPU]);
    }
}

#[test]
fn a_task_that_comes_ends_it_and_has_no_lag() {
    for pinned in [false, true] {
        let (mut rig, _) = tickless();
        let vtime = rig.cpu(CPU, |cctx| cctx.vtime);
        rig.kernel.now += 900 * SLICE;
        let other = if pinned { rig.task_on([CPU]) } else { rig.task() };
        rig.wake(other, CPU);
        assert!(rig.kernel.kicks.iter().all(|&(cpu, _)| cpu == CPU) && !rig.kernel.kicks.is_empty());
        assert_eq!(rig.cpu(CPU, |cctx| cctx.vtime), vtime + 900 * SLICE);
        assert_eq!(rig.remembered(other, |tctx| tctx.vruntime), vtime + 900 * SLICE);
    }
}

/// It has credit, and so it would elsewhere.
#[test]
fn a_task_that_wakes_preempts() {
    let (mut rig, _) = tickless();
    rig.kernel.now += 900 * SLICE;
    let other = rig.task();
    rig.wake(other, CPU);
    assert_eq!(rig.cpu(CPU, |cctx| u32::from(cctx.preempted_by)), preempter_BY_WAKEE);
}

#[test]
fn dispatch_keeps_it_as_it_is_if_none_waits() {
    let (mut rig, task) = tickless();
    rig.kernel.tasks[task].raw_mut().scx.slice = 0;
    assert!(rig.dispatch(CPU, Some(task)).is_empty());
    assert!(is_tickless(&mut rig, task));
}

/// To get its tick back it has to make way for a moment: then the deadlines decide.
#[test]
fn dispatch_runs_another_one_even_if_its_deadline_is_later() {
    let (mut rig, task) = tickless();
    let other = rig.task();
    let later = rig.cpu(CPU, |cctx| cctx.vtime) + 100 * SLICE;
    rig.queue(other, CPU, later);
    rig.kernel.tasks[task].raw_mut().scx.slice = 0;
    assert_eq!(rig.dispatch(CPU, Some(task)), [other]);
    assert_eq!(rig.kicked(), [CPU]);
}

#[test]
fn a_task_that_has_become_alone_is_put_back() {
    let (mut rig, task) = rig(0);
    rig.running(task, CPU);
    assert!(!is_tickless(&mut rig, task));
    has_run(&mut rig, task, SLICE);
    rig.kernel.now += u64::from(ALONE_NS);
    rig.kernel.tasks[task].raw_mut().scx.slice = 0;
    assert!(rig.dispatch(CPU, Some(task)).is_empty());
    assert_eq!(rig.kernel.tasks[task].raw().scx.slice, 0, "it is not kept");
    rig.stopping(task, true);
    rig.kernel.tasks[task].state = State::Runnable;
    rig.kernel.do_enqueue(task, CPU, SCX_ENQ_LAST);
    assert_eq!(rig.local(CPU), [task]);
    assert_eq!(rig.kicked(), [CPU]);
    starts_after(&mut rig, task, Curr::Idle);
    assert!(is_tickless(&mut rig, task));
}

#[test]
fn the_remote_tick_makes_up_for_a_lost_kick() {
    let (mut rig, task) = tickless();
    rig.kernel.cpu = 0;
    rig.kernel.now += 1_000_000_000;
    rig.tick(task);
    assert!(is_tickless(&mut rig, task));
    let other = rig.task_on([CPU]);
    rig.queue(other, CPU, 0);
    rig.tick(task);
    assert_eq!(rig.kernel.tasks[task].raw().scx.slice, 0);
}

/// Not for what may not come.
#[test]
fn the_remote_tick_has_it_look_at_an_overloaded_cpu() {
    for (pinned, ends) in [(false, true), (true, false)] {
        let (mut rig, task) = tickless();
        let [first, other] = [rig.task(), rig.task()];
        rig.run_noted(first, 0);
        rig.queue(other, 0, 0);
        rig.kernel.tasks[other].raw_mut().migration_disabled = pinned.into();
        rig.kernel.cpu = 0;
        rig.kernel.now += 1_000_000_000;
        rig.tick(task);
        assert_eq!(rig.kernel.tasks[task].raw().scx.slice == 0, ends);
    }
}

#[test]
fn a_limit_is_seen_at_once() {
    let (mut rig, task) = tickless();
    limited(&mut rig);
    assert_eq!(rig.kicked(), [CPU]);
    assert!(is_tickless(&mut rig, task));
}

/// A timer, in place of a tick.
#[test]
fn a_limited_task_is_ended_by_a_timer() {
    let (mut rig, task) = rig(ALONE_NS.into());
    let group = limited(&mut rig);
    rig.kernel.move_to_cgroup(task, group);
    has_run(&mut rig, task, SLICE);
    rig.running(task, CPU);
    assert!(!is_tickless(&mut rig, task), "it is alone, and limited");
    rig.kernel.kicks.clear();
    starts_after(&mut rig, task, Curr::Idle);
    assert!(is_tickless(&mut rig, task));
    let now = rig.kernel.now;
    let (due, kicked) = rig.fire_timer();
    assert!(due > now && due <= now + SLICE + COSTS, "after {} ns", due - now);
    assert_eq!(kicked, [CPU]);
}

#[test]
fn a_patient_task_does_not_wait_for_what_has_no_tick() {
    let (mut rig, task) = rig(0);
    rig.kernel.tasks[task].raw_mut().policy = SCHED_BATCH;
    for (cpu, preempts) in [(CPU, true), (0, false)] {
        let flags = rig.call(rig.u.arrival_flags, (rig.raw(task).cast_const(), cpu as i32));
        assert_eq!(flags & SCX_ENQ_PREEMPT != 0, preempts);
    }
}

/// The wakee waits in the local DSQ, and no tick would end the waker's slice.
#[test]
fn its_cpu_is_not_handed_off() {
    let (mut rig, _) = tickless();
    let wakee = rig.task();
    rig.kernel.cpu = CPU;
    for tickless in [1, 0] {
        rig.cpu(CPU, |cctx| (cctx.tickless, cctx.handoff_score, cctx.sync_wakes) = (tickless, HANDOFF_SCORE as i32, 0));
        let handed = rig.call(rig.u.hands_off, (rig.tctx(wakee).cast_const(), CPU as i32, SCX_WAKE_SYNC));
        assert_eq!(handed, tickless == 0);
    }
}

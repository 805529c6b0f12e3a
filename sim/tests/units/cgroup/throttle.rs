// SPDX-License-Identifier: GPL-2.0-only
//! `cgroup/throttle.bpf.h`: a task of a throttled group waits in the group's queue, is owed nothing for it, and comes back to
//! the right queue.

use magpie_sim::cgroup::Spec;
use magpie_sim::dsq::{TaskId, queue_group};
use magpie_sim::native::{PF_EXITING, PF_KTHREAD};
use magpie_sim::task::{Place, State};
use magpie_sim::trace::Op;
use proptest::prelude::*;
use scx_magpie::bpf_intf::*;

use crate::rig::Rig;

const MSEC: u64 = 1_000_000;
const QUOTA: u64 = 10 * MSEC;

/// CPUs 0 and 1, of which `online` are there from the start, and a task that may use `cpus`, in a group whose quota is used up.
fn rig(online: &[usize], cpus: &[usize]) -> (Rig, TaskId) {
    let mut rig = Rig::with_online("1x1x2x1", online.iter().copied());
    rig.only_idle(&[]);
    rig.kernel.now = 1_000_000_000_000;
    let group = rig.kernel.make_cgroup(&Spec::default());
    rig.kernel.set_cgroup_max(group, Some(QUOTA / 1000), 100_000, 0);
    rig.call(rig.u.charge_groups, (0, 1, QUOTA));
    assert_eq!(rig.call(rig.u.take_slice, (0, 1)), 0);
    let task = rig.task_on(cpus.iter().copied());
    rig.kernel.move_to_cgroup(task, group);
    (rig, task)
}

/// The task waits on CPU 0 for its group.
fn throttled(cpus: &[usize]) -> (Rig, TaskId) {
    let (mut rig, task) = rig(&[0, 1], cpus);
    rig.kernel.cpus[0].nr_running += 1;
    rig.kernel.tasks[task].state = State::Runnable;
    enqueue(&mut rig, task);
    assert!(matches!(rig.kernel.tasks[task].place, Place::Dsq(id) if queue_group(id) == Some(1)));
    assert!(rig.call(rig.u.has_waited_throttled, (rig.tctx(task),)));
    (rig, task)
}

fn enqueue(rig: &mut Rig, task: TaskId) {
    rig.kernel.do_enqueue(task, 0, 0);
    assert_eq!(rig.kernel.violation, None);
}

fn run(rig: &mut Rig, task: TaskId, cpu: usize) {
    rig.run(task, cpu);
    let raw = rig.raw(task);
    // SAFETY: as the kernel calls it.
    rig.kernel.call(Op::Running, Some(task), 0, |ops| unsafe { ops.running.unwrap()(raw) });
}

fn clock_goes_on(rig: &mut Rig, by: i64) {
    rig.cpu(0, |cctx| cctx.vclock += by as u64);
}

fn ahead(rig: &mut Rig, task: TaskId) -> i64 {
    let vclock = rig.cpu(0, |cctx| cctx.vclock);
    rig.remembered(task, |tctx| tctx.vruntime.wrapping_sub(vclock)) as i64
}

/// The pool owes for a thousand periods.
fn use_up(rig: &mut Rig) {
    group(rig).budget = -1000 * QUOTA as i64;
}

fn group(rig: &mut Rig) -> &mut group {
    // SAFETY: one thread runs the program.
    unsafe { &mut *rig.kernel.native.shared().groups[1].get() }
}

/// So CPUs need not look at groups that are throttled.
#[test]
fn only_the_timer_releases() {
    let (mut rig, task) = throttled(&[0, 1]);
    group(&mut rig).throttled = 0;
    assert!(!rig.call(rig.u.pull_waiting, (0,)));
    rig.fire_timer();
    assert!(rig.call(rig.u.pull_waiting, (0,)));
    assert_eq!(rig.local(0), vec![task]);
}

/// It is throttled again before its tasks were taken.
#[test]
fn a_look_in_vain_is_the_last_one() {
    let (mut rig, _) = throttled(&[0, 1]);
    rig.fire_timer();
    group(&mut rig).throttled = 1;
    assert!(!rig.call(rig.u.pull_waiting, (0,)));
    group(&mut rig).throttled = 0;
    assert!(!rig.call(rig.u.pull_waiting, (0,)));
}

/// The kernel may have no memory for it.
#[test]
fn a_timer_that_cannot_be_started_is_tried_again() {
    let (mut rig, task) = throttled(&[0, 1]);
    use_up(&mut rig);
    rig.kernel.timers_fail = true;
    rig.fire_timer();
    assert_eq!(group(&mut rig).armed, 0);
    assert!(rig.kernel.timers.iter().all(|timer| timer.due.is_none()));
    rig.kernel.timers_fail = false;
    group(&mut rig).budget = 1;
    rig.call(rig.u.bw_arm_failed, ());
    rig.fire_timer();
    assert!(rig.call(rig.u.pull_waiting, (0,)));
    assert_eq!(rig.local(0), vec![task]);
}

proptest! {
    #[test]
    fn a_released_task_is_owed_no_more_than_one_that_wakes(by in 0..600 * MSEC as i64) {
        let (mut rig, task) = throttled(&[0, 1]);
        clock_goes_on(&mut rig, by);
        let until = rig.kernel.now + 101 * MSEC;
        rig.kernel.run_until(until);
        prop_assert!(rig.call(rig.u.pull_waiting, (0,)));
        prop_assert_eq!(rig.local(0), vec![task]);
        rig.kernel.take_out(task);
        run(&mut rig, task, 0);
        prop_assert_eq!(ahead(&mut rig, task), 0);
        prop_assert!(!rig.call(rig.u.has_waited_throttled, (rig.tctx(task),)));
        prop_assert_eq!(rig.stat(magpie_stat_STAT_STOLEN_NS), 0);
    }
}

/// Long before the watchdog bites, though the group is throttled; by a CPU that the task may use.
#[test]
fn a_task_that_waits_too_long_is_taken_all_the_same() {
    let (mut rig, task) = throttled(&[0]);
    use_up(&mut rig);
    let until = rig.kernel.now + u64::from(rig.kernel.tunables.timeout_ms) * MSEC / 4;
    while rig.kernel.now < until {
        assert!(!rig.call(rig.u.pull_waiting, (0,)));
        rig.fire_timer();
    }
    assert_eq!(group(&mut rig).throttled, 1);
    rig.kernel.cpu = 1;
    assert_eq!(rig.call(rig.u.next_released, (0,)), 0, "it may not come to CPU 1");
    rig.kernel.cpu = 0;
    assert!(rig.call(rig.u.pull_waiting, (0,)));
    assert_eq!(rig.local(0), vec![task]);
}

#[test]
fn what_the_kernel_waits_for_does_not_wait_for_its_group() {
    for (cpus, flags) in [(&[0][..], PF_KTHREAD), (&[0, 1], PF_EXITING)] {
        let (mut rig, task) = rig(&[0, 1], cpus);
        rig.kernel.tasks[task].raw_mut().flags |= flags;
        rig.kernel.cpus[0].nr_running += 1;
        rig.kernel.tasks[task].state = State::Runnable;
        enqueue(&mut rig, task);
        assert!(!matches!(rig.kernel.tasks[task].place, Place::Dsq(id) if queue_group(id).is_some()), "{flags:#x}");
    }
}

/// The timer fires on a CPU whose rq clock is behind: another CPU took a task from there, and left it with the time of that.
#[test]
fn the_timer_does_not_go_by_the_rq_clock() {
    let (mut rig, _) = throttled(&[0, 1]);
    rig.kernel.cpus[0].clock_left_at = Some(rig.kernel.now);
    rig.fire_timer();
    assert_eq!(rig.kernel.native.group(1).throttled, 0);
}

#[test]
fn a_task_that_comes_back_by_enqueue_waits_in_its_cpus_queue() {
    for (cpus, pinned) in [(&[0, 1][..], false), (&[0], true)] {
        let (mut rig, task) = throttled(cpus);
        clock_goes_on(&mut rig, 60 * MSEC as i64);
        rig.kernel.set_cgroup_max(1, None, 100_000, 0);
        rig.kernel.take_out(task);
        enqueue(&mut rig, task);
        assert!(matches!(rig.kernel.tasks[task].place, Place::Dsq(_)));
        let queue = if pinned { rig.call(rig.u.pinned_queue, (0,)) } else { 0 };
        assert_eq!(rig.kernel.tasks[task].place, Place::Dsq(queue as usize));
        assert_eq!(ahead(&mut rig, task), 0);
    }
}

/// enqueue() would send the task back at once, again and again.
#[test]
fn a_cpu_that_has_just_come_online_does_not_throttle() {
    for (online, kicked) in [(&[0, 1][..], &[1][..]), (&[0], &[])] {
        let (mut rig, task) = rig(online, &[1]);
        rig.kernel.cpu = 1;
        rig.kicked();
        run(&mut rig, task, 1);
        assert_eq!(rig.kicked(), kicked);
    }
}

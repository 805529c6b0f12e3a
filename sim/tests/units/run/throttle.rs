// SPDX-License-Identifier: GPL-2.0-only
//! `run/throttle.bpf.h`, `cgroup/boundary.bpf.h`: a task whose group has used up its cpu.max waits, unless it may hold a kernel
//! lock, until there is a slice for it; it is owed nothing for that, and comes back to the right queue.

use magpie_sim::cgroup::Spec;
use magpie_sim::dsq::{TaskId, is_throttled_queue};
use magpie_sim::native::{
    MAX_UNTHROTTLES, OVERRUN_SLICE_NS, PF_EXITING, PF_KTHREAD, THROTTLE_MIN_NS, move_why_MOVE_NOT, move_why_MOVE_UP,
};
use magpie_sim::task::{Place, State};
use magpie_sim::trace::Op;
use proptest::prelude::*;
use scx_magpie::bpf_intf::*;

use crate::rig::Rig;

const MSEC: u64 = 1_000_000;
const QUOTA: u64 = 10 * MSEC;
const PERIOD: u64 = 100 * MSEC;

/// CPUs 0 and 1, of which `online` are there from the start, and a task that may use `cpus`, at the boundary of user space, in a
/// group whose quota is used up.
fn rig(online: &[usize], cpus: &[usize]) -> (Rig, TaskId) {
    let mut rig = Rig::with_online("1x1x2x1", online.iter().copied());
    rig.only_idle(&[]);
    rig.kernel.now = 1_000_000_000_000;
    let group = rig.kernel.make_cgroup(&Spec::default());
    rig.kernel.set_cgroup_max(group, Some(QUOTA / 1000), PERIOD / 1000, 0);
    rig.call(rig.u.charge_groups, (0, 1, QUOTA));
    let now = rig.kernel.now;
    assert_eq!(rig.call(rig.u.take_slice, (0, 1, now)), 0);
    let task = add(&mut rig, cpus);
    (rig, task)
}

fn add(rig: &mut Rig, cpus: &[usize]) -> TaskId {
    let task = rig.task_on(cpus.iter().copied());
    rig.kernel.move_to_cgroup(task, 1);
    // It has run here: it counts, and that it is limited is known.
    rig.call(rig.u.place, (rig.raw(task), rig.tctx(task), 0, true));
    rig.remembered(task, |tctx| tctx.at_user = 1);
    task
}

fn enqueue(rig: &mut Rig, task: TaskId) {
    if rig.kernel.tasks[task].state != State::Runnable {
        rig.kernel.cpus[0].nr_running += 1;
        rig.kernel.tasks[task].state = State::Runnable;
    }
    rig.kernel.do_enqueue(task, 0, 0);
    assert_eq!(rig.kernel.violation, None);
}

fn is_throttled(rig: &Rig, task: TaskId) -> bool {
    matches!(rig.kernel.tasks[task].place, Place::Dsq(id) if is_throttled_queue(id))
}

/// The task waits on CPU 0 for its group.
fn throttled(cpus: &[usize]) -> (Rig, TaskId) {
    let (mut rig, task) = rig(&[0, 1], cpus);
    enqueue(&mut rig, task);
    assert!(is_throttled(&rig, task));
    (rig, task)
}

/// The kernel starts no task without a time slice.
fn run(rig: &mut Rig, task: TaskId, cpu: usize) {
    rig.kernel.tasks[task].raw_mut().scx.slice = QUOTA;
    rig.run(task, cpu);
    running(rig, task);
}

fn running(rig: &mut Rig, task: TaskId) {
    let raw = rig.raw(task);
    // SAFETY: as the kernel calls it.
    rig.kernel.call(Op::Running, Some(task), 0, |ops| unsafe { ops.running.unwrap()(raw) });
}

/// The timer comes, and the CPU schedules. Returns when.
fn unthrottle(rig: &mut Rig) -> u64 {
    let (at, kicked) = rig.fire_timer();
    assert_eq!(kicked, [0]);
    assert!(rig.cpu(0, |cctx| cctx.throttle_timer_fired != 0));
    rig.kernel.cpu = 0;
    rig.call(rig.u.unthrottle, (0,));
    at
}

fn ahead(rig: &mut Rig, task: TaskId) -> i64 {
    let vtime = rig.cpu(0, |cctx| cctx.vtime);
    rig.remembered(task, |tctx| tctx.vruntime.wrapping_sub(vtime)) as i64
}

/// The pool owes for a thousand periods.
fn use_up(rig: &mut Rig) {
    // SAFETY: one thread runs the program.
    unsafe { (*rig.kernel.native.shared().groups[1].get()).budget = -1000 * QUOTA as i64 };
}

#[test]
fn a_throttled_task_waits_for_the_next_period_and_does_not_count() {
    let (mut rig, task) = throttled(&[0, 1]);
    assert!(rig.call(rig.u.is_throttled, (rig.tctx(task),)));
    assert_eq!(rig.remembered(task, |tctx| tctx.counted), 0);
    let start = rig.kernel.now;
    assert!(unthrottle(&mut rig).abs_diff(start + PERIOD) < MSEC);
    assert_eq!(rig.waiting(0), [task]);
    assert_eq!(rig.remembered(task, |tctx| tctx.counted), 1024);
}

/// When it goes on, it may fit its CPU again.
#[test]
fn a_throttled_task_forgets_that_it_was_to_move() {
    let (mut rig, task) = rig(&[0, 1], &[0, 1]);
    rig.remembered(task, |tctx| tctx.move_why = move_why_MOVE_UP as u8);
    enqueue(&mut rig, task);
    assert!(is_throttled(&rig, task));
    assert_eq!(rig.remembered(task, |tctx| tctx.move_why), move_why_MOVE_NOT as u8);
}

#[test]
fn a_task_that_may_hold_a_kernel_lock_goes_on() {
    let (mut rig, task) = rig(&[0, 1], &[0, 1]);
    rig.remembered(task, |tctx| tctx.at_user = 0);
    enqueue(&mut rig, task);
    assert_eq!(rig.waiting(0), [task]);
}

/// That CPU's own clock is behind: another CPU took a task from there, and left it with the time of that.
#[test]
fn a_task_that_another_cpu_enqueues_waits_from_now_on() {
    let (mut rig, task) = rig(&[0, 1], &[0, 1]);
    rig.kernel.cpu = 1;
    rig.kernel.cpus[1].clock_left_at = Some(rig.kernel.now);
    rig.kernel.now += 50 * MSEC;
    enqueue(&mut rig, task);
    assert!(is_throttled(&rig, task));
    let now = rig.kernel.now;
    assert_eq!(rig.remembered(task, |tctx| tctx.enqueued_at), now);
}

#[test]
fn what_the_kernel_waits_for_goes_on() {
    for (cpus, flags) in [(&[0][..], PF_KTHREAD), (&[0, 1], PF_KTHREAD), (&[0, 1], PF_EXITING)] {
        let (mut rig, task) = rig(&[0, 1], cpus);
        rig.kernel.tasks[task].raw_mut().flags |= flags;
        enqueue(&mut rig, task);
        assert!(!is_throttled(&rig, task), "{flags:#x}");
    }
}

/// Whether it waits already, or runs on its way to the signal.
#[test]
fn a_killed_task_is_not_throttled() {
    let (mut rig, waiting) = throttled(&[0, 1]);
    use_up(&mut rig);
    let running = add(&mut rig, &[0, 1]);
    for task in [waiting, running] {
        rig.kernel.tasks[task].raw_mut().pending.signal.sig[0] = 1 << 8;
    }
    enqueue(&mut rig, running);
    assert!(!is_throttled(&rig, running));
    unthrottle(&mut rig);
    assert!(!is_throttled(&rig, waiting));
}

/// There is a slice for the first; the pool owes for the second, which waits for another period.
#[test]
fn those_for_which_there_is_no_slice_wait_on() {
    let (mut rig, task) = throttled(&[0, 1]);
    use_up(&mut rig);
    let first = unthrottle(&mut rig);
    assert!(is_throttled(&rig, task));
    assert!(unthrottle(&mut rig).abs_diff(first + PERIOD) < MSEC);
    assert!(is_throttled(&rig, task));
}

#[test]
fn so_many_at_a_time_and_the_others_soon() {
    let (mut rig, first) = throttled(&[0]);
    for _ in 0..MAX_UNTHROTTLES {
        let task = add(&mut rig, &[0]);
        enqueue(&mut rig, task);
    }
    let at = unthrottle(&mut rig);
    assert_eq!(rig.waiting(0).len(), MAX_UNTHROTTLES as usize);
    assert_eq!(rig.waiting(0)[0], first);
    assert!(unthrottle(&mut rig).abs_diff(at + u64::from(THROTTLE_MIN_NS)) < MSEC / 10);
    assert_eq!(rig.waiting(0).len(), MAX_UNTHROTTLES as usize + 1);
}

/// Those that were throttled later may be due sooner, by a shorter period.
#[test]
fn the_timer_comes_for_the_one_that_is_due_first() {
    let (mut rig, _) = throttled(&[0]);
    let start = rig.kernel.now;
    let group = rig.kernel.make_cgroup(&Spec::default());
    rig.kernel.set_cgroup_max(group, Some(QUOTA / 1000), 20_000, 0);
    rig.kicked();
    rig.cpu(0, |cctx| cctx.limit_changed = 0);
    rig.call(rig.u.charge_groups, (0, 2, QUOTA));
    let task = add(&mut rig, &[0]);
    rig.kernel.move_to_cgroup(task, group);
    enqueue(&mut rig, task);
    assert!(is_throttled(&rig, task));
    assert!(unthrottle(&mut rig).abs_diff(start + 20 * MSEC) < MSEC);
    assert_eq!(rig.waiting(0), [task]);
    assert!(unthrottle(&mut rig).abs_diff(start + PERIOD) < MSEC);
    assert_eq!(rig.waiting(0).len(), 2);
}

/// The kernel may have no memory for it: then the CPU looks again and again.
#[test]
fn a_timer_that_cannot_be_started_loses_nothing() {
    let (mut rig, task) = rig(&[0, 1], &[0, 1]);
    rig.kernel.timers_fail = true;
    enqueue(&mut rig, task);
    assert_eq!(rig.kicked(), [0]);
    rig.call(rig.u.unthrottle, (0,));
    assert_eq!(rig.kicked(), [0]);
    assert!(is_throttled(&rig, task));
    rig.kernel.now += PERIOD;
    rig.call(rig.u.unthrottle, (0,));
    assert_eq!(rig.waiting(0), [task]);
}

proptest! {
    #[test]
    fn a_task_that_goes_on_is_owed_no_more_than_one_that_wakes(by in 0..600 * MSEC) {
        let (mut rig, task) = throttled(&[0, 1]);
        rig.cpu(0, |cctx| cctx.vtime += by);
        unthrottle(&mut rig);
        prop_assert_eq!(rig.waiting(0), [task]);
        rig.kernel.take_out(task);
        run(&mut rig, task, 0);
        prop_assert_eq!(ahead(&mut rig, task), 0);
        prop_assert!(!rig.call(rig.u.is_throttled, (rig.tctx(task),)));
        prop_assert_eq!(rig.stat(magpie_stat_STAT_STOLEN_NS), 0);
    }
}

/// Long before the watchdog bites, though there is no slice for it.
#[test]
fn a_task_that_waits_too_long_goes_on_all_the_same() {
    let (mut rig, task) = throttled(&[0]);
    use_up(&mut rig);
    let until = rig.kernel.now + u64::from(rig.kernel.tunables.timeout_ms) * MSEC / 4;
    while is_throttled(&rig, task) {
        unthrottle(&mut rig);
    }
    assert!(rig.kernel.now.abs_diff(until) < MSEC);
    assert_eq!(rig.waiting(0), [task]);
    assert_eq!(rig.remembered(task, |tctx| tctx.at_user), 1);
}

/// What waits for the end of its task work may wait for long.
#[test]
fn one_that_waits_in_its_task_work_gets_out_of_it() {
    let (mut rig, task) = throttled(&[0]);
    use_up(&mut rig);
    rig.kernel.tasks[task].raw_mut().migration_disabled = 1;
    while is_throttled(&rig, task) {
        unthrottle(&mut rig);
    }
    assert_eq!(rig.remembered(task, |tctx| tctx.at_user), 0);
}

/// Its nice value, its affinity: the kernel takes it out and enqueues it again.
#[test]
fn a_change_leaves_it_where_it_is() {
    let (mut rig, task) = throttled(&[0, 1]);
    let since = rig.remembered(task, |tctx| tctx.enqueued_at);
    rig.kernel.now += MSEC;
    rig.kernel.take_out(task);
    enqueue(&mut rig, task);
    assert!(is_throttled(&rig, task));
    assert_eq!(rig.remembered(task, |tctx| tctx.enqueued_at), since);
    assert_eq!(rig.stat(magpie_stat_STAT_THROTTLED), 1);
    // That of its affinity waits until it has left its task work.
    rig.kernel.take_out(task);
    rig.kernel.tasks[task].raw_mut().migration_disabled = 1;
    enqueue(&mut rig, task);
    assert_eq!(rig.waiting(0), [task]);
    assert_eq!(rig.remembered(task, |tctx| tctx.at_user), 0);
}

#[test]
fn a_task_without_a_limit_any_more_waits_in_its_cpus_queue() {
    for (cpus, pinned) in [(&[0, 1][..], false), (&[0], true)] {
        let (mut rig, task) = throttled(cpus);
        rig.cpu(0, |cctx| cctx.vtime += 60 * MSEC);
        rig.kernel.set_cgroup_max(1, None, 100_000, 0);
        rig.kernel.take_out(task);
        enqueue(&mut rig, task);
        let queue = if pinned { rig.call(rig.u.pinned_queue, (0,)) } else { 0 };
        assert_eq!(rig.kernel.tasks[task].place, Place::Dsq(queue as usize));
        assert_eq!(ahead(&mut rig, task), 0);
    }
}

/// However far away its check is, and whatever else waits there.
#[test]
fn a_raised_limit_acts_at_once() {
    for quota in [None, Some(50_000)] {
        let (mut rig, task) = throttled(&[0, 1]);
        rig.kicked();
        rig.kernel.set_cgroup_max(1, quota, 100_000, 0);
        assert_eq!(rig.kicked(), [0]);
        assert_eq!(rig.dispatch(0, None), [task]);
    }
    // A lower one leaves it where it is, to be checked when its period ends.
    let (mut rig, task) = throttled(&[0, 1]);
    rig.kernel.set_cgroup_max(1, Some(1), 100_000, 0);
    rig.call(rig.u.charge_groups, (0, 1, QUOTA));
    assert!(rig.dispatch(0, None).is_empty());
    assert!(is_throttled(&rig, task));
}

#[test]
fn idle_cpus_hear_of_those_that_go_on() {
    let (mut rig, task) = throttled(&[0, 1]);
    rig.fire_timer();
    rig.only_idle(&[1]);
    assert_eq!(rig.dispatch(0, None), [task]);
    // That one runs here: CPU 1 was told all the same, for current might have gone on.
    assert_eq!(rig.kicked(), [1]);
}

/// Another CPU queued it, and its clock is ahead: the task has waited for no time, not for ages.
#[test]
fn a_task_throttled_by_a_clock_ahead_does_not_starve() {
    let (mut rig, task) = throttled(&[0, 1]);
    let ahead = rig.kernel.now + 1000;
    rig.remembered(task, |tctx| tctx.enqueued_at = ahead);
    rig.cpu(0, |cctx| cctx.limit_changed = 1);
    assert_eq!(rig.call(rig.u.unthrottle, (0,)), 0);
    assert!(is_throttled(&rig, task));
}

/// It has done nothing since it was at the boundary: back it goes. Else it runs on, and is asked to tell when it is there.
#[test]
fn a_task_that_starts_to_run_without_a_slice() {
    let (mut rig, task) = rig(&[0, 1], &[0, 1]);
    rig.kicked();
    run(&mut rig, task, 0);
    assert_eq!(rig.kicked(), [0]);
    assert!(rig.kernel.tasks[task].work.is_none());

    rig.remembered(task, |tctx| tctx.at_user = 0);
    run(&mut rig, task, 0);
    assert!(rig.kicked().is_empty());
    assert_eq!(rig.kernel.tasks[task].raw().scx.slice, u64::from(OVERRUN_SLICE_NS));
    let work = rig.kernel.tasks[task].work.take().expect("it is asked");
    run(&mut rig, task, 0);
    assert!(rig.kernel.tasks[task].work.is_none(), "and not twice");
    // It has called exec() since, and has the id of its group's leader: its entry is that of its old id.
    let (null, mut key) = (std::ptr::null_mut(), rig.kernel.tasks[task].raw().pid as u64);
    rig.kernel.tasks[task].raw_mut().pid += 1000;
    // SAFETY: as the kernel calls it.
    rig.kernel.call(Op::TaskWork, Some(task), 0, |_| unsafe { work(null, (&raw mut key).cast(), null) });
    rig.kernel.tasks[task].raw_mut().pid = key as i32;
    assert_eq!(rig.kicked(), [0]);
    assert_eq!(rig.remembered(task, |tctx| (tctx.at_user, tctx.asked)), (1, 0));
    // There is a slice again: on it goes.
    rig.kernel.now += PERIOD;
    run(&mut rig, task, 0);
    assert!(rig.kicked().is_empty());
    assert_eq!(rig.remembered(task, |tctx| tctx.at_user), 0);
    rig.kernel.set_cgroup_max(1, Some(1000), 100_000, 0);
    rig.call(rig.u.charge_groups, (0, 1, QUOTA));
    run(&mut rig, task, 0);
    assert!(rig.kernel.tasks[task].work.is_some(), "it can be asked again");
}

/// From 6.19 on the kernel preempts a task with migration disabled, as task work has it, by way of stopping() and running().
#[test]
fn a_task_preempted_at_the_boundary_remains_there() {
    for sleeps in [false, true] {
        let (mut rig, task) = rig(&[0, 1], &[0, 1]);
        rig.kicked();
        rig.run(task, 0);
        rig.kernel.tasks[task].raw_mut().scx.slice = 0;
        rig.kernel.tasks[task].raw_mut().__state = sleeps.into();
        let raw = rig.raw(task);
        // SAFETY: as the kernel calls it.
        rig.kernel.call(Op::Stopping, Some(task), 0, |ops| unsafe { ops.stopping.unwrap()(raw, false) });
        running(&mut rig, task);
        assert!(rig.kicked().is_empty());
        assert!(rig.kernel.tasks[task].work.is_none());
        assert_eq!(rig.remembered(task, |tctx| tctx.at_user), u8::from(!sleeps));
    }
}

/// It returns to sched_ext while it is in the kernel, where it may hold a lock.
#[test]
fn a_task_that_is_real_time_at_the_boundary_is_not_known_to_be_there() {
    let (mut rig, task) = rig(&[0, 1], &[0, 1]);
    rig.remembered(task, |tctx| tctx.at_user = 0);
    run(&mut rig, task, 0);
    let work = rig.kernel.tasks[task].work.take().expect("it is asked");
    rig.kernel.tasks[task].raw_mut().prio = 50;
    let (null, mut key) = (std::ptr::null_mut(), rig.kernel.tasks[task].raw().pid as u64);
    // SAFETY: as the kernel calls it.
    rig.kernel.call(Op::TaskWork, Some(task), 0, |_| unsafe { work(null, (&raw mut key).cast(), null) });
    assert_eq!(rig.remembered(task, |tctx| (tctx.at_user, tctx.asked)), (0, 0));
}

/// Before 6.18, or without memory.
#[test]
fn a_task_that_cannot_be_asked_is_asked_again() {
    let (mut rig, task) = rig(&[0, 1], &[0, 1]);
    rig.remembered(task, |tctx| tctx.at_user = 0);
    rig.kernel.works_fail = true;
    run(&mut rig, task, 0);
    rig.kernel.works_fail = false;
    run(&mut rig, task, 0);
    assert!(rig.kernel.tasks[task].work.is_some());
}

#[test]
fn a_tick_that_ends_the_slice_tells_where_the_task_is() {
    // The last: a second tick interrupts what the first one's interrupt still does.
    for (user, slice, before, at_user) in [(true, 0, 0, 1), (false, 0, 0, 0), (true, 1, 0, 0), (false, 0, 1, 1)] {
        let (mut rig, task) = rig(&[0, 1], &[0, 1]);
        rig.remembered(task, |tctx| tctx.at_user = 0);
        run(&mut rig, task, 0);
        rig.remembered(task, |tctx| tctx.at_user = before);
        rig.kernel.tasks[task].raw_mut().scx.slice = slice;
        rig.kernel.native.interrupt(user);
        rig.tick(task);
        assert_eq!(rig.remembered(task, |tctx| tctx.at_user), at_user, "{user} {slice}");
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

/// The kernel forgets the kick of a timer that comes while dispatch() has dropped the rq lock.
#[test]
fn a_cpu_whose_timer_has_come_does_not_idle() {
    for due in [false, true] {
        let mut rig = Rig::new("1x1x2x1", &[]);
        rig.only_idle(&[]);
        rig.cpu(1, |cctx| cctx.throttle_timer_fired = due.into());
        rig.go_idle(1);
        assert_eq!(rig.kicked(), if due { vec![1] } else { vec![] });
    }
}

/// While the kernel bypasses the scheduler the task is not queued, and would be preempted each time.
#[test]
fn a_task_without_a_slice_is_sent_back_once() {
    let (mut rig, task) = rig(&[0, 1], &[0, 1]);
    for kicked in [vec![0], vec![], vec![]] {
        rig.remembered(task, |tctx| tctx.at_user = 1);
        run(&mut rig, task, 0);
        assert_eq!(rig.kicked(), kicked);
    }
    rig.remembered(task, |tctx| tctx.at_user = 1);
    enqueue(&mut rig, task);
    assert_eq!(rig.remembered(task, |tctx| tctx.sent_back), 0);
}

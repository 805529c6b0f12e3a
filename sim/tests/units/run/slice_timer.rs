// SPDX-License-Identifier: GPL-2.0-only
//! `run/slice_timer.bpf.h`: a slice ends on time where a task waits, and no timer is set elsewhere.

use magpie_sim::dsq::TaskId;

use crate::rig::Rig;

const MSEC: u64 = 1_000_000;
const SLICE: u64 = 3 * MSEC;
/// ns that callbacks take.
const COSTS: u64 = 10_000;

fn rig() -> (Rig, TaskId) {
    let mut rig = Rig::new("1x1x2x1", &[]);
    rig.only_idle(&[]);
    let task = rig.task();
    (rig, task)
}

fn waits(rig: &mut Rig) {
    let waiter = rig.task();
    rig.queue(waiter, 0, 0);
}

/// A task starts on CPU 0, and has so much of its slice.
fn starts(rig: &mut Rig, task: TaskId, slice: u64) {
    rig.kernel.tasks[task].raw_mut().scx.slice = slice;
    rig.running(task, 0);
}

fn is_set(rig: &Rig) -> bool {
    rig.kernel.timers.iter().any(|timer| timer.due.is_some())
}

/// The timer fires this long after `from`; returns the CPUs that it kicks.
fn fires(rig: &mut Rig, from: u64, after: u64) -> Vec<usize> {
    let (at, kicked) = rig.fire_timer();
    assert!(at.abs_diff(from + after) < COSTS, "after {} ns, not {after}", at - from);
    kicked
}

#[test]
fn a_slice_ends_on_time_where_a_task_waits() {
    let (mut rig, task) = rig();
    waits(&mut rig);
    let now = rig.kernel.now;
    starts(&mut rig, task, SLICE);
    assert_eq!(fires(&mut rig, now, SLICE), [0]);
    assert!(!is_set(&rig));
}

#[test]
fn what_is_kept_has_another_slice_that_ends_on_time() {
    let (mut rig, task) = rig();
    starts(&mut rig, task, SLICE);
    assert!(!is_set(&rig));
    let waiter = rig.task();
    rig.queue(waiter, 0, 1 << 50);
    rig.kernel.now += SLICE;
    let now = rig.kernel.now;
    rig.kernel.tasks[task].set_queued(true);
    rig.kernel.tasks[task].raw_mut().se.exec_start = now;
    assert!(rig.dispatch(0, Some(task)).is_empty());
    assert_eq!(fires(&mut rig, now, SLICE), [0]);
}

#[test]
fn none_is_set_where_no_task_waits_until_a_tick_finds_one() {
    let (mut rig, task) = rig();
    starts(&mut rig, task, SLICE);
    rig.tick(task);
    assert!(!is_set(&rig));
    waits(&mut rig);
    rig.kernel.tasks[task].raw_mut().scx.slice = MSEC;
    let now = rig.kernel.now;
    rig.tick(task);
    assert_eq!(fires(&mut rig, now, MSEC), [0]);
}

#[test]
fn it_is_set_once_a_slice_however_many_tasks_run() {
    let (mut rig, task) = rig();
    waits(&mut rig);
    let first = rig.kernel.now;
    starts(&mut rig, task, SLICE);
    rig.kernel.now += MSEC;
    let (next, now) = (rig.task(), rig.kernel.now);
    starts(&mut rig, next, SLICE);
    // The slice of the first task would be over; that of the next one is not.
    assert!(fires(&mut rig, first, SLICE).is_empty());
    assert_eq!(fires(&mut rig, now, SLICE), [0]);
}

#[test]
fn the_rest_of_a_slice_brings_it_forward() {
    let (mut rig, task) = rig();
    waits(&mut rig);
    starts(&mut rig, task, SLICE);
    let (next, now) = (rig.task(), rig.kernel.now);
    starts(&mut rig, next, MSEC);
    assert_eq!(fires(&mut rig, now, MSEC), [0]);
}

#[test]
fn it_kicks_no_cpu_where_no_task_waits_any_more() {
    let (mut rig, task) = rig();
    waits(&mut rig);
    starts(&mut rig, task, SLICE);
    let waiter = rig.waiting(0)[0];
    rig.kernel.take_out(waiter);
    rig.cpu(0, |cctx| cctx.queued = 0);
    assert!(rig.fire_timer().1.is_empty());
    assert!(!is_set(&rig));
}

/// It may hold the mutex of a pipe: the tick ends its slice.
#[test]
fn it_leaves_a_task_that_sends_alone() {
    let (mut rig, task) = rig();
    waits(&mut rig);
    starts(&mut rig, task, SLICE);
    rig.cpu(0, |cctx| cctx.sync_wakes = 1);
    assert!(rig.fire_timer().1.is_empty());
    assert!(!is_set(&rig));
}

/// The kernel may have no memory for it: then the tick ends the slice.
#[test]
fn a_timer_that_cannot_be_set_is_tried_again() {
    let (mut rig, task) = rig();
    waits(&mut rig);
    rig.kernel.timers_fail = true;
    starts(&mut rig, task, SLICE);
    assert!(!is_set(&rig));
    rig.kernel.timers_fail = false;
    starts(&mut rig, task, SLICE);
    assert!(is_set(&rig));
}

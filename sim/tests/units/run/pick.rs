// SPDX-License-Identifier: GPL-2.0-only
//! `run/pick.bpf.h`: what a CPU runs next.

use magpie_sim::cgroup::Spec;
use magpie_sim::dsq::{TaskId, pinned_queue};
use magpie_sim::native::{MAX_PULL_CHECKS, SHARE_NS, move_why_MOVE_NOT, move_why_MOVE_PREFERRED, move_why_MOVE_UP};
use magpie_sim::trace::Op;
use proptest::prelude::*;
use scx_magpie::bpf_intf::*;

use crate::rig::Rig;

const SLICE: u64 = 3_000_000;
/// Of the running task, which [`rig`] sets up.
const DEADLINE: u64 = 1 << 40;

/// CPU 0 runs a task whose slice is over, and asks what is next.
fn rig() -> (Rig, TaskId) {
    let mut rig = Rig::new("1x1x2x1", &[]);
    rig.only_idle(&[]);
    let curr = rig.task();
    rig.remembered(curr, |tctx| (tctx.vruntime, tctx.vtime_cpu, tctx.sync_wakeup) = (DEADLINE - SLICE, 0, 1));
    rig.run_noted(curr, 0);
    rig.kernel.tasks[curr].raw_mut().scx.slice = 0;
    (rig, curr)
}

fn slice_of(rig: &Rig, task: TaskId) -> u64 {
    rig.kernel.tasks[task].raw().scx.slice
}

#[test]
fn the_earliest_deadline_is_next() {
    for pinned in [false, true] {
        for (deadline, keeps) in [(DEADLINE - 1, false), (DEADLINE, false), (DEADLINE + 1, true)] {
            let (mut rig, curr) = rig();
            let next = if pinned { rig.task_on([0]) } else { rig.task() };
            rig.queue(next, 0, deadline);
            assert_eq!(rig.dispatch(0, Some(curr)), if keeps { vec![] } else { vec![next] });
            assert_eq!(slice_of(&rig, curr), if keeps { SLICE } else { 0 });
            assert_eq!(rig.stat(magpie_stat_STAT_KEEP), u64::from(keeps));
        }
    }
}

#[test]
fn the_first_of_both_queues_is_taken() {
    for (migratable, pinned) in [(5, 6), (6, 5)] {
        let (mut rig, _) = rig();
        let tasks = [rig.task(), rig.task_on([0])];
        rig.queue(tasks[0], 0, migratable);
        rig.queue(tasks[1], 0, pinned);
        let [first, second] = if pinned < migratable { [1, 0] } else { [0, 1] };
        assert_eq!(rig.dispatch(0, None), [tasks[first]]);
        assert_eq!(rig.dispatch(0, None), [tasks[first], tasks[second]]);
    }
}

/// The wakee that preempted may have been stolen.
#[test]
fn current_goes_on_if_nothing_waits() {
    let (mut rig, curr) = rig();
    rig.kernel.now += 10 * SLICE;
    rig.kernel.tasks[curr].raw_mut().se.exec_start = rig.kernel.now;
    rig.cpu(0, |cctx| cctx.preempted_by = preempter_BY_WAKEE as u8);
    assert!(rig.dispatch(0, Some(curr)).is_empty());
    assert_eq!((slice_of(&rig, curr), rig.cpu(0, |cctx| cctx.preempted_by)), (SLICE, 0));
    // That is a slice of its own.
    assert_eq!(rig.cpu(0, |cctx| cctx.curr_started), rig.kernel.now);
}

/// The kernel does not tell of one that went idle while it bypassed us.
#[test]
fn an_idle_cpu_that_counts_as_busy_does_not_any_more() {
    let (mut rig, _) = rig();
    rig.only_idle(&[1]);
    rig.cpu(1, |cctx| cctx.pelt.running = 1);
    rig.dispatch(1, None);
    assert_eq!(rig.cpu(1, |cctx| cctx.pelt.running), 0);
}

/// The wakee, or another one that came before it meanwhile.
#[test]
fn current_that_was_preempted_makes_way_once_whatever_its_deadline() {
    for by in [preempter_BY_NONE, preempter_BY_WAKEE] {
        let (mut rig, curr) = rig();
        let first = rig.task();
        rig.cpu(0, |cctx| cctx.preempted_by = by as u8);
        rig.queue(first, 0, 2 * DEADLINE);
        let makes_way = by == preempter_BY_WAKEE;
        assert_eq!(rig.dispatch(0, Some(curr)), if makes_way { vec![first] } else { vec![] });
        rig.stopping(curr, true);
        assert_eq!(rig.cpu(0, |cctx| cctx.preempted_by), 0);
    }
}

#[test]
fn current_does_not_go_on_if_it_sleeps_or_is_sent_elsewhere() {
    for (sleeps, why) in [(true, move_why_MOVE_NOT), (false, move_why_MOVE_PREFERRED), (false, move_why_MOVE_UP)] {
        let (mut rig, curr) = rig();
        rig.kernel.tasks[curr].set_queued(!sleeps);
        rig.remembered(curr, |tctx| tctx.move_why = why as u8);
        let next = rig.task();
        rig.queue(next, 0, 2 * DEADLINE);
        assert_eq!(rig.dispatch(0, Some(curr)), [next]);
        rig.kernel.take_out(next);
        assert!(rig.dispatch(0, Some(curr)).is_empty());
        assert_eq!((slice_of(&rig, curr), rig.stat(magpie_stat_STAT_KEEP)), (0, 0));
    }
}

/// It has run since it was charged last.
#[test]
fn current_is_charged_before_it_is_compared() {
    let (mut rig, curr) = rig();
    let next = rig.task();
    rig.queue(next, 0, DEADLINE + SLICE);
    rig.kernel.tasks[curr].raw_mut().se.sum_exec_runtime += SLICE;
    assert_eq!(rig.dispatch(0, Some(curr)), [next]);
}

#[test]
fn a_starved_task_comes_first() {
    let (mut rig, curr) = rig();
    let (starved, first) = (rig.task(), rig.task());
    rig.queue(starved, 0, 3 * DEADLINE);
    rig.kernel.now += 60_000_000_000;
    rig.queue(first, 0, 0);
    rig.tick(curr);
    assert_eq!(rig.dispatch(0, Some(curr)), [starved]);
    assert_eq!(rig.dispatch(0, None), [starved, first]);
    assert_eq!(rig.stat(magpie_stat_STAT_STARVED), 1);
}

/// A quarter of the watchdog's timeout.
const STARVE: u64 = 1_000_000_000;

/// Tasks in a queue of CPU 0 in this order, which have waited for so long; their new order.
fn requeued(pinned: bool, waits: &[u64], looks: u32) -> Vec<usize> {
    let mut rig = Rig::new("1x1x2x1", &["--timeout-ms", "4000"]);
    rig.only_idle(&[]);
    rig.kernel.now = 1_000_000_000_000;
    let now = rig.kernel.now;
    let tasks: Vec<_> = waits
        .iter()
        .enumerate()
        .map(|(i, wait)| {
            let task = if pinned { rig.task_on([0]) } else { rig.task() };
            rig.queue(task, 0, i as u64);
            rig.remembered(task, |tctx| tctx.enqueued_at = now - wait);
            task
        })
        .collect();
    rig.call(rig.u.requeue_late, (0, if pinned { pinned_queue(0) as u64 } else { 0 }, looks));
    let order = rig.waiting(0);
    order.into_iter().map(|task| tasks.iter().position(|&t| t == task).unwrap()).collect()
}

proptest! {
    #[test]
    fn tasks_that_have_waited_too_long_come_first(
        pinned: bool,
        waits in prop::collection::vec(prop_oneof![9 => 0..STARVE, 1 => STARVE..2 * STARVE, 1 => Just(STARVE)], 0..20),
    ) {
        let (starved, others): (Vec<_>, Vec<_>) = (0..waits.len()).partition(|&i| waits[i] >= STARVE);
        let expected: Vec<_> = starved.into_iter().rev().chain(others).collect();
        prop_assert_eq!(requeued(pinned, &waits, magpie_limits_MAX_STARVE_CHECKS), expected);
    }
}

#[test]
fn no_more_tasks_are_checked_than_asked() {
    for (looks, first) in [(3, 0), (4, 1)] {
        assert_eq!(requeued(false, &[0, STARVE, 0, 0, 0], looks)[0], first);
    }
}

/// No dispatch() comes as long as the kernel finds tasks in the local DSQ.
#[test]
fn a_tick_that_finds_something_due_ends_the_slice_if_the_local_dsq_has_tasks() {
    for (local, due, throttle_timer_fired, ends) in
        [(true, true, 0, true), (true, false, 0, false), (true, false, 1, true), (false, true, 1, false)]
    {
        let (mut rig, curr) = rig();
        rig.kernel.tasks[curr].raw_mut().scx.slice = SLICE;
        rig.kernel.now += 1 << 30;
        let now = rig.kernel.now;
        let at = if due { 0 } else { now };
        let elsewhere = rig.task();
        rig.queue(elsewhere, 1, 0);
        rig.cpu(0, |cctx| (cctx.balanced_at, cctx.throttle_timer_fired) = (at, throttle_timer_fired));
        if local {
            let task = rig.task_on([0]);
            rig.kernel.cpus[0].local.push_back(task);
        }
        rig.tick(curr);
        assert_eq!(slice_of(&rig, curr) == 0, ends, "{local} {due} {throttle_timer_fired}");
    }
}

/// By way of the idle loop it would take two switches.
#[test]
fn a_cpu_steals_before_it_goes_idle() {
    for own in [false, true] {
        let (mut rig, _) = rig();
        let (other, next) = (rig.task(), rig.task());
        rig.queue(other, 1, 0);
        if own {
            rig.queue(next, 0, 0);
        }
        assert_eq!(rig.dispatch(0, None), [if own { next } else { other }]);
    }
}

/// The kick that comes with the claim is forgotten when dispatch() ends.
#[test]
fn a_claim_that_comes_while_a_cpu_steals_is_not_lost() {
    for claimed in [false, true] {
        let mut rig = Rig::new("1x1x3x1", &[]);
        rig.kernel.quirks.claimed_while_stealing = claimed;
        rig.only_idle(&[0]);
        let task = if claimed { rig.task() } else { rig.task_on([1, 2]) };
        rig.queue(task, 1, 0);
        assert!(rig.dispatch(0, None).is_empty());
        assert_eq!(rig.kernel.kicks, if claimed { vec![(0, 0)] } else { vec![] });
    }
}

/// A CPU that is kicked in vain is to be found idle, and looks again: the other half of the handshake with enqueue().
#[test]
fn an_idle_cpu_that_finds_nothing_is_marked_idle_again() {
    let mut rig = Rig::new("1x1x3x1", &[]);
    rig.only_idle(&[0]);
    assert!(rig.call(rig.u.claim_idle, (0,)));
    assert!(rig.dispatch(0, None).is_empty());
    assert_eq!(rig.idle(), [0].into());
    assert_eq!(rig.stat(magpie_stat_STAT_EMPTY), 1);
}

/// yield_to(), by KVM: the task comes first, wherever it waits, if it may come.
#[test]
fn a_cpu_takes_the_task_that_current_yields_to() {
    for (allowed, waits_on, comes) in [
        (vec![0, 1], Some(0), true),
        (vec![0, 1], Some(1), true),
        (vec![0], Some(0), true),
        (vec![1], Some(1), false),
        (vec![0, 1], None, false),
    ] {
        let (mut rig, curr) = rig();
        let (first, to) = (rig.task(), rig.task_on(allowed.clone()));
        rig.queue(first, 0, DEADLINE - 2);
        if let Some(cpu) = waits_on {
            let behind = rig.task_on([cpu]);
            rig.queue(behind, cpu, DEADLINE - 1);
            rig.queue(to, cpu, DEADLINE);
        }
        rig.kernel.tasks[curr].raw_mut().scx.slice = SLICE;
        let (from, target) = (rig.raw(curr), rig.raw(to));
        // SAFETY: as the kernel calls it.
        let yielded = rig.kernel.call(Op::Yield, Some(curr), 0, |ops| unsafe { ops.yield_.unwrap()(from, target) });
        let what = format!("{allowed:?}, waits on {waits_on:?}");
        assert_eq!((yielded, slice_of(&rig, curr)), (comes, if comes { 0 } else { SLICE }), "{what}");
        assert_eq!(rig.dispatch(0, Some(curr)), [if comes { to } else { first }], "{what}");
        if comes {
            assert_eq!(rig.dispatch(0, None), [to, first], "{what}");
        }
    }
}

/// So many tasks of a cgroup are runnable, and the first of them waits for CPU 0.
fn one_of_group_queued(nr: usize) -> (Rig, Vec<TaskId>) {
    let (mut rig, _) = rig();
    rig.kernel.now = 1_000_000_000_000;
    let group = rig.kernel.make_cgroup(&Spec::default());
    let tasks: Vec<_> = (0..nr).map(|_| rig.task()).collect();
    for &task in &tasks {
        rig.kernel.move_to_cgroup(task, group);
        rig.call(rig.u.place, (rig.raw(task), rig.tctx(task), 0, true));
    }
    rig.call(rig.u.flush_cpu, (0,));
    rig.kernel.now += u64::from(SHARE_NS);
    let task = tasks[0];
    rig.call(rig.u.group_enter, (rig.raw(task), rig.tctx(task)));
    rig.queue(task, 0, 2 * DEADLINE);
    (rig, tasks)
}

/// The siblings sleep one by one, with a check after each: no check sees that the share has doubled since the last one.
#[test]
fn a_share_that_grows_slowly_counts_from_when_the_task_was_queued() {
    let (mut rig, tasks) = one_of_group_queued(5);
    let task = tasks[0];
    let mut moved = vec![];
    for &sibling in &tasks[1..4] {
        rig.call(rig.u.group_leave, (rig.tctx(sibling), 0, rig.kernel.now));
        rig.call(rig.u.flush_cpu, (0,));
        rig.kernel.now += u64::from(SHARE_NS);
        rig.call(rig.u.requeue_late, (0, 0, MAX_PULL_CHECKS));
        moved.push(rig.kernel.tasks[task].raw().scx.dsq_vtime < 2 * DEADLINE);
    }
    assert_eq!(moved, [false, false, true]);
}

/// It waits by the share that it had when its siblings were runnable. One whose share grew less than that stays where it is.
#[test]
fn a_task_whose_share_has_doubled_since_it_came_is_put_where_it_belongs() {
    for (siblings, moves) in [(2, true), (1, true), (0, false)] {
        let (mut rig, tasks) = one_of_group_queued(siblings + 1);
        let task = tasks[0];
        for &sibling in &tasks[1..] {
            rig.call(rig.u.group_leave, (rig.tctx(sibling), 0, rig.kernel.now));
        }
        rig.call(rig.u.flush_cpu, (0,));
        rig.kernel.now += u64::from(SHARE_NS);
        rig.call(rig.u.requeue_late, (0, 0, MAX_PULL_CHECKS));
        let deadline = rig.kernel.tasks[task].raw().scx.dsq_vtime;
        assert_eq!(deadline < 2 * DEADLINE, moves, "{siblings}: {deadline}");
        assert_eq!(rig.waiting(0), [task]);
    }
}

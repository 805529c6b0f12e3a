// SPDX-License-Identifier: GPL-2.0-only
//! `order/queue.bpf.h`: a CPU's two queues, their load, and which task is first.

use std::collections::BTreeMap;

use magpie_sim::dsq::{TaskId, pinned_queue};
use magpie_sim::native::{SCX_ENQ_LAST, SCX_ENQ_REENQ, SCX_ENQ_WAKEUP, WEIGHT_DFL, WEIGHT_SHIFT};
use proptest::prelude::*;
use scx_magpie::bpf_intf::{due_DUE_BALANCE, queued_QUEUED_MOVABLE, queued_QUEUED_PINNED};

use crate::rig::{Rig, nice_weight};

#[test]
fn tasks_that_may_not_migrate_wait_apart() {
    for (cpus, disabled, pinned) in [(0..4, 0, false), (2..4, 0, false), (2..3, 0, true), (0..4, 1, true)] {
        let mut rig = Rig::new("1x1x4x1", &[]);
        let task = rig.task_on(cpus.clone());
        rig.kernel.tasks[task].raw_mut().migration_disabled = disabled;
        let queue = rig.call(rig.u.queue_add, (rig.raw(task), rig.tctx(task), 2, rig.cctx(2), 5000));
        assert_eq!(queue as usize, if pinned { pinned_queue(2) } else { 2 }, "{cpus:?}, disabled: {disabled}");
        let queued = rig.cpu(2, |cctx| u32::from(cctx.queued));
        assert_eq!(queued, if pinned { queued_QUEUED_PINNED } else { queued_QUEUED_MOVABLE });
        assert_eq!(rig.remembered(task, |tctx| (tctx.enqueued_at, tctx.queued_cpu)), (5000, 2));
    }
}

proptest! {
    /// Also when its weight has changed since it came.
    #[test]
    fn the_load_is_the_weight_of_the_tasks_that_wait(
        ops in prop::collection::vec((0..6usize, 0..2usize, nice_weight(), any::<bool>()), 1..40)
    ) {
        let mut rig = Rig::new("1x1x2x1", &[]);
        let tasks = [(); 6].map(|()| rig.task());
        let mut waiting = BTreeMap::new();
        for (task, cpu, weight, comes) in ops {
            rig.set_weight(tasks[task], weight);
            if comes && !waiting.contains_key(&task) {
                rig.call(rig.u.queue_add, (rig.raw(tasks[task]), rig.tctx(tasks[task]), cpu as i32, rig.cctx(cpu), 1));
                waiting.insert(task, (cpu, weight));
            } else if !comes {
                let gone = waiting.remove(&task);
                let last = gone.is_some_and(|(cpu, _)| waiting.values().all(|(other, _)| *other != cpu));
                prop_assert_eq!(rig.call(rig.u.queue_del, (rig.tctx(tasks[task]),)), last);
            }
            for cpu in 0..2 {
                let load: u32 = waiting.values().filter(|(other, _)| *other == cpu).map(|(_, weight)| weight).sum();
                prop_assert_eq!(rig.cpu(cpu, |cctx| cctx.queued_load), u64::from(load << WEIGHT_SHIFT));
            }
        }
    }
}

#[test]
fn the_running_task_counts_for_the_load_of_its_cpu() {
    let mut rig = Rig::new("1x1x2x1", &[]);
    rig.cpu(1, |cctx| (cctx.queued_load, cctx.curr_weight) = (1 << 40, 7));
    assert_eq!(rig.call(rig.u.cpu_load, (rig.cctx(1).cast_const(),)), (1 << 40) + 7);
}

/// Clocks of two CPUs differ by a little, so a task may have been queued in the future.
#[test]
fn a_task_waits_from_when_it_is_queued_until_it_runs() {
    let mut rig = Rig::new("1x1x2x1", &[]);
    let task = rig.task();
    for (enqueued_at, wait) in [(0, 0), (3000, 2000), (5000, 0), (5001, 0)] {
        rig.remembered(task, |tctx| tctx.enqueued_at = enqueued_at);
        assert_eq!(rig.call(rig.u.wait_time, (rig.tctx(task).cast_const(), 5000)), wait, "from {enqueued_at} to 5000");
    }
    rig.queue(task, 1, 0);
    assert_ne!(rig.remembered(task, |tctx| tctx.enqueued_at), 0);
    rig.kernel.take_out(task);
    rig.running(task, 1);
    assert_eq!(rig.remembered(task, |tctx| (tctx.enqueued_at, tctx.queued_weight)), (0, 0));
}

#[test]
fn the_first_of_two_queues_is_the_one_with_the_earlier_deadline() {
    for (migratable, pinned, first) in [
        (None, None, None),
        (Some(5), None, Some(0)),
        (None, Some(5), Some(1)),
        (Some(5), Some(4), Some(1)),
        (Some(5), Some(5), Some(0)),
        (Some(5), Some(6), Some(0)),
        // Over the wrap.
        (Some(5), Some(u64::MAX), Some(1)),
    ] {
        let mut rig = Rig::new("1x1x2x1", &[]);
        let tasks = [rig.task(), rig.task_on([0])];
        for (task, deadline) in tasks.into_iter().zip([migratable, pinned]) {
            if let Some(deadline) = deadline {
                rig.queue(task, 0, deadline);
            }
        }
        let mut queue = 0;
        let found = rig.call(rig.u.first_queued, (0, rig.cctx(0).cast_const(), &raw mut queue));
        let expected = first.map_or(std::ptr::null_mut(), |first| rig.raw(tasks[first]));
        assert_eq!(found, expected, "{migratable:?} {pinned:?}");
        assert_eq!(queue as usize, if first == Some(1) { pinned_queue(0) } else { 0 });
    }
}

/// The kernel takes it from there, and no dispatch() has to find it.
#[test]
fn a_pinned_task_that_is_next_goes_to_the_local_dsq() {
    type Change = fn(&mut Rig, TaskId);
    let cases: [(&str, bool, u64, Change); 9] = [
        ("its deadline is before current's next", true, SCX_ENQ_WAKEUP, |_, _| ()),
        ("... also when it did not wake", true, 0, |_, _| ()),
        ("a task waits", false, SCX_ENQ_WAKEUP, |rig, other| rig.queue(other, 0, u64::MAX >> 1)),
        ("one is in the local DSQ", false, SCX_ENQ_WAKEUP, |rig, other| rig.queue_local(other, 0)),
        ("dispatch() is to look at others", false, SCX_ENQ_WAKEUP, |rig, _| {
            rig.cpu(0, |cctx| cctx.due = due_DUE_BALANCE as u8)
        }),
        ("a kernel thread runs", false, SCX_ENQ_WAKEUP, |rig, _| rig.cpu(0, |cctx| cctx.curr_critical = 1)),
        ("its deadline is after current's next", false, SCX_ENQ_WAKEUP, |rig, _| {
            rig.cpu(0, |cctx| cctx.curr_requeued = 2_999_999)
        }),
        ("a higher class has the CPU", false, SCX_ENQ_REENQ, |_, _| ()),
        ("the CPU is about to go idle", false, SCX_ENQ_LAST, |_, _| ()),
    ];
    for (what, local, flags, change) in cases {
        let mut rig = Rig::new("1x1x2x1", &[]);
        rig.only_idle(&[]);
        let [curr, other, task] = [rig.task(), rig.task(), rig.task_on([0])];
        rig.run_noted(curr, 0);
        change(&mut rig, other);
        rig.kernel.activate(task, 0, flags);
        assert_eq!((rig.local(0).contains(&task), rig.waiting(0).contains(&task)), (local, !local), "{what}");
        assert!(!rig.kernel.cpus[0].need_resched, "{what}");
    }
}

/// What it gave up is the others'.
#[test]
fn virtual_time_does_not_serve_a_task_that_has_yielded() {
    let mut rig = Rig::new("1x1x2x1", &[]);
    let [yielded, other] = [rig.task(), rig.task()];
    rig.remembered(yielded, |tctx| tctx.yielded = 1);
    rig.queue(yielded, 0, 0);
    assert_eq!(rig.cpu(0, |cctx| cctx.queued_load), 1);
    rig.queue(other, 0, 0);
    assert_eq!(rig.cpu(0, |cctx| cctx.queued_load), 1 + u64::from(WEIGHT_DFL << WEIGHT_SHIFT));
    rig.running(yielded, 0);
    assert_eq!(rig.remembered(yielded, |tctx| (tctx.yielded, tctx.queued_weight)), (0, 0));
}

#[test]
fn a_task_that_may_migrate_waits_where_it_can_be_taken() {
    let mut rig = Rig::new("1x1x2x1", &[]);
    rig.only_idle(&[]);
    let [curr, task] = [rig.task(), rig.task()];
    rig.run_noted(curr, 0);
    rig.kernel.activate(task, 0, SCX_ENQ_WAKEUP);
    assert_eq!((rig.local(0), rig.waiting(0)), (vec![], vec![task]));
}

/// It may come back with the time of a wait of long ago.
#[test]
fn a_task_that_leaves_waits_no_more() {
    let mut rig = Rig::new("1x1x2x1", &[]);
    rig.only_idle(&[]);
    let task = rig.task();
    rig.queue(task, 0, 5);
    rig.remembered(task, |tctx| (tctx.enqueued_at, tctx.queued_cpu) = (5, 0));
    let ops = rig.kernel.ops.disable.unwrap();
    rig.call(Some(ops), (rig.raw(task),));
    assert_eq!(rig.remembered(task, |tctx| tctx.enqueued_at), 0);
}

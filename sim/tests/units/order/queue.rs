// SPDX-License-Identifier: GPL-2.0-only
//! `order/queue.bpf.h`: a CPU's two queues, their load, and which task is first.

use std::collections::BTreeMap;

use magpie_sim::dsq::{TaskId, pinned_queue};
use magpie_sim::native::{FIFO_SLICE_NS, PF_KTHREAD, SCX_ENQ_LAST, SCX_ENQ_REENQ, SCX_ENQ_WAKEUP, WEIGHT_SHIFT};
use magpie_sim::task::LOADER_TGID;
use proptest::prelude::*;
use scx_magpie::bpf_intf::{due_DUE_BALANCE, magpie_stat_STAT_PREEMPT, queued_QUEUED_MOVABLE, queued_QUEUED_PINNED};

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

/// CPU 0 of a machine where more than two tasks are many: a quarter of the time-out is two slices and a half. The tasks wait
/// there, the last one with the earliest deadline, and came with a tick after each.
fn long_queue<const N: usize>() -> (Rig, [TaskId; N]) {
    let mut rig = Rig::new("1x1x2x1", &["--slice-us", "100000", "--timeout-ms", "1000"]);
    rig.only_idle(&[]);
    let mut ahead = 0;
    let tasks = [(); N].map(|()| {
        let task = rig.task();
        ahead -= 1_000_000_i64;
        rig.remembered(task, |tctx| {
            (tctx.vruntime, tctx.vtime_cpu, tctx.sync_wakeup) = ((1_u64 << 40).wrapping_add_signed(ahead), 0, 1)
        });
        task
    });
    rig.cpu(0, |cctx| cctx.vtime = 1 << 40);
    for task in tasks {
        rig.kernel.activate(task, 0, 0);
        tick(&mut rig);
    }
    (rig, tasks)
}

/// What a tick of CPU 0 looks at here.
fn tick(rig: &mut Rig) {
    rig.call(rig.u.update_fifo, (0, rig.cctx(0)));
}

#[test]
fn a_tick_finds_a_queue_that_has_become_long() {
    let (mut rig, _) = long_queue::<6>();
    rig.cpu(0, |cctx| cctx.fifo = 0);
    let curr = rig.task();
    rig.run_noted(curr, 0);
    rig.tick(curr);
    assert_eq!(rig.cpu(0, |cctx| cctx.fifo), 1);
}

fn slice(rig: &Rig, task: TaskId) -> u64 {
    rig.kernel.tasks[task].raw().scx.slice
}

#[test]
fn a_long_queue_is_served_fifo_first_served() {
    let (rig, [a, b, c, d, e]) = long_queue();
    assert_eq!(rig.waiting(0), [c, b, a, d, e]);
    assert_eq!([slice(&rig, a), slice(&rig, d)], [100_000_000, FIFO_SLICE_NS.into()]);
}

#[test]
fn kernel_threads_and_the_loader_do_not_wait_in_a_long_queue() {
    let (mut rig, _) = long_queue::<5>();
    let [loader, kthread] = [rig.task(), rig.task()];
    rig.kernel.tasks[kthread].raw_mut().flags |= PF_KTHREAD;
    rig.kernel.tasks[loader].raw_mut().tgid = LOADER_TGID;
    rig.kernel.tasks[loader].traits.loader = true;
    rig.wake(kthread, 0);
    rig.wake(loader, 0);
    assert_eq!(rig.waiting(0)[..2], [loader, kthread]);
}

/// Its nice value is set, say: the kernel takes it out and queues it anew.
#[test]
fn a_task_that_is_queued_anew_keeps_its_place() {
    let (mut rig, _) = long_queue::<6>();
    let before = rig.waiting(0);
    let first = before[0];
    let came = rig.remembered(first, |tctx| tctx.enqueued_at);
    rig.kernel.now += 1000;
    rig.kernel.set_nice(first, 0);
    assert_eq!(rig.waiting(0), before);
    assert_eq!(rig.remembered(first, |tctx| tctx.enqueued_at), came);
}

#[test]
fn current_does_not_keep_the_cpu_while_a_long_queue_waits() {
    let (mut rig, [first, ..]) = long_queue::<6>();
    let curr = rig.task();
    rig.remembered(curr, |tctx| (tctx.vruntime, tctx.vtime_cpu, tctx.sync_wakeup) = (1 << 39, 0, 1));
    rig.run_noted(curr, 0);
    rig.kernel.tasks[curr].raw_mut().scx.slice = 0;
    let third = rig.waiting(0)[0];
    assert_ne!(third, first);
    assert_eq!(rig.dispatch(0, Some(curr)), [third]);
}

/// Until half of it has gone: by their deadlines tasks would come before all that are there.
#[test]
fn a_long_queue_is_one_until_it_is_half_as_long() {
    for (left, fifo) in [(3, true), (2, true), (1, false)] {
        let (mut rig, _) = long_queue::<6>();
        while rig.waiting(0).len() > left {
            rig.dispatch(0, None);
        }
        tick(&mut rig);
        let last = *rig.waiting(0).last().unwrap();
        let task = rig.task();
        rig.remembered(task, |tctx| (tctx.vruntime, tctx.vtime_cpu, tctx.sync_wakeup) = (1 << 39, 0, 1));
        rig.kernel.activate(task, 0, 0);
        assert_eq!(rig.waiting(0).last() == Some(&task), fifo, "{left} left");
        assert_eq!(rig.waiting(0).last() == Some(&last), !fifo, "{left} left");
    }
}

/// An idle CPU has no ticks.
#[test]
fn a_cpu_that_goes_idle_has_no_long_queue() {
    let (mut rig, _) = long_queue::<6>();
    while !rig.waiting(0).is_empty() {
        rig.dispatch(0, None);
    }
    assert_eq!(rig.cpu(0, |cctx| cctx.fifo), 1);
    rig.go_idle(0);
    assert_eq!(rig.cpu(0, |cctx| cctx.fifo), 0);
}

/// Of two queues, too, though one of them comes first when deadlines are the same.
#[test]
fn a_long_queue_takes_turns_with_the_one_of_pinned_tasks() {
    let (mut rig, _) = long_queue::<6>();
    while rig.waiting(0).len() > 3 {
        rig.dispatch(0, None);
    }
    let tasks = [rig.task_on([0]), rig.task(), rig.task_on([0])];
    for task in tasks {
        rig.remembered(task, |tctx| (tctx.vruntime, tctx.vtime_cpu, tctx.sync_wakeup) = (1 << 39, 0, 1));
        rig.kernel.activate(task, 0, 0);
    }
    let taken = [(); 6].map(|()| *rig.dispatch(0, None).last().unwrap());
    assert_eq!(taken[3..], tasks);
}

#[test]
fn no_task_preempts_into_a_long_queue() {
    for (waiting, preempts) in [(1, 1), (6, 0)] {
        let (mut rig, _) = long_queue::<6>();
        while rig.waiting(0).len() > waiting {
            rig.dispatch(0, None);
        }
        tick(&mut rig);
        let [curr, wakee] = [rig.task(), rig.task()];
        rig.remembered(curr, |tctx| (tctx.vruntime, tctx.vtime_cpu, tctx.sync_wakeup) = (1 << 40, 0, 1));
        rig.run_noted(curr, 0);
        rig.remembered(wakee, |tctx| (tctx.burst_est, tctx.vtime_cpu) = (0, 0));
        rig.wake(wakee, 0);
        assert_eq!(rig.stat(magpie_stat_STAT_PREEMPT), preempts, "{waiting} wait");
    }
}

/// The kernel takes it from there, and no dispatch() has to find it.
#[test]
fn a_pinned_task_that_is_next_goes_to_the_local_dsq() {
    type Change = fn(&mut Rig, TaskId);
    let cases: [(&str, bool, u64, Change); 10] = [
        ("its deadline is before current's next", true, SCX_ENQ_WAKEUP, |_, _| ()),
        ("... also when it did not wake", true, 0, |_, _| ()),
        ("a task waits", false, SCX_ENQ_WAKEUP, |rig, other| rig.queue(other, 0, u64::MAX >> 1)),
        ("one is in the local DSQ", false, SCX_ENQ_WAKEUP, |rig, other| rig.kernel.cpus[0].local.push_back(other)),
        ("dispatch() is to look at others", false, SCX_ENQ_WAKEUP, |rig, _| {
            rig.cpu(0, |cctx| cctx.due = due_DUE_BALANCE as u8)
        }),
        ("a kernel thread runs", false, SCX_ENQ_WAKEUP, |rig, _| rig.cpu(0, |cctx| cctx.curr_critical = 1)),
        ("the queue was long", false, SCX_ENQ_WAKEUP, |rig, _| rig.cpu(0, |cctx| cctx.fifo = 1)),
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

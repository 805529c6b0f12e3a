// SPDX-License-Identifier: GPL-2.0-only
//! `steal/overload.bpf.h`: the bit is set while a task waits that may move; those that may not wait apart.

use std::collections::VecDeque;

use magpie_sim::dsq::TaskId;
use magpie_sim::native::MAX_OFFER_LOOKS;
use magpie_sim::trace;
use proptest::prelude::*;
use scx_magpie::bpf_intf::*;

use crate::rig::Rig;

const LOOKS: usize = MAX_OFFER_LOOKS as usize;

#[derive(Clone, Copy, Debug)]
enum Op {
    /// A task is put in line; may it move?
    Queue(bool),
    Take,
    Tick,
    /// Another CPU takes a task.
    Steal,
}

fn op() -> impl Strategy<Value = Op> {
    // Runs of tasks that stay longer than the looks, now and then.
    prop_oneof![3 => Just(Op::Queue(true)), 30 => Just(Op::Queue(false)), 15 => Just(Op::Take), 5 => Just(Op::Tick),
                5 => Just(Op::Steal)]
}

/// CPU 0's queues: which tasks wait there and may move, in order of their deadlines, whether it thinks that some may, and whether the bit is
/// to be set.
#[derive(Default)]
struct Model {
    queue: VecDeque<(TaskId, bool)>,
    overloaded: bool,
    bit: bool,
}

impl Model {
    fn is_migratable(&self) -> bool {
        self.queue.iter().any(|(_, moves)| *moves)
    }

    fn apply(&mut self, rig: &mut Rig, op: Op, time: u64) {
        match op {
            Op::Queue(moves) => {
                let task = if moves { rig.task() } else { rig.task_on([0]) };
                rig.queue(task, 0, time);
                self.queue.push_back((task, moves));
                self.overloaded |= moves;
                self.bit |= moves;
            }
            Op::Take => {
                rig.kernel.cpu = 0;
                let mut queue = 0;
                let first = rig.call(rig.u.first_queued, (0, rig.cctx(0), &mut queue));
                let expected = self.queue.pop_front().map(|(task, _)| task);
                assert_eq!(first, expected.map_or(std::ptr::null_mut(), |task| rig.raw(task)));
                let taken = rig.call(rig.u.take_queued, (0, rig.cctx(0), queue));
                assert_eq!(taken.then(|| rig.local(0)[0]), expected);
                if taken {
                    let task = rig.local(0)[0];
                    rig.kernel.take_out(task);
                    runs(rig, task);
                }
                // It tells the two queues apart when it looks for what is not there.
                self.overloaded &= if taken { !self.queue.is_empty() } else { self.is_migratable() };
            }
            Op::Tick => {
                rig.call(rig.u.kick_idle_for_queued, (0,));
                self.overloaded &= self.is_migratable();
            }
            Op::Steal => {
                rig.kernel.cpu = 1;
                let first = self.queue.iter().position(|(_, moves)| *moves);
                assert_eq!(rig.call(rig.u.steal, (1,)), first.is_some());
                if let Some(first) = first {
                    let (task, _) = self.queue.remove(first).unwrap();
                    assert_eq!(rig.local(1), [task]);
                    rig.kernel.take_out(task);
                    let last = rig.call(rig.u.queue_del, (rig.tctx(task),));
                    assert_eq!(last, self.queue.is_empty());
                    if last {
                        rig.call(rig.u.note_all_taken, (0,));
                        self.bit = false;
                    }
                }
            }
        }
        self.bit &= self.overloaded;
    }
}

/// What running() does on CPU 0.
fn runs(rig: &mut Rig, task: TaskId) {
    rig.call(rig.u.queue_del, (rig.tctx(task),));
    if rig.cpu(0, |cctx| cctx.waiting != 0 && cctx.queued_load == 0) {
        rig.call(rig.u.note_none_waits, (0, rig.cctx(0)));
    }
}

proptest! {
    #[test]
    fn the_bit_tells_of_tasks_that_may_move(ops in prop::collection::vec(op(), 0..120)) {
        let mut rig = Rig::new("1x1x2x1", &[]);
        rig.only_idle(&[]);
        let mut model = Model::default();
        for (time, op) in ops.into_iter().enumerate() {
            model.apply(&mut rig, op, time as u64);
            let set = rig.overloaded().contains(&0);
            prop_assert_eq!(set, model.bit);
            prop_assert_eq!(rig.cpu(0, |cctx| cctx.overloaded != 0), model.overloaded);
            prop_assert!(set || !model.is_migratable(), "a waiting task is hidden");
            prop_assert!(model.queue.is_empty() || rig.cpu(0, |cctx| cctx.waiting != 0), "it is not looked for");
        }
    }
}

/// Of two that wait on CPU 0, CPU 1 takes one after the other.
#[test]
fn who_takes_the_last_clears_the_bit() {
    let mut rig = Rig::new("1x1x4x1", &[]);
    rig.only_idle(&[]);
    let tasks = [rig.task(), rig.task()];
    for task in tasks {
        rig.queue(task, 0, 0);
    }
    for (task, left) in tasks.into_iter().zip([true, false]) {
        rig.kernel.take_out(task);
        rig.run(task, 1);
        let raw = rig.raw(task);
        // SAFETY: as the kernel calls it.
        rig.kernel.call(trace::Op::Running, Some(task), 1, |ops| unsafe { ops.running.unwrap()(raw) });
        assert_eq!(rig.overloaded().contains(&0), left);
    }
}

#[test]
fn the_bit_stays_while_one_is_in_line() {
    for waits in [false, true] {
        let mut rig = Rig::new("1x1x4x1", &[]);
        rig.only_idle(&[]);
        let task = rig.task();
        rig.queue(task, 0, 0);
        assert!(waits || rig.call(rig.u.queue_del, (rig.tctx(task),)));
        rig.call(rig.u.note_all_taken, (0,));
        assert_eq!(rig.overloaded().contains(&0), waits);
        // Who joins after that sets it again, though its CPU has not looked.
        let task = rig.task();
        rig.queue(task, 0, 0);
        assert!(rig.overloaded().contains(&0));
    }
}

/// On CPU 0, so many tasks that may use it and CPU 1, then one that may use all. The bit is set.
fn queue(stay: usize) -> Rig {
    let mut rig = Rig::new("1x1x4x1", &[]);
    rig.only_idle(&[]);
    for i in 0..=stay {
        let task = if i < stay { rig.task_on([0, 1]) } else { rig.task() };
        rig.queue(task, 0, i as u64);
    }
    rig
}

#[test]
fn a_tick_offers_the_first_that_an_idle_cpu_may_take_within_its_looks() {
    for (stay, kicked) in [(0, true), (LOOKS - 1, true), (LOOKS, false)] {
        let mut rig = queue(stay);
        rig.only_idle(&[2]);
        rig.call(rig.u.kick_idle_for_queued, (0,));
        assert_eq!(rig.kicked(), if kicked { vec![2] } else { vec![] }, "behind {stay} that stay");
        assert_eq!(rig.idle().is_empty(), kicked);
    }
}

/// However many tasks wait that may not move: nobody is led to them.
#[test]
fn a_thousand_pinned_tasks_cost_a_thief_nothing() {
    let mut rig = Rig::new("1x1x4x1", &[]);
    rig.only_idle(&[]);
    for i in 0..1000 {
        let task = rig.task_on([0]);
        rig.queue(task, 0, i);
    }
    assert!(rig.overloaded().is_empty());
    rig.kernel.cpu = 1;
    assert!(!rig.call(rig.u.steal, (1,)));
    assert_eq!(rig.stat(magpie_stat_STAT_STEAL_MISS), 0);
    // One that may move is found behind them all.
    let task = rig.task();
    rig.queue(task, 0, 1000);
    assert!(rig.call(rig.u.steal, (1,)));
    assert_eq!(rig.local(1), [task]);
}

#[test]
fn a_thief_is_idle_allowed_and_claimed() {
    for (cpus, idle, thief) in [
        (vec![0, 1, 2, 3], vec![1, 3], Some(1)),
        (vec![0, 3], vec![1, 3], Some(3)),
        (vec![0, 2], vec![1, 3], None),
        (vec![0], vec![0, 1, 2, 3], None),
        (vec![0, 1, 2, 3], vec![], None),
    ] {
        let mut rig = Rig::new("1x1x4x1", &[]);
        rig.only_idle(&idle);
        let task = rig.task_on(cpus.iter().copied());
        rig.call(rig.u.kick_idle_for, (rig.raw(task), 0));
        assert_eq!(rig.kicked(), thief.into_iter().collect::<Vec<_>>(), "{cpus:?} {idle:?}");
        assert_eq!(rig.idle(), idle.iter().copied().filter(|cpu| Some(*cpu) != thief).collect(), "{cpus:?} {idle:?}");
        assert_eq!(rig.stat(magpie_stat_STAT_KICK), u64::from(thief.is_some()));
    }
}

#[test]
fn a_task_that_may_not_migrate_now_sets_no_bit() {
    let mut rig = Rig::new("1x1x4x1", &[]);
    let task = rig.task();
    rig.kernel.tasks[task].raw_mut().migration_disabled = 1;
    rig.queue(task, 2, 0);
    assert!(rig.overloaded().is_empty());
    assert_eq!(rig.cpu(2, |cctx| (cctx.waiting, cctx.overloaded)), (1, 0));
}

/// What was put in line elsewhere after it looked is seen by who goes idle; not what is hot, for that has a timer.
#[test]
fn who_goes_idle_looks_once_more_as_far_as_it_steals() {
    for (flags, waits_on, cold_in, looks) in [
        (&[][..], None, 0, false),
        (&[], Some(1), 0, true),
        (&[], Some(1), 5, true),
        (&[], Some(2), 0, true),
        (&[], Some(2), 5, false),
        (&["--steal", "llc"], Some(2), 0, false),
    ] {
        let mut rig = Rig::new("1x2x2x1", flags);
        rig.only_idle(&[]);
        if let Some(cpu) = waits_on {
            let task = rig.task();
            rig.queue(task, cpu, 0);
        }
        rig.cpu(0, |cctx| cctx.cold_in = cold_in);
        let found = rig.call(rig.u.work_in_reach, (0, rig.cctx(0)));
        assert_eq!(found, looks, "{flags:?}, on {waits_on:?}, hot for {cold_in}");
    }
}

/// Else the two queues' first tasks are compared.
#[test]
fn one_of_two_queues_has_tasks() {
    let mut rig = Rig::new("1x1x2x1", &[]);
    for (overloaded, waiting_pinned, one) in [(0, 0, false), (1, 0, true), (0, 1, true), (1, 1, false)] {
        rig.cpu(0, |cctx| (cctx.overloaded, cctx.waiting_pinned) = (overloaded, waiting_pinned));
        assert_eq!(rig.call(rig.u.one_queue_waits, (rig.cctx(0).cast_const(),)), one);
    }
}

// SPDX-License-Identifier: GPL-2.0-only
//! `steal/overload.bpf.h`: the bit is set while a task waits that another CPU may take, and idle CPUs are kicked for it.

use std::collections::VecDeque;

use magpie_sim::dsq::TaskId;
use magpie_sim::native::MAX_PULL_CHECKS;
use proptest::prelude::*;
use scx_magpie::bpf_intf::*;
use scx_magpie::tunables::{Steal, Tunables};

use crate::rig::Rig;

const LOOKS: usize = MAX_PULL_CHECKS as usize;
const USEC: u64 = 1000;

#[derive(Clone, Copy, Debug)]
enum Op {
    /// A task is queued. May it migrate?
    Queue(bool),
    Take,
    Tick,
    /// Another CPU takes a task.
    Steal,
}

fn op() -> impl Strategy<Value = Op> {
    // Now and then there are more tasks in a row that stay than looks.
    prop_oneof![3 => Just(Op::Queue(true)), 30 => Just(Op::Queue(false)), 15 => Just(Op::Take), 5 => Just(Op::Tick),
                5 => Just(Op::Steal)]
}

/// CPU 0's queues: tasks in order of their deadlines and whether they may migrate; whether the CPU thinks that some may, and
/// whether its bit is to be set.
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
                // It tells the two queues apart when it finds one empty.
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
                        rig.call(rig.u.clear_overload_of, (0,));
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
    if rig.cpu(0, |cctx| cctx.queued != 0 && cctx.queued_load == 0) {
        rig.call(rig.u.clear_queues, (0, rig.cctx(0)));
    }
}

proptest! {
    #[test]
    fn the_bit_tells_of_tasks_that_may_migrate(ops in prop::collection::vec(op(), 0..120)) {
        let mut rig = Rig::new("1x1x2x1", &[]);
        rig.only_idle(&[]);
        let mut model = Model::default();
        for (time, op) in ops.into_iter().enumerate() {
            model.apply(&mut rig, op, time as u64);
            let set = rig.overloaded().contains(&0);
            prop_assert_eq!(set, model.bit);
            prop_assert_eq!(rig.cpu(0, |cctx| u32::from(cctx.queued) & queued_QUEUED_MOVABLE != 0), model.overloaded);
            prop_assert!(set || !model.is_migratable(), "a waiting task is hidden");
            prop_assert!(model.queue.is_empty() || rig.cpu(0, |cctx| cctx.queued != 0), "it is not looked for");
        }
    }
}

/// CPU 1 runs both tasks that wait on CPU 0.
#[test]
fn a_cpu_that_runs_the_last_task_of_another_clears_its_bit() {
    let mut rig = Rig::new("1x1x4x1", &[]);
    rig.only_idle(&[]);
    let tasks = [rig.task(), rig.task()];
    for task in tasks {
        rig.queue(task, 0, 0);
    }
    for (task, left) in tasks.into_iter().zip([true, false]) {
        rig.kernel.take_out(task);
        rig.running(task, 1);
        assert_eq!(rig.overloaded().contains(&0), left);
    }
}

#[test]
fn the_bit_stays_while_a_task_waits() {
    for waits in [false, true] {
        let mut rig = Rig::new("1x1x4x1", &[]);
        rig.only_idle(&[]);
        let task = rig.task();
        rig.queue(task, 0, 0);
        assert!(waits || rig.call(rig.u.queue_del, (rig.tctx(task),)));
        rig.call(rig.u.clear_overload_of, (0,));
        assert_eq!(rig.overloaded().contains(&0), waits);
        // A task that comes after that sets it again, though its CPU has not looked.
        let task = rig.task();
        rig.queue(task, 0, 0);
        assert!(rig.overloaded().contains(&0));
    }
}

/// On CPU 0 so many tasks wait that may use it and CPU 1, then one that may use all.
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

/// No thief is led to them, however many they are.
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
    // A task that may migrate is found behind them all.
    let task = rig.task();
    rig.queue(task, 0, 1000);
    assert!(rig.call(rig.u.steal, (1,)));
    assert_eq!(rig.local(1), [task]);
}

fn kicks_for(rig: &mut Rig, task: TaskId, cpu: i32) -> bool {
    let now = rig.kernel.now;
    rig.call(rig.u.kick_idle_for, (rig.raw(task), rig.tctx(task), cpu, now))
}

#[test]
fn the_cpu_that_is_kicked_is_idle_allowed_and_claimed() {
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
        assert_eq!(kicks_for(&mut rig, task, 0), thief.is_some());
        assert_eq!(rig.kicked(), thief.into_iter().collect::<Vec<_>>(), "{cpus:?} {idle:?}");
        assert_eq!(rig.idle(), idle.iter().copied().filter(|cpu| Some(*cpu) != thief).collect(), "{cpus:?} {idle:?}");
        assert_eq!(rig.stat(magpie_stat_STAT_KICK), u64::from(thief.is_some()));
    }
}

/// But bits are as they should be when it is turned on.
#[test]
fn with_steal_off_no_cpu_is_kicked_and_none_steals() {
    let mut rig = Rig::new("1x1x4x1", &["--steal", "off"]);
    let all = rig.kernel.tunables.clone();
    rig.only_idle(&[1]);
    let task = rig.task();
    rig.queue(task, 0, 0);
    assert!(!kicks_for(&mut rig, task, 0));
    assert_eq!(rig.overloaded(), [0].into());
    rig.kernel.cpu = 1;
    assert!(!rig.call(rig.u.steal, (1,)));
    rig.kernel.set(Tunables { steal: Steal::All, ..all });
    assert!(rig.call(rig.u.steal, (1,)));
}

#[test]
fn a_task_that_may_not_migrate_now_sets_no_bit() {
    let mut rig = Rig::new("1x1x4x1", &[]);
    let task = rig.task();
    rig.kernel.tasks[task].raw_mut().migration_disabled = 1;
    rig.queue(task, 2, 0);
    assert!(rig.overloaded().is_empty());
    assert_eq!(rig.cpu(2, |cctx| u32::from(cctx.queued)), queued_QUEUED_PINNED);
}

/// Else it would be stranded behind a real-time task, or a hog, where its LLC has no other CPU for it.
#[test]
fn a_task_that_only_other_llcs_may_take_sets_the_bit() {
    let mut rig = Rig::new("1x2x1x1", &[]);
    let task = rig.task_on([0, 1]);
    rig.queue(task, 0, 0);
    assert!(rig.overloaded().contains(&0));
}

/// By how far it is. A CPU of the same LLC is kicked at once.
#[test]
fn a_hot_task_kicks_no_cpu_of_another_llc() {
    for (idle, cold) in [(1, 0), (2, 50), (4, 100)] {
        for stopped in [0, cold.max(1) - 1, cold] {
            let costs = ["--migration-cost-llc-us", "50", "--migration-cost-node-us", "100"];
            let mut rig = Rig::new("2x2x2x1", &costs);
            rig.only_idle(&[idle]);
            rig.kernel.now = 1_000_000_000;
            let task = rig.task();
            let at = rig.kernel.now - stopped * USEC;
            rig.remembered(task, |tctx| tctx.stopped_at = at);
            rig.queue(task, 0, 0);
            assert_eq!(kicks_for(&mut rig, task, 0), stopped >= cold, "CPU {idle}, stopped {stopped} us ago");
        }
    }
}

/// No CPU of another LLC would come for it before the higher class leaves.
#[test]
fn no_task_is_hot_where_a_higher_class_has_the_cpu() {
    for taken in [false, true] {
        let mut rig = Rig::new("1x2x1x1", &[]);
        rig.kernel.now = 1_000_000_000;
        rig.only_idle(&[1]);
        let (curr, task, now) = (rig.task(), rig.task(), rig.kernel.now);
        rig.running(curr, 0);
        rig.remembered(task, |tctx| tctx.stopped_at = now);
        rig.queue(task, 0, 0);
        rig.kernel.tasks[curr].raw_mut().scx.slice = taken.into();
        rig.stopping(curr, true);
        assert_eq!(rig.kicked(), if taken { vec![1] } else { vec![] });
        assert_eq!(rig.cpu(0, |cctx| cctx.released), u8::from(taken));
        rig.running(curr, 0);
        assert_eq!(rig.cpu(0, |cctx| cctx.released), 0);
    }
}

/// The kernel calls stopping() as for a task that sleeps, and no tick follows.
#[test]
fn a_running_task_that_becomes_a_real_time_one_takes_the_cpu() {
    for runs in [true, false] {
        let mut rig = Rig::new("1x1x2x1", &[]);
        rig.only_idle(&[1]);
        let [curr, task] = [rig.task(), rig.task()];
        if runs {
            rig.running(curr, 0);
        }
        rig.queue(task, 0, 0);
        let ops = rig.kernel.ops.disable.unwrap();
        rig.call(Some(ops), (rig.raw(curr),));
        assert_eq!(rig.kicked(), if runs { vec![1] } else { vec![] });
        assert_eq!(rig.cpu(0, |cctx| cctx.released), u8::from(runs));
    }
}

/// The CPU of another LLC is told of the first that is not hot.
#[test]
fn a_hot_task_hides_none_behind_it() {
    for (hot, kicked) in [(1, true), (LOOKS - 1, true), (LOOKS, false)] {
        let mut rig = Rig::new("1x2x2x1", &[]);
        rig.only_idle(&[2]);
        rig.kernel.now = 1_000_000_000;
        let now = rig.kernel.now;
        for i in 0..=hot {
            let task = rig.task();
            rig.remembered(task, |tctx| tctx.stopped_at = if i < hot { now } else { 0 });
            rig.queue(task, 0, i as u64);
        }
        rig.call(rig.u.kick_idle_for_queued, (0,));
        assert_eq!(rig.kicked(), if kicked { vec![2] } else { vec![] }, "behind {hot} hot ones");
    }
}

/// It was hot when it was queued.
#[test]
fn a_tick_offers_a_waiting_task_again() {
    let mut rig = Rig::new("1x2x2x1", &[]);
    rig.only_idle(&[2]);
    let (curr, task) = (rig.task(), rig.task());
    rig.remembered(curr, |tctx| tctx.sync_wakeup = 0);
    rig.run_noted(curr, 0);
    let now = rig.kernel.now;
    rig.remembered(task, |tctx| tctx.stopped_at = now);
    rig.wake(task, 0);
    assert_eq!((rig.waiting(0), rig.kicked()), (vec![task], vec![]));
    rig.kernel.now += 4_000_000;
    rig.tick(curr);
    assert_eq!(rig.kicked(), [2]);
}

/// A CPU clears the bit of another while a task comes to that one's queue: the bit is set again, and an idle CPU that missed
/// it is kicked.
#[test]
fn a_task_that_comes_while_the_bit_is_cleared_is_not_lost() {
    for comes in [false, true] {
        let mut rig = Rig::new("1x1x4x1", &[]);
        rig.only_idle(&[2]);
        let task = rig.task();
        rig.queue(task, 0, 0);
        rig.call(rig.u.queue_del, (rig.tctx(task),));
        rig.kernel.quirks.queued_at_store = comes.then_some(0);
        rig.call(rig.u.clear_overload_of, (0,));
        assert_eq!(rig.overloaded().contains(&0), comes);
        assert_eq!(rig.kicked(), if comes { vec![2] } else { vec![] });
        assert_eq!(rig.stat(magpie_stat_STAT_KICK), u64::from(comes));
    }
}

/// Under SMT a waiting task is offered to a core that idles as a whole before an idle sibling of a busy CPU.
#[test]
fn whole_idle_cores_are_offered_a_task_first() {
    let mut rig = Rig::new("1x1x4x2", &[]);
    rig.only_idle(&[3, 6, 7]);
    let task = rig.task();
    rig.queue(task, 0, 1);
    rig.kicked();
    let offered: Vec<_> = (0..3)
        .flat_map(|_| {
            rig.call(rig.u.kick_idle_for_queued, (0,));
            rig.kicked()
        })
        .collect();
    assert_eq!(offered[0], 6);
    assert!(offered.contains(&3), "{offered:?}");
}

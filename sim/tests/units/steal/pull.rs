// SPDX-License-Identifier: GPL-2.0-only
//! `steal/pull.bpf.h`: a CPU takes one of the first tasks of another's queue that may come, and for which reasons.

use magpie_sim::dsq::TaskId;
use magpie_sim::native::{
    BALANCE_WAIT_NS, MAX_PULL_CHECKS, WEAK_WAIT_NS, WEIGHT_SHIFT, pull, pull_why_PULL_BALANCE, pull_why_PULL_IDLE,
};
use proptest::prelude::*;
use scx_magpie::bpf_intf::*;

use crate::rig::{Rig, nice_weight};

const LOOKS: usize = MAX_PULL_CHECKS as usize;
const USEC: u64 = 1000;

const IDLE: pull =
    pull { why: pull_why_PULL_IDLE, pid: 0, cost: 0, min_wait: 0, before: 0, long_wait: 0, curr_weight: 0, surplus: 0 };
const BALANCE: pull = pull { why: pull_why_PULL_BALANCE, long_wait: u64::MAX, ..IDLE };

/// All CPUs are busy.
fn rig(machine: &str) -> Rig {
    let mut rig = Rig::new(machine, &[]);
    rig.only_idle(&[]);
    rig.kernel.now = 1_000_000_000_000;
    rig
}

/// A task that has waited in the CPU's queue for so long, behind those that are there.
fn waits(rig: &mut Rig, task: TaskId, cpu: usize, wait: u64) -> TaskId {
    rig.queue(task, cpu, task as u64);
    let since = rig.kernel.now - wait;
    rig.remembered(task, |tctx| tctx.enqueued_at = since);
    task
}

/// CPU 0 pulls from the victim. Returns the task that comes.
fn pulls(rig: &mut Rig, victim: usize, mut want: pull) -> Option<TaskId> {
    let taken = rig.call(rig.u.pull, (0, victim as i32, victim as u64, &raw mut want));
    let task = rig.local(0).first().copied();
    assert_eq!(task.is_some(), taken);
    task
}

/// Whatever their affinity, and why they stay.
#[test]
fn no_more_than_max_pull_looks_tasks_are_looked_at() {
    let stays: [fn(&mut Rig) -> TaskId; 3] = [
        |rig| rig.task_on([1, 2]),
        |rig| {
            let task = rig.task();
            rig.kernel.tasks[task].raw_mut().migration_disabled = 1;
            // It was not, when it was queued.
            task
        },
        |rig| {
            let (task, now) = (rig.task(), rig.kernel.now);
            rig.remembered(task, |tctx| tctx.stopped_at = now);
            task
        },
    ];
    for (way, stays) in stays.into_iter().enumerate() {
        for (nr, comes) in [(0, true), (LOOKS - 1, true), (LOOKS, false), (1000, false)] {
            let mut rig = rig("1x1x4x1");
            for _ in 0..nr {
                let task = stays(&mut rig);
                let disabled = std::mem::take(&mut rig.kernel.tasks[task].raw_mut().migration_disabled);
                waits(&mut rig, task, 1, 0);
                rig.kernel.tasks[task].raw_mut().migration_disabled = disabled;
            }
            let task = rig.task();
            waits(&mut rig, task, 1, 0);
            let taken = pulls(&mut rig, 1, pull { cost: 50 * USEC, ..IDLE });
            assert_eq!(taken, comes.then_some(task), "way {way}, behind {nr}");
        }
    }
}

#[test]
fn the_first_that_may_come_is_taken() {
    let mut rig = rig("1x1x4x1");
    for cpus in [1..3, 0..2, 0..4] {
        let task = rig.task_on(cpus);
        waits(&mut rig, task, 1, 0);
    }
    assert_eq!(pulls(&mut rig, 1, IDLE), Some(1));
}

/// The CPU still has no more load than the victim then. A light task next to a heavy one stays.
#[test]
fn a_task_that_evens_the_load_is_taken_however_short_it_has_waited() {
    for (weight, surplus, curr, taken) in [
        (1024, 2048, 1024, true),
        (1024, 2047, 1024, false),
        (1024, -4096, 1024, false),
        (110, 4000, 440, true),
        (110, 4000, 441, false),
        (3121, 6242, 1024, true),
    ] {
        let mut rig = rig("1x1x2x1");
        let task = rig.task();
        rig.set_weight(task, weight);
        waits(&mut rig, task, 1, 0);
        let want = pull { surplus: surplus << WEIGHT_SHIFT, curr_weight: curr << WEIGHT_SHIFT, min_wait: 1, ..BALANCE };
        assert_eq!(pulls(&mut rig, 1, want).is_some(), taken, "{weight} of {surplus}, current {curr}");
    }
}

/// Each task is judged by its own weight.
#[test]
fn the_first_task_that_evens_the_load_is_taken() {
    let mut rig = rig("1x1x2x1");
    for weight in [1024, 215, 526] {
        let task = rig.task();
        rig.set_weight(task, weight);
        waits(&mut rig, task, 1, 0);
    }
    let want = pull { surplus: 1100 << WEIGHT_SHIFT, curr_weight: 1024 << WEIGHT_SHIFT, min_wait: 1, ..BALANCE };
    assert_eq!(pulls(&mut rig, 1, want), Some(2));
}

/// A CPU that goes idle leaves a task that ran a moment ago to the caches of its LLC.
#[test]
fn hot_tasks_stay_by_distance() {
    // CPU 1 shares the LLC of CPU 0, CPU 2 its node.
    for (victim, cold) in [(1, 0), (2, 50), (4, 100)] {
        for (stopped, has_cpu) in [(0, true), (cold.max(1) - 1, true), (cold, true), (1000, true), (0, false)] {
            let costs = ["--migration-cost-llc-us", "50", "--migration-cost-node-us", "100"];
            let mut rig = Rig::new("2x2x2x1", &costs);
            rig.only_idle(&[]);
            rig.kernel.now = 1_000_000_000;
            let task = rig.task();
            let at = rig.kernel.now - stopped * USEC;
            rig.remembered(task, |tctx| tctx.stopped_at = at);
            // Else a higher class has it.
            rig.cpu(victim, |cctx| cctx.released = (!has_cpu).into());
            rig.queue(task, victim, 0);
            let taken = stopped >= cold || !has_cpu;
            assert_eq!(rig.call(rig.u.steal, (0,)), taken, "of CPU {victim}, stopped {stopped} us ago");
            assert_eq!(rig.local(0), if taken { vec![task] } else { vec![] });
            assert_eq!(rig.stat(magpie_stat_STAT_STEAL_MISS), u64::from(!taken));
        }
    }
}

/// It comes from behind hot ones.
#[test]
fn the_first_cold_task_is_taken() {
    let mut rig = rig("1x1x4x1");
    for stopped in [10, 49, 70, 80] {
        let task = rig.task();
        let at = rig.kernel.now - stopped * USEC;
        rig.remembered(task, |tctx| tctx.stopped_at = at);
        waits(&mut rig, task, 1, 0);
    }
    assert_eq!(pulls(&mut rig, 1, pull { cost: 50 * USEC, ..IDLE }), Some(2));
}

#[test]
fn a_weak_cpu_leaves_a_big_task_to_strong_ones_for_a_while() {
    let wait = u64::from(WEAK_WAIT_NS);
    for (thief_is_weak, util, wait, comes) in [
        (true, 900, wait - 1, false),
        (true, 900, wait, true),
        (true, 100, 0, true),
        (false, 900, 0, true),
        (false, 100, 0, true),
    ] {
        let mut rig = rig(if thief_is_weak { "1x1x2x1:430,1024" } else { "1x1x2x1:1024,430" });
        let task = rig.task();
        rig.remembered(task, |tctx| tctx.task_util = util);
        waits(&mut rig, task, 1, wait);
        let taken = pulls(&mut rig, 1, IDLE);
        assert_eq!(taken.is_some(), comes, "weak: {thief_is_weak}, util {util}, after {wait} ns");
    }
}

/// Though it ran a moment ago, if it is not kept away by the back-off after wake-affine took it from there.
#[test]
fn a_task_goes_to_its_preferred_node() {
    for (victim, prefers, back_off, comes) in [
        (2, 0, 0, true),
        (2, 1, 0, false),
        (2, 2, 0, false),
        (2, NO_NODE, 0, false),
        (1, 0, 0, false),
        (2, 0, 1, false),
    ] {
        let mut rig = rig("3x1x2x1");
        let task = rig.task();
        let retry_at = rig.kernel.now + back_off;
        let now = rig.kernel.now;
        rig.remembered(task, |tctx| {
            (tctx.preferred_node, tctx.preferred_retry_at, tctx.stopped_at) = (prefers, retry_at, now)
        });
        waits(&mut rig, task, victim, 0);
        let taken = pulls(&mut rig, victim, pull { cost: 50 * USEC, ..IDLE });
        assert_eq!(rig.stat(magpie_stat_STAT_PREFERRED_STEAL), u64::from(comes));
        assert_eq!(taken.is_some(), comes, "from CPU {victim}, prefers {prefers}, backs off: {back_off}");
    }
}

proptest! {
    /// At least as long as the task that would run here, by weight, in both cases.
    #[test]
    fn a_busy_cpu_takes_a_task_that_is_owed_or_has_waited_long(
        wait in 0..100u64, weight in nice_weight(), min_wait in 0..100u64,
        deadline in -50..50i64, before in -50..50i64, long_wait in 0..100u64,
    ) {
        let (wait, min_wait, long_wait) = (wait * 1_000_000, min_wait * 1_000_000, long_wait * 1_000_000);
        let mut rig = rig("1x1x2x1");
        let task = rig.task();
        rig.set_weight(task, weight);
        rig.queue(task, 1, deadline as u64);
        let since = rig.kernel.now - wait;
        rig.remembered(task, |tctx| tctx.enqueued_at = since);
        let taken = pulls(&mut rig, 1, pull { min_wait, before: before as u64, long_wait, ..BALANCE });
        let weighted = wait * u64::from(weight) / 1024;
        let long = wait >= u64::from(BALANCE_WAIT_NS) && weighted >= long_wait;
        prop_assert_eq!(taken.is_some(), weighted >= min_wait && (deadline < before || long));
    }
}

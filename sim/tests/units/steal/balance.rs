// SPDX-License-Identifier: GPL-2.0-only
//! `steal/balance.bpf.h`: a busy CPU takes a task that is owed more, or has wait_time clearly longer, than its own next one.

use std::collections::BTreeSet;

use magpie_sim::cgroup::Spec;
use magpie_sim::dsq::TaskId;
use magpie_sim::native::{BALANCE_GRAN_NS, BALANCE_NS, BALANCE_WAIT_NS, MAX_DRIFT_NS, WEIGHT_SHIFT};
use proptest::prelude::*;
use scx_magpie::bpf_intf::*;

use crate::rig::Rig;

const WAIT: u64 = BALANCE_WAIT_NS as u64;
const GRAN: i64 = BALANCE_GRAN_NS as i64;
const DRIFT: i64 = MAX_DRIFT_NS as i64;

/// A task of this weight has wait_time on the CPU for `wait` ns.
fn waiting(rig: &mut Rig, cpu: usize, wait: u64, weight: u32) -> TaskId {
    let task = rig.task();
    rig.set_weight(task, weight);
    rig.queue(task, cpu, 0);
    let since = rig.kernel.now - wait;
    rig.remembered(task, |tctx| tctx.enqueued_at = since);
    task
}

fn rig(machine: &str) -> Rig {
    let mut rig = Rig::new(machine, &[]);
    rig.only_idle(&[]);
    rig.kernel.now = 1_000_000_000_000;
    rig
}

/// CPU 0 looks, which would go on with its own first task in line.
fn balance(rig: &mut Rig) -> bool {
    let next = rig.waiting(0).first().map_or(std::ptr::null_mut(), |&task| rig.raw(task));
    rig.call(rig.u.balance, (0, rig.cctx(0), next, 0))
}

proptest! {
    #[test]
    fn who_waits_clearly_longer_by_weight(
        own in prop::option::of((0..4 * WAIT, prop_oneof![Just(100), 1..=10_000u32])),
        (wait, weight) in (prop_oneof![0..2 * WAIT, 0..100 * WAIT], prop_oneof![Just(100), 1..=10_000u32]),
        running in 0..=10_000u32,
    ) {
        let mut rig = rig("1x1x2x1");
        if let Some((wait, weight)) = own {
            waiting(&mut rig, 0, wait, weight);
        }
        let task = waiting(&mut rig, 1, wait, weight);
        rig.cpu(1, |cctx| cctx.curr_weight = running << WEIGHT_SHIFT);
        let by_weight = |wait: u64, weight: u32| wait * u64::from(weight) / 100;
        // Where a heavy task runs, others wait.
        let own = own.map_or(0, |(wait, weight)| by_weight(wait, weight)) + by_weight(WAIT, running.max(100));
        let taken = wait >= WAIT && by_weight(wait, weight) >= own;
        prop_assert_eq!(balance(&mut rig), taken);
        prop_assert_eq!(rig.local(0), if taken { vec![task] } else { vec![] });
        prop_assert_eq!(rig.stat(magpie_stat_STAT_BALANCE), u64::from(taken));
    }
}

/// A task of nice 0 in a group of weight 50, which has wait_time on CPU 1.
fn of_half_weight(rig: &mut Rig, wait: u64) -> TaskId {
    let group = rig.kernel.make_cgroup(&Spec { parent: 0, weight: 50, idle: false });
    let task = rig.task();
    rig.kernel.move_to_cgroup(task, group);
    rig.call(rig.u.task_weight, (rig.raw(task), rig.tctx(task)));
    rig.queue(task, 1, 0);
    let since = rig.kernel.now - wait;
    rig.remembered(task, |tctx| tctx.enqueued_at = since);
    task
}

#[test]
fn the_weight_is_that_of_its_group() {
    for (wait, taken) in [(2 * WAIT - 2, false), (2 * WAIT, true)] {
        let mut rig = rig("1x1x2x1");
        of_half_weight(&mut rig, wait);
        assert_eq!(balance(&mut rig), taken, "{wait}");
    }
    let mut rig = rig("1x1x2x1");
    let task = of_half_weight(&mut rig, 0);
    rig.remembered(task, |tctx| (tctx.vruntime, tctx.home) = ((-10 * GRAN) as u64, 1));
    rig.call(rig.u.carry_over, (rig.raw(task), rig.tctx(task), 0, rig.cctx(1), GRAN as u64));
    assert_eq!(rig.remembered(task, |tctx| tctx.vruntime as i64), -4 * GRAN);
}

#[test]
fn at_the_edge() {
    for (own, wait, taken) in [(0, WAIT - 1, false), (0, WAIT, true), (5, WAIT + 4, false), (5, WAIT + 5, true)] {
        let mut rig = rig("1x1x2x1");
        waiting(&mut rig, 0, own, 100);
        waiting(&mut rig, 1, wait, 100);
        assert_eq!(balance(&mut rig), taken, "{own} {wait}");
    }
}

/// It is next there, and would leave the CPU to a light one.
#[test]
fn who_outweighs_the_running_one_is_left_there() {
    for (running, taken) in [(0, true), (49, false), (50, true), (1000, true)] {
        let mut rig = rig("1x1x2x1");
        let task = rig.task();
        rig.queue(task, 1, (-2 * GRAN) as u64);
        rig.cpu(1, |cctx| cctx.curr_weight = running << WEIGHT_SHIFT);
        assert_eq!(balance(&mut rig), taken, "{running}");
    }
}

/// Clocks of two CPUs differ by a little: a task may have been queued in the future.
#[test]
fn a_wait_is_not_negative() {
    let mut rig = rig("1x1x2x1");
    let task = waiting(&mut rig, 1, 0, 100);
    let future = rig.kernel.now + 1000;
    rig.remembered(task, |tctx| tctx.enqueued_at = future);
    assert_eq!(rig.call(rig.u.wait_time, (rig.raw(task),)), 0);
    assert!(!balance(&mut rig));
}

/// The clocks of CPU 0 and another are so far apart, and tasks with such deadlines are next; whose turn is it?
fn by_turns(machine: &str, victim: usize, weight: u32, ahead: i64, own: i64, other: i64) -> bool {
    let mut rig = rig(machine);
    let task = rig.task();
    rig.set_weight(task, weight);
    rig.queue(task, victim, other as u64);
    rig.cpu(0, |cctx| cctx.voffset = ahead as u64);
    let taken = rig.call(rig.u.balance, (0, rig.cctx(0), std::ptr::null_mut(), own as u64));
    assert_eq!(rig.local(0).contains(&task), taken);
    taken
}

proptest! {
    #[test]
    fn whose_turn_it_is_by_what_the_clocks_are_apart(
        far: bool, weight in prop_oneof![Just(100), 20..=500u32],
        ahead in -3 * DRIFT..3 * DRIFT, own in -3 * GRAN..3 * GRAN, other in -3 * GRAN..3 * GRAN,
    ) {
        let by_weight = |ns: i64| ns * 100 / i64::from(weight);
        let (machine, victim, gran) = if far { ("1x2x1x1", 1, 2 * GRAN) } else { ("1x1x2x1", 1, GRAN) };
        let taken = other + by_weight(gran) < own + ahead.clamp(-by_weight(DRIFT), by_weight(DRIFT));
        prop_assert_eq!(by_turns(machine, victim, weight, ahead, own, other), taken);
    }

    #[test]
    fn clocks_drift_no_further_than_that(ahead in -10 * DRIFT..10 * DRIFT, clocks: [u64; 2]) {
        let mut rig = rig("1x1x2x1");
        rig.cpu(0, |cctx| (cctx.vclock, cctx.voffset) = (clocks[0], 0u64.wrapping_sub(clocks[0]).wrapping_add(ahead as u64)));
        rig.cpu(1, |cctx| (cctx.vclock, cctx.voffset) = (clocks[1], 0u64.wrapping_sub(clocks[1])));
        rig.call(rig.u.trim_drift, (rig.cctx(0), rig.cctx(1), DRIFT));
        let left = rig.cpu(0, |cctx| cctx.vclock.wrapping_add(cctx.voffset)) as i64;
        prop_assert_eq!(left, ahead.clamp(-DRIFT, DRIFT));
    }

    /// It keeps its turn on the common scale, but is owed no more than 2 * gran of CPU time.
    #[test]
    fn a_task_brings_its_turn_along(
        vruntime in -5 * GRAN..5 * GRAN, ahead in -DRIFT..DRIFT, weight in prop_oneof![Just(100), 1..=10_000u32],
    ) {
        let mut rig = rig("1x1x2x1");
        let task = rig.task();
        rig.set_weight(task, weight);
        rig.remembered(task, |tctx| (tctx.vruntime, tctx.home) = (vruntime as u64, 1));
        rig.cpu(0, |cctx| (cctx.vclock, cctx.voffset) = (1000, (ahead - 1000) as u64));
        rig.call(rig.u.carry_over, (rig.raw(task), rig.tctx(task), 0, rig.cctx(1), GRAN as u64));
        let (now, home, recent) = rig.remembered(task, |tctx| (tctx.vruntime as i64, tctx.home, tctx.recent));
        let owed = 2 * GRAN * 100 / i64::from(weight);
        prop_assert_eq!((now, home, recent), ((vruntime - ahead + 1000).max(1000 - owed), 0, 1));
    }
}

#[test]
fn the_clock_of_an_idle_cpu_goes_on() {
    let mut rig = rig("1x1x2x1");
    let now = rig.kernel.now;
    for (running, voffset) in [(0, 5000), (1, 0)] {
        rig.cpu(0, |cctx| (cctx.voffset, cctx.pelt.updated_at, cctx.pelt.running) = (0, now - 5000, running));
        rig.call(rig.u.account_idle, (rig.cctx(0),));
        assert_eq!(rig.cpu(0, |cctx| cctx.voffset), voffset);
    }
}

#[test]
fn of_two_the_one_further_behind() {
    for (deadlines, victim) in [([5, 4], 2), ([4, 5], 1), ([4, 4], 1)] {
        let mut rig = rig("1x1x4x1");
        for (cpu, deadline) in (1..).zip(deadlines) {
            let task = rig.task();
            rig.queue(task, cpu, deadline);
        }
        assert_eq!(rig.call(rig.u.sample_two, (0, 0, 0)), victim, "{deadlines:?}");
    }
}

#[test]
fn a_task_that_may_not_come_is_passed_over() {
    let mut rig = rig("1x1x4x1");
    let stays = rig.task_on([1, 2]);
    rig.queue(stays, 1, 0);
    let comes = waiting(&mut rig, 1, WAIT, 100);
    let since = rig.kernel.now - WAIT;
    rig.remembered(stays, |tctx| tctx.enqueued_at = since);
    assert!(balance(&mut rig));
    assert_eq!(rig.local(0), [comes]);
}

/// An idle CPU was told of it: that is on its way for a moment, and then it is not.
#[test]
fn who_was_offered_is_left_to_the_idle_cpu() {
    for (offered, wait, taken) in [(true, 0, false), (true, 250_000, true), (false, 0, true)] {
        let mut rig = rig("1x1x2x1");
        let task = waiting(&mut rig, 1, wait, 100);
        rig.remembered(task, |tctx| tctx.offered = u8::from(offered));
        let owed = 100 * GRAN as u64;
        let comes = rig.call(rig.u.balance, (0, rig.cctx(0), std::ptr::null_mut(), owed));
        assert_eq!(comes, taken, "offered: {offered}, after {wait} ns");
    }
}

/// Who has just woken by a timer has wait_time less than all others, and goes first; the CPU looks when it has run.
#[test]
fn who_is_prompt_comes_first() {
    for prompt in [true, false] {
        let mut rig = rig("1x1x2x1");
        let own = waiting(&mut rig, 0, 0, 100);
        rig.remembered(own, |tctx| tctx.prompt = u8::from(prompt));
        let other = waiting(&mut rig, 1, 2 * WAIT, 100);
        assert_eq!(balance(&mut rig), !prompt);
        if prompt {
            rig.remembered(own, |tctx| tctx.prompt = 0);
            assert!(balance(&mut rig));
        }
        assert_eq!(rig.local(0), [other]);
    }
}

/// A strong CPU with a big task leaves what waits at weak ones there, however much it is owed, unless it waits for long.
#[test]
fn big_tasks_are_left_alone() {
    for (curr_util, wait, taken) in [(900, 0, false), (900, WAIT, true), (100, 0, true)] {
        let mut rig = rig("1x1x2x1:1024,430");
        waiting(&mut rig, 1, wait, 100);
        rig.cpu(0, |cctx| cctx.curr_util = curr_util);
        let owed = 100 * GRAN as u64;
        let comes = rig.call(rig.u.balance, (0, rig.cctx(0), std::ptr::null_mut(), owed));
        assert_eq!(comes, taken, "beside a task of {curr_util}, after {wait} ns");
    }
}

#[test]
fn one_look_in_a_while() {
    let mut rig = rig("1x1x2x1");
    waiting(&mut rig, 1, WAIT, 100);
    let now = rig.kernel.now;
    for (since, looks) in [(BALANCE_NS as u64 - 1, false), (BALANCE_NS as u64, true)] {
        rig.cpu(0, |cctx| cctx.balanced_at = now - since);
        assert_eq!(balance(&mut rig), looks, "{since} ns after the last");
    }
    assert_eq!(rig.cpu(0, |cctx| cctx.balanced_at), now);
}

/// The CPUs that CPU 0 takes a task from in so many looks. Each is put back in line where it was.
fn looks(rig: &mut Rig, overloaded: &[usize], nr: usize) -> Vec<usize> {
    let tasks: Vec<_> = overloaded.iter().map(|&cpu| waiting(rig, cpu, if cpu == 0 { 0 } else { WAIT }, 100)).collect();
    let mut looks = Vec::new();
    for _ in 0..nr {
        assert!(balance(rig));
        let task = rig.local(0)[0];
        let cpu = overloaded[tasks.iter().position(|&other| other == task).unwrap()];
        looks.push(cpu);
        rig.kernel.take_out(task);
        let since = rig.remembered(task, |tctx| tctx.enqueued_at);
        rig.queue(task, cpu, 0);
        rig.remembered(task, |tctx| tctx.enqueued_at = since);
        rig.kernel.now += BALANCE_NS as u64;
    }
    looks
}

#[test]
fn each_look_is_at_the_next_overloaded_cpu() {
    assert_eq!(looks(&mut rig("1x1x24x1"), &[0, 2, 7, 20], 7), [2, 7, 20, 2, 7, 20, 2]);
}

#[test]
fn every_second_look_is_at_other_llcs() {
    let looks = looks(&mut rig("1x3x8x1"), &[0, 2, 5, 7, 9, 12, 17], 20);
    assert!(looks.iter().skip(1).step_by(2).all(|cpu| *cpu < 8), "{looks:?}");
    let llcs: BTreeSet<_> = looks.iter().step_by(2).map(|cpu| cpu / 8).collect();
    assert_eq!(llcs, [1, 2].into(), "{looks:?}");
}

#[test]
fn each_overloaded_cpu_is_looked_at_in_its_turn() {
    let overloaded = [2, 5, 7, 9, 12, 17];
    let looks = looks(&mut rig("1x3x8x1"), &overloaded, 200);
    assert_eq!(looks.iter().copied().collect::<BTreeSet<_>>(), overloaded.into(), "{looks:?}");
}

/// Where only one LLC has overloaded CPUs, each look goes there.
#[test]
fn no_look_is_lost() {
    for victim in [3, 13, 20] {
        assert_eq!(looks(&mut rig("1x3x8x1"), &[victim], 4), [victim; 4]);
    }
}

#[test]
fn never_at_itself() {
    let mut rig = rig("1x2x4x1");
    waiting(&mut rig, 0, 10 * WAIT, 100);
    assert_eq!(rig.call(rig.u.next_overloaded, (0, 0, 3)), -1);
    assert!(!balance(&mut rig));
    assert_eq!(rig.waiting(0).len(), 1);
}

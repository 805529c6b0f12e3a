// SPDX-License-Identifier: GPL-2.0-only
//! `steal/balance.bpf.h`: a busy CPU takes a task that is owed more, or has waited clearly longer, than its own next one.

use std::collections::BTreeSet;

use magpie_sim::cgroup::Spec;
use magpie_sim::dsq::TaskId;
use magpie_sim::native::{
    BALANCE_GRAN_NS, BALANCE_NS, BALANCE_WAIT_NS, MAX_DRIFT_NS, OVERRUN_NS, REQUEUE_NS, STARVE_CHECKS, WEIGHT_SHIFT,
};
use proptest::prelude::*;
use scx_magpie::bpf_intf::*;

use crate::rig::{Rig, nice_weight};

const WAIT: u64 = BALANCE_WAIT_NS as u64;
const GRAN: i64 = BALANCE_GRAN_NS as i64;
const DRIFT: i64 = MAX_DRIFT_NS as i64;

/// A task of this weight has waited on the CPU for `wait` ns.
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

/// CPU 0 looks. It would run the first task of its queue next, or goes on with current, which has this deadline.
fn balance_at(rig: &mut Rig, deadline: u64) -> bool {
    let own = rig.waiting(0).first().map_or(std::ptr::null_mut(), |&task| rig.tctx(task));
    let victim = rig.call(rig.u.balance_victim, (0,));
    rig.cpu(0, |cctx| (cctx.balance_with, cctx.curr_weight) = (victim, 1024 << WEIGHT_SHIFT));
    rig.call(rig.u.balance, (0, deadline, own))
}

fn balance(rig: &mut Rig) -> bool {
    balance_at(rig, 0)
}

proptest! {
    #[test]
    fn a_task_that_has_waited_clearly_longer_by_weight_is_taken(
        own in prop::option::of((0..4 * WAIT, nice_weight())),
        (wait, weight) in (prop_oneof![0..2 * WAIT, 0..100 * WAIT], nice_weight()),
    ) {
        let mut rig = rig("1x1x2x1");
        if let Some((wait, weight)) = own {
            waiting(&mut rig, 0, wait, weight);
        }
        let task = waiting(&mut rig, 1, wait, weight);
        let by_weight = |wait: u64, weight: u32| wait * u64::from(weight) / 1024;
        let (own_wait, own_weight) = own.unwrap_or((0, 1024));
        let taken = wait >= WAIT && by_weight(wait, weight) >= by_weight(own_wait, own_weight) + WAIT;
        prop_assert_eq!(balance(&mut rig), taken);
        prop_assert_eq!(rig.local(0), if taken { vec![task] } else { vec![] });
        prop_assert_eq!(rig.stat(magpie_stat_STAT_BALANCE), u64::from(taken));
    }
}

/// A task of nice 0 in a group of weight 50, which has waited on CPU 1.
fn of_half_weight(rig: &mut Rig, wait: u64) -> TaskId {
    let group = rig.kernel.make_cgroup(&Spec { weight: 50, ..Spec::default() });
    let task = rig.task();
    rig.kernel.move_to_cgroup(task, group);
    rig.call(rig.u.group_enter, (rig.raw(task), rig.tctx(task)));
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
}

#[test]
fn no_other_comes_before_a_task_that_lacks_service() {
    for (lacks, taken) in [(OVERRUN_NS, true), (OVERRUN_NS + 1, false)] {
        let mut rig = rig("1x1x2x1");
        waiting(&mut rig, 1, 2 * WAIT, 1024);
        assert_eq!(balance_at(&mut rig, 0u64.wrapping_sub(lacks.into())), taken, "{lacks}");
    }
}

#[test]
fn at_the_edge() {
    for (own, wait, taken) in [(0, WAIT - 1, false), (0, WAIT, true), (5, WAIT + 4, false), (5, WAIT + 5, true)] {
        let mut rig = rig("1x1x2x1");
        waiting(&mut rig, 0, own, 1024);
        waiting(&mut rig, 1, wait, 1024);
        assert_eq!(balance(&mut rig), taken, "{own} {wait}");
    }
}

/// However much it is owed.
#[test]
fn a_task_that_has_waited_less_than_the_own_first_is_left_there() {
    for (own, wait, taken) in [(5, 4, false), (5, 5, true)] {
        let mut rig = rig("1x1x2x1");
        waiting(&mut rig, 0, own, 1024);
        waiting(&mut rig, 1, wait, 1024);
        assert_eq!(balance_at(&mut rig, 100 * GRAN as u64), taken, "{own} {wait}");
    }
}

/// The clock of CPU 0 is so far ahead of another's, and tasks with these deadlines are next. Is the other's taken?
fn by_turns(machine: &str, victim: usize, weight: u32, ahead: i64, own: i64, other: i64) -> bool {
    let mut rig = rig(machine);
    let task = rig.task();
    rig.set_weight(task, weight);
    rig.queue(task, victim, other as u64);
    // The look at other LLCs is due.
    rig.cpu(0, |cctx| (cctx.voffset, cctx.balance_turn) = (ahead as u64, 1));
    let taken = balance_at(&mut rig, own as u64);
    assert_eq!(rig.local(0).contains(&task), taken);
    taken
}

proptest! {
    #[test]
    fn a_task_that_is_owed_more_by_what_the_clocks_are_apart_is_taken(
        far: bool, weight in nice_weight(),
        ahead in -3 * DRIFT..3 * DRIFT, own in -2 * GRAN..3 * GRAN, other in -3 * GRAN..3 * GRAN,
    ) {
        let by_weight = |ns: i64| ns * 1024 / i64::from(weight);
        let (machine, victim, gran) = if far { ("1x2x2x1", 2, 2 * GRAN) } else { ("1x1x2x1", 1, GRAN) };
        let taken = other + by_weight(gran) < own + ahead.clamp(-by_weight(DRIFT), by_weight(DRIFT));
        prop_assert_eq!(by_turns(machine, victim, weight, ahead, own, other), taken);
    }

    #[test]
    fn clocks_drift_no_further_than_max_drift_by_weight(
        ahead in -10 * DRIFT..10 * DRIFT, clocks: [u64; 2], weight in nice_weight(),
    ) {
        let mut rig = rig("1x1x2x1");
        rig.cpu(0, |cctx| (cctx.vtime, cctx.voffset) = (clocks[0], 0u64.wrapping_sub(clocks[0]).wrapping_add(ahead as u64)));
        rig.cpu(1, |cctx| (cctx.vtime, cctx.voffset) = (clocks[1], 0u64.wrapping_sub(clocks[1])));
        rig.call(rig.u.trim_drift, (rig.cctx(0), rig.cctx(1), weight << WEIGHT_SHIFT));
        let left = rig.cpu(0, |cctx| cctx.vtime.wrapping_add(cctx.voffset)) as i64;
        let most = DRIFT * 1024 / i64::from(weight);
        prop_assert_eq!(left, ahead.clamp(-most, most));
    }
}

#[test]
fn the_clock_of_an_idle_cpu_goes_on() {
    let mut rig = rig("1x1x2x1");
    let now = rig.kernel.now;
    for (running, voffset) in [(0, 5000), (1, 0)] {
        rig.cpu(0, |cctx| (cctx.voffset, cctx.pelt.since, cctx.pelt.running) = (0, now - 5000, running));
        rig.call(rig.u.account_idle, (rig.cctx(0), now));
        assert_eq!(rig.cpu(0, |cctx| cctx.voffset), voffset);
    }
}

/// Where many wait, all have waited for longer than a task that has just woken.
#[test]
fn no_look_before_a_task_with_credit() {
    const SLICE: u64 = 3_000_000;
    for (sync, burst, looks) in [(0, 0, false), (0, SLICE - 1, false), (0, SLICE, true), (1, 0, true)] {
        let mut rig = rig("1x1x2x1");
        let own = waiting(&mut rig, 0, 0, 1024);
        rig.remembered(own, |tctx| (tctx.sync_wakeup, tctx.charged) = (sync, tctx.woke_exec + burst));
        rig.set_deadline(own, 0);
        let other = waiting(&mut rig, 1, WAIT, 1024);
        rig.cpu(0, |cctx| (cctx.due, cctx.balance_with) = (due_DUE_BALANCE as u8, 1));
        assert_eq!(rig.dispatch(0, None), [if looks { other } else { own }], "sync: {sync}, has run for {burst} ns");
        // The next dispatch() does.
        assert_eq!(rig.cpu(0, |cctx| u32::from(cctx.due)), if looks { 0 } else { due_DUE_BALANCE });
    }
}

#[test]
fn a_task_that_may_not_come_is_passed_over() {
    let mut rig = rig("1x1x4x1");
    let stays = rig.task_on([1, 2]);
    rig.queue(stays, 1, 0);
    let comes = waiting(&mut rig, 1, WAIT, 1024);
    let since = rig.kernel.now - WAIT;
    rig.remembered(stays, |tctx| tctx.enqueued_at = since);
    assert!(balance(&mut rig));
    assert_eq!(rig.local(0), [comes]);
}

/// However much they are owed, unless they have waited for long.
#[test]
fn a_strong_cpu_with_a_big_task_leaves_tasks_to_weak_ones() {
    for (curr_util, wait, taken) in [(900, 0, false), (900, WAIT, true), (100, 0, true)] {
        let mut rig = rig("1x1x2x1:1024,430");
        waiting(&mut rig, 1, wait, 1024);
        rig.cpu(0, |cctx| cctx.curr_util = curr_util);
        assert_eq!(balance_at(&mut rig, 100 * GRAN as u64), taken, "beside a task of {curr_util}, after {wait} ns");
    }
}

/// A quarter of the watchdog's timeout.
const STARVE: u64 = 7_500_000_000;

/// What the tick finds due at CPU 0, so long after it found all that.
fn due(rig: &mut Rig, since: u64) -> u32 {
    let at = rig.kernel.now - since;
    rig.cpu(0, |cctx| (cctx.due, cctx.balanced_at, cctx.starved_at, cctx.requeued_at) = (0, at, at, at));
    rig.call(rig.u.set_due, (0, rig.cctx(0), rig.kernel.now));
    // Once.
    let due = rig.cpu(0, |cctx| std::mem::take(&mut cctx.due));
    rig.call(rig.u.set_due, (0, rig.cctx(0), rig.kernel.now));
    assert_eq!(rig.cpu(0, |cctx| cctx.due), 0);
    due.into()
}

#[test]
fn each_look_is_due_after_its_time() {
    let (balance, shares) = (BALANCE_NS as u64, REQUEUE_NS as u64);
    let starve = STARVE / STARVE_CHECKS as u64;
    for (waits, groups, since, expected) in [
        (true, true, balance - 1, 0),
        (true, true, balance, due_DUE_BALANCE),
        (true, true, shares - 1, due_DUE_BALANCE),
        (true, true, shares, due_DUE_BALANCE | due_DUE_SHARES),
        (true, false, shares, due_DUE_BALANCE),
        (true, true, starve, due_DUE_BALANCE | due_DUE_SHARES | due_DUE_STARVED),
        // Nothing waits here.
        (false, true, shares, due_DUE_BALANCE),
    ] {
        let mut rig = Rig::new("1x1x2x1", &[]);
        rig.kernel.now = 1_000_000_000_000;
        if groups {
            rig.kernel.make_cgroup(&Spec::default());
        }
        waiting(&mut rig, 1, 0, 1024);
        if waits {
            waiting(&mut rig, 0, 0, 1024);
        }
        assert_eq!(due(&mut rig, since), expected, "{waits} {groups} {since}");
    }
    for (machine, flags) in [("1x1x1x1", &[][..]), ("1x1x2x1", &["--steal", "off"])] {
        let mut rig = Rig::new(machine, flags);
        rig.kernel.now = 1_000_000_000_000;
        assert_eq!(due(&mut rig, shares), 0, "no other CPU: {machine} {flags:?}");
    }
}

/// The CPUs that CPU 0 looks at in so many looks while these are overloaded.
fn looks(machine: &str, overloaded: &[usize], nr: usize) -> Vec<i32> {
    let mut rig = rig(machine);
    for &cpu in overloaded {
        waiting(&mut rig, cpu, 0, 1024);
    }
    (0..nr).map(|_| rig.call(rig.u.balance_victim, (0,))).collect()
}

#[test]
fn each_look_is_at_the_next_overloaded_cpu() {
    assert_eq!(looks("1x1x24x1", &[0, 2, 7, 20], 7), [2, 7, 20, 2, 7, 20, 2]);
}

#[test]
fn every_second_look_is_at_one_of_the_other_llcs_in_turn() {
    let looks = looks("1x3x8x1", &[0, 2, 5, 7, 9, 17], 12);
    assert_eq!(looks, [2, 9, 5, 17, 7, 9, 2, 17, 5, 9, 7, 17]);
}

#[test]
fn each_overloaded_cpu_is_looked_at_in_its_turn() {
    let overloaded = [2, 5, 7, 9, 12, 17];
    let looks: BTreeSet<_> = looks("1x3x8x1", &overloaded, 200).into_iter().collect();
    assert_eq!(looks, overloaded.map(|cpu| cpu as i32).into());
}

/// A check is of at most eight other LLCs; the next one continues after them.
#[test]
fn far_llcs_have_their_turn() {
    let overloaded = [3, 38, 41, 46];
    let looks: BTreeSet<_> = looks("1x12x4x1", &overloaded, 200).into_iter().collect();
    assert_eq!(looks, overloaded.map(|cpu| cpu as i32).into());
}

/// Of the own LLC, of others, or of none.
#[test]
fn a_look_is_where_cpus_are_overloaded() {
    for (overloaded, last_checked) in [
        (&[3][..], [3; 4]),
        (&[2, 5], [2, 5, 2, 5]),
        (&[13], [13; 4]),
        (&[20], [20; 4]),
        // In turns.
        (&[3, 13], [3, 13, 3, 13]),
        (&[13, 20], [20, 13, 13, 20]),
        (&[], [NO_CPU; 4]),
    ] {
        assert_eq!(looks("1x3x8x1", overloaded, 4), last_checked, "{overloaded:?}");
    }
}

/// As far as --steal allows.
#[test]
fn no_look_beyond_reach() {
    let mut rig = Rig::new("1x2x8x1", &["--steal", "llc"]);
    rig.only_idle(&[]);
    waiting(&mut rig, 13, 0, 1024);
    for _ in 0..4 {
        assert_eq!(rig.call(rig.u.balance_victim, (0,)), NO_CPU);
    }
}

#[test]
fn a_cpu_never_looks_at_itself() {
    let mut rig = rig("1x2x4x1");
    waiting(&mut rig, 0, 10 * WAIT, 1024);
    assert_eq!(rig.call(rig.u.next_overloaded, (0, 0, 3)), NO_CPU);
    assert!(!balance(&mut rig));
    assert_eq!(rig.waiting(0).len(), 1);
}

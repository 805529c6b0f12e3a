// SPDX-License-Identifier: GPL-2.0-only
//! `numa/wake_affine.bpf.h`: the target of a wakeup, previous or waking CPU.

use magpie_sim::native::{AFFINE_BIAS_PCT, FLIPS_HALVE_NS, SCX_WAKE_FORK, SCX_WAKE_SYNC, SCX_WAKE_TTWU, WEIGHT_SHIFT};
use proptest::prelude::*;
use scx_magpie::bpf_intf::*;

use crate::rig::Rig;

const PREV: usize = 0;
const NEAR: usize = 1;
const FAR: usize = 2;
const SYNC: u64 = SCX_WAKE_TTWU | SCX_WAKE_SYNC;
const WEIGHT: u64 = 100 << WEIGHT_SHIFT;

/// A wakeup, and the CPUs' state: each runs a task of ours and has empty queues, unless a field says otherwise.
#[derive(Clone, Copy, Debug)]
struct Wakeup {
    flags: u64,
    waking: usize,
    waking_idle: bool,
    prev_idle: bool,
    allowed: bool,
    /// Tasks in the queues of the waking CPU, and of the previous one.
    waits: u64,
    prev_waits: u64,
}

const PLAIN: Wakeup = Wakeup {
    flags: SCX_WAKE_TTWU,
    waking: NEAR,
    waking_idle: false,
    prev_idle: false,
    allowed: true,
    waits: 0,
    prev_waits: 0,
};

/// On two LLCs of two CPUs.
fn target(rules: &str, wakeup: Wakeup) -> usize {
    let Wakeup { flags, waking, waking_idle, prev_idle, allowed, waits, prev_waits } = wakeup;
    let mut rig = Rig::new("1x2x2x1", &["--wake-affine", rules]);
    let idle = [(waking, waking_idle), (PREV, prev_idle)];
    let idle: Vec<_> = idle.into_iter().filter(|(_, idle)| *idle).map(|(cpu, _)| cpu).collect();
    rig.only_idle(&idle);
    for (cpu, waits) in [(waking, waits), (PREV, prev_waits)] {
        rig.cpu(cpu, |cctx| {
            cctx.curr_weight = if idle.contains(&cpu) { 0 } else { WEIGHT as u32 };
            cctx.queued = (waits > 0).into();
            cctx.queued_load = waits * WEIGHT;
        });
    }
    rig.kernel.cpu = waking;
    let task = if allowed { rig.task() } else { rig.task_on([PREV, 3]) };
    let given = rig.call(rig.u.affine_target, (rig.raw(task), rig.tctx(task), PREV as i32, flags, false)) as usize;
    let stats = [STAT_AFFINE, STAT_AFFINE_FAR, STAT_WIDE].map(|stat| rig.stat(stat));
    assert_eq!(stats, [u64::from(given != PREV), 0, 0], "{rules} {wakeup:?}");
    given
}

use magpie_stat_STAT_AFFINE as STAT_AFFINE;
use magpie_stat_STAT_AFFINE_FAR as STAT_AFFINE_FAR;
use magpie_stat_STAT_WIDE as STAT_WIDE;

/// The loader has not told yet where it stands: no other CPU could take the task from there.
#[test]
fn a_waking_cpu_that_is_not_present_is_no_target() {
    for present in [true, false] {
        let mut rig = Rig::new("1x2x2x1", &["--wake-affine", "sync"]);
        rig.only_idle(&[]);
        rig.cpu(NEAR, |cctx| cctx.curr_weight = WEIGHT as u32);
        if !present {
            rig.kernel.offline(NEAR);
        }
        rig.kernel.cpu = NEAR;
        let task = rig.task();
        let given = rig.call(
            rig.u.affine_target,
            (rig.raw(task), rig.tctx(task), PREV as i32, PLAIN.flags | SCX_WAKE_SYNC, false),
        );
        assert_eq!(given as usize, if present { NEAR } else { PREV });
    }
}

#[test]
fn the_rules_choose_previous_or_waking_cpu() {
    for waking in [NEAR, FAR] {
        let near = waking == NEAR;
        let plain = Wakeup { waking, ..PLAIN };
        let sync = Wakeup { flags: SYNC, ..plain };
        for (wakeup, expected) in [
            // Not a plain wakeup, or not allowed.
            (Wakeup { flags: SCX_WAKE_FORK, ..plain }, PREV),
            (Wakeup { flags: SCX_WAKE_FORK | SCX_WAKE_SYNC, ..plain }, PREV),
            (Wakeup { flags: SCX_WAKE_FORK, waking_idle: true, ..plain }, PREV),
            (Wakeup { allowed: false, ..sync }, PREV),
            (Wakeup { allowed: false, waking_idle: true, ..sync }, PREV),
            // An interrupt of an idle CPU wakes.
            (Wakeup { waking_idle: true, prev_idle: true, ..plain }, PREV),
            (Wakeup { waking_idle: true, ..plain }, if near { waking } else { PREV }),
            // The waker is about to sleep.
            (sync, waking),
            (Wakeup { prev_idle: true, ..sync }, waking),
            (Wakeup { waits: 1, ..sync }, PREV),
            (plain, PREV),
        ] {
            assert_eq!(target("idle,sync", wakeup), expected, "{wakeup:?}");
        }
    }
}

#[test]
fn each_rule_can_be_switched_off() {
    let idle = Wakeup { waking_idle: true, ..PLAIN };
    let sync = Wakeup { flags: SYNC, ..PLAIN };
    let weight = Wakeup { prev_waits: 5, ..PLAIN };
    for (rules, by_idle, by_sync, by_weight) in [
        ("off", PREV, PREV, PREV),
        ("wide", PREV, PREV, PREV),
        ("idle", NEAR, PREV, PREV),
        ("sync", PREV, NEAR, PREV),
        ("weight", NEAR, NEAR, NEAR),
        ("idle,sync,weight,wide", NEAR, NEAR, NEAR),
    ] {
        let given = [idle, sync, weight].map(|wakeup| target(rules, wakeup));
        assert_eq!(given, [by_idle, by_sync, by_weight], "{rules}");
    }
}

/// What waits behind a real-time task is not known.
#[test]
fn a_sync_wakeup_by_another_class_is_as_any() {
    let mut rig = Rig::new("1x1x4x1", &["--wake-affine", "idle,sync"]);
    rig.only_idle(&[]);
    rig.kernel.cpu = NEAR;
    let task = rig.task();
    let target = rig.call(rig.u.affine_target, (rig.raw(task), rig.tctx(task), PREV as i32, SYNC, false));
    assert_eq!(target, PREV as i32);
}

#[test]
fn an_idle_previous_cpu_is_not_weighed() {
    let wakeup = Wakeup { waking: FAR, waking_idle: true, prev_idle: true, prev_waits: 9, ..PLAIN };
    assert_eq!(target("idle,weight", wakeup), PREV);
    assert_eq!(target("weight", wakeup), FAR);
}

proptest! {
    /// As the kernel's wake_affine_weight(), in real numbers.
    #[test]
    fn the_less_loaded_cpu_by_capacity(
        here in 0..2000u64, there in 0..2000u64, running in 1..200u32, task in 1..200u32, sync: bool,
        capacities in prop::sample::select(vec!["1x1x2x1:1024", "1x1x2x1:1024,512"]),
    ) {
        let mut rig = Rig::new(capacities, &[]);
        let capacity = [PREV, NEAR].map(|cpu| rig.kernel.machine.places[cpu].capacity as f64);
        rig.cpu(NEAR, |cctx| (cctx.queued_load, cctx.curr_weight) = (here << WEIGHT_SHIFT, running << WEIGHT_SHIFT));
        rig.cpu(PREV, |cctx| (cctx.queued_load, cctx.curr_weight) = (there << WEIGHT_SHIFT, 0));
        let id = rig.task();
        rig.set_weight(id, task);
        let pulled = rig.call(rig.u.wake_affine_weight, (rig.raw(id), rig.tctx(id), NEAR as i32, PREV as i32, sync));
        let stays = if sync { 0.0 } else { f64::from(running) };
        let here = (here as f64 + stays + f64::from(task)) * 100.0 * capacity[0];
        let there = there as f64 * f64::from(AFFINE_BIAS_PCT) * capacity[1];
        prop_assert_eq!(pulled, here < there || (sync && here == there));
    }
}

/// 100 there by the bias of 108 %, against a wakee of 108 here.
#[test]
fn of_equal_cpus_the_wakee_follows_a_waker_that_makes_room() {
    for (sync, task, pulled) in [(true, 108, true), (true, 109, false), (false, 108, false), (false, 107, false)] {
        let mut rig = Rig::new("1x1x2x1", &[]);
        rig.cpu(PREV, |cctx| cctx.curr_weight = WEIGHT as u32);
        rig.cpu(NEAR, |cctx| cctx.curr_weight = 1 << WEIGHT_SHIFT);
        let id = rig.task();
        rig.set_weight(id, task);
        let args = (rig.raw(id).cast_const(), rig.tctx(id), NEAR as i32, PREV as i32, sync);
        assert_eq!(rig.call(rig.u.wake_affine_weight, args), pulled, "{sync} {task}");
    }
}

#[test]
fn flips_count_changes_of_the_wakee_and_halve_each_second() {
    let mut rig = Rig::new("1x1x2x1", &[]);
    let cctx = rig.cctx(0);
    let now = 5 * FLIPS_HALVE_NS as u64;
    rig.cpu(0, |cctx| cctx.curr_started = now);
    for pid in [7, 7, 8, 7, 7] {
        rig.call(rig.u.note_wakee, (cctx, pid));
    }
    assert_eq!(rig.cpu(0, |cctx| (cctx.wakes.flips, cctx.wakes.last, cctx.wakes.decayed_at)), (3, 7, now));
    rig.cpu(0, |cctx| cctx.curr_started += FLIPS_HALVE_NS as u64);
    rig.call(rig.u.note_wakee, (cctx, 7));
    assert_eq!(rig.cpu(0, |cctx| cctx.wakes.flips), 3);
    rig.cpu(0, |cctx| cctx.curr_started += 1);
    rig.call(rig.u.note_wakee, (cctx, 7));
    assert_eq!(rig.cpu(0, |cctx| cctx.wakes.flips), 1);
}

/// By the kernel's wake_wide(): both wake as many tasks as the LLC has CPUs, one of them so many times more.
#[test]
fn a_wakeup_of_one_to_many_stays_on_the_previous_cpu() {
    for (waker, wakee, wide) in
        [(0, 0, false), (16, 3, false), (15, 4, false), (16, 4, true), (4, 16, true), (4, 4, false), (99, 0, false)]
    {
        let mut rig = Rig::new("1x2x4x1", &[]);
        rig.only_idle(&[]);
        rig.kernel.cpu = NEAR;
        let task = rig.task();
        let pid = rig.kernel.tasks[task].raw().pid;
        rig.cpu(NEAR, |cctx| {
            cctx.curr_weight = WEIGHT as u32;
            cctx.wakes = wakes { flips: waker, last: pid, decayed_at: 0 };
        });
        rig.remembered(task, |tctx| tctx.wakes.flips = wakee);
        let target = rig.call(rig.u.affine_target, (rig.raw(task), rig.tctx(task), PREV as i32, SYNC, false));
        assert_eq!((target, rig.stat(STAT_WIDE)), if wide { (PREV as i32, 1) } else { (NEAR as i32, 0) });
    }
}

#[test]
fn flips_go_with_the_task_to_another_cpu() {
    let mut rig = Rig::new("1x1x2x1", &[]);
    let task = rig.task();
    let raw = rig.raw(task);
    for (cpu, flips) in [(0, 1), (1, 2)] {
        rig.run(task, cpu);
        let ops = rig.kernel.ops;
        rig.call(ops.running, (raw,));
        rig.call(rig.u.note_wakee, (rig.cctx(cpu), 50 + cpu as i32));
        rig.call(ops.stopping, (raw, true));
        assert_eq!(rig.remembered(task, |tctx| tctx.wakes.flips), flips);
    }
}

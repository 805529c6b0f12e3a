// SPDX-License-Identifier: GPL-2.0-only
//! `wake/wake_affine.bpf.h`: the target of a wakeup, previous or waking CPU.

use magpie_sim::native::{SCX_WAKE_FORK, SCX_WAKE_SYNC, SCX_WAKE_TTWU, WEIGHT_SHIFT};
use scx_magpie::bpf_intf::*;

use crate::rig::Rig;

const PREV: usize = 0;
const NEAR: usize = 1;
const FAR: usize = 2;
const SYNC: u64 = SCX_WAKE_TTWU | SCX_WAKE_SYNC;
const WEIGHT: u64 = 1024 << WEIGHT_SHIFT;

/// A wakeup, and the CPUs' state: each runs a task of ours and has empty queues, unless a field says otherwise.
#[derive(Clone, Copy, Debug)]
struct Wakeup {
    flags: u64,
    waking: usize,
    waking_idle: bool,
    prev_idle: bool,
    allowed: bool,
    /// Tasks in the queues of the waking CPU.
    waits: u64,
}

const PLAIN: Wakeup =
    Wakeup { flags: SCX_WAKE_TTWU, waking: NEAR, waking_idle: false, prev_idle: false, allowed: true, waits: 0 };

/// On two LLCs of two CPUs.
fn target(rules: &str, wakeup: Wakeup) -> usize {
    let Wakeup { flags, waking, waking_idle, prev_idle, allowed, waits } = wakeup;
    let mut rig = Rig::new("1x2x2x1", &["--wake-affine", rules]);
    let idle = [(waking, waking_idle), (PREV, prev_idle)];
    let idle: Vec<_> = idle.into_iter().filter(|(_, idle)| *idle).map(|(cpu, _)| cpu).collect();
    rig.only_idle(&idle);
    for (cpu, waits) in [(waking, waits), (PREV, 0)] {
        rig.cpu(cpu, |cctx| {
            cctx.curr_weight = if idle.contains(&cpu) { 0 } else { WEIGHT as u32 };
            cctx.queued = (waits > 0).into();
            cctx.queued_load = waits * WEIGHT;
        });
    }
    rig.kernel.cpu = waking;
    let task = if allowed { rig.task() } else { rig.task_on([PREV, 3]) };
    let given = rig.call(rig.u.affine_target, (rig.raw(task), rig.tctx(task), PREV as i32, flags)) as usize;
    let stats = [STAT_AFFINE, STAT_AFFINE_FAR].map(|stat| rig.stat(stat));
    assert_eq!(stats, [u64::from(given != PREV), 0], "{rules} {wakeup:?}");
    given
}

use magpie_stat_STAT_AFFINE as STAT_AFFINE;
use magpie_stat_STAT_AFFINE_FAR as STAT_AFFINE_FAR;

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
        let given =
            rig.call(rig.u.affine_target, (rig.raw(task), rig.tctx(task), PREV as i32, PLAIN.flags | SCX_WAKE_SYNC));
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
    for (rules, by_idle, by_sync) in
        [("off", PREV, PREV), ("idle", NEAR, PREV), ("sync", PREV, NEAR), ("idle,sync", NEAR, NEAR)]
    {
        let given = [idle, sync].map(|wakeup| target(rules, wakeup));
        assert_eq!(given, [by_idle, by_sync], "{rules}");
    }
}

/// What waits behind a real-time task is not known.
#[test]
fn a_sync_wakeup_by_another_class_is_as_any() {
    let mut rig = Rig::new("1x1x4x1", &["--wake-affine", "idle,sync"]);
    rig.only_idle(&[]);
    rig.kernel.cpu = NEAR;
    let task = rig.task();
    let target = rig.call(rig.u.affine_target, (rig.raw(task), rig.tctx(task), PREV as i32, SYNC));
    assert_eq!(target, PREV as i32);
}

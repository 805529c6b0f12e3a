// SPDX-License-Identifier: GPL-2.0-only
//! `affine.bpf.h`: previous or waking CPU, by the table at its head.

use magpie_sim::native::{SCX_WAKE_FORK, SCX_WAKE_SYNC, SCX_WAKE_TTWU};

use crate::rig::Rig;

const PREV: usize = 0;
const NEAR: usize = 1;
const FAR: usize = 2;
const SYNC: u64 = SCX_WAKE_TTWU | SCX_WAKE_SYNC;

#[test]
fn previous_or_waking() {
    // The waking CPU runs a task of ours; nobody waits.
    let task_runs = |rig: &mut Rig, waking| rig.cpu(waking, |cctx| cctx.curr_weight = 100);
    for waking in [NEAR, FAR] {
        let near = waking == NEAR;
        for (flags, waking_idle, prev_idle, allowed, waits, target) in [
            // Not a plain wakeup, not allowed: the previous one, whoever is idle.
            (SCX_WAKE_FORK, false, false, true, false, PREV),
            (SCX_WAKE_FORK | SCX_WAKE_SYNC, false, false, true, false, PREV),
            (SCX_WAKE_FORK, true, false, true, false, PREV),
            (SYNC, false, false, false, false, PREV),
            (SYNC, true, false, false, false, PREV),
            // An idle CPU's interrupt wakes.
            (SCX_WAKE_TTWU, true, true, true, false, PREV),
            (SCX_WAKE_TTWU, true, false, true, false, if near { waking } else { PREV }),
            // The waker is about to sleep.
            (SYNC, false, false, true, false, waking),
            (SYNC, false, true, true, false, waking),
            (SYNC, false, false, true, true, PREV),
            (SCX_WAKE_TTWU, false, false, true, false, PREV),
        ] {
            let mut rig = Rig::new("1x2x2x1", &[]);
            let idle = [(waking, waking_idle), (PREV, prev_idle)];
            let idle: Vec<_> = idle.into_iter().filter(|(_, idle)| *idle).map(|(cpu, _)| cpu).collect();
            rig.only_idle(&idle);
            if !waking_idle {
                task_runs(&mut rig, waking);
            }
            rig.cpu(waking, |cctx| cctx.waiting = waits.into());
            rig.kernel.cpu = waking;
            let task = if allowed { rig.task() } else { rig.task_on([PREV, 3]) };
            let given = rig.call(rig.u.affine_target, (rig.raw(task), rig.tctx(task), PREV as i32, flags));
            assert_eq!(
                given as usize, target,
                "{flags:#x} from {waking}: idle {idle:?}, allowed {allowed}, waits {waits}"
            );
        }
    }
}

/// A real-time task that wakes as it goes leaves a CPU with nothing to run but itself: who waits is not told.
#[test]
fn a_sync_wakeup_by_what_is_not_ours_counts_for_nothing() {
    let mut rig = Rig::new("1x1x4x1", &[]);
    rig.only_idle(&[]);
    rig.kernel.cpu = NEAR;
    let task = rig.task();
    assert_eq!(rig.call(rig.u.affine_target, (rig.raw(task), rig.tctx(task), PREV as i32, SYNC)), PREV as i32);
}

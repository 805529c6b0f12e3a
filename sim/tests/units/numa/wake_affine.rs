// SPDX-License-Identifier: GPL-2.0-only
//! `numa/wake_affine.bpf.h`: previous or waking CPU, by the table at its head.

use magpie_sim::native::{
    AFFINE_BIAS_PCT, FLIPS_HALVE_NS, HOG_NS, SCX_WAKE_FORK, SCX_WAKE_SYNC, SCX_WAKE_TTWU, WEIGHT_SHIFT,
};
use magpie_sim::task::State;
use proptest::prelude::*;
use scx_magpie::bpf_intf::*;

use crate::rig::Rig;

const PREV: usize = 0;
const NEAR: usize = 1;
const FAR: usize = 2;
const SYNC: u64 = SCX_WAKE_TTWU | SCX_WAKE_SYNC;
const WEIGHT: u64 = 100 << WEIGHT_SHIFT;

/// A wakeup, and the CPUs' state. Each runs a task of ours that nobody waits for, unless it says so.
#[derive(Clone, Copy, Debug)]
struct Wakeup {
    flags: u64,
    waking: usize,
    waking_idle: bool,
    prev_idle: bool,
    allowed: bool,
    /// Tasks that wait there, besides the one that runs.
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
            cctx.waiting = (waits > 0).into();
            cctx.queued_load = waits * WEIGHT;
        });
    }
    rig.kernel.cpu = waking;
    let task = if allowed { rig.task() } else { rig.task_on([PREV, 3]) };
    let given = rig.call(rig.u.affine_target, (rig.raw(task), rig.tctx(task), PREV as i32, flags)) as usize;
    let stats = [STAT_AFFINE, STAT_AFFINE_FAR, STAT_WIDE].map(|stat| rig.stat(stat));
    assert_eq!(stats, [u64::from(given != PREV), 0, 0], "{rules} {wakeup:?}");
    given
}

use magpie_stat_STAT_AFFINE as STAT_AFFINE;
use magpie_stat_STAT_AFFINE_FAR as STAT_AFFINE_FAR;
use magpie_stat_STAT_WIDE as STAT_WIDE;

#[test]
fn previous_or_waking() {
    for waking in [NEAR, FAR] {
        let near = waking == NEAR;
        let plain = Wakeup { waking, ..PLAIN };
        let sync = Wakeup { flags: SYNC, ..plain };
        for (wakeup, expected) in [
            // Not a plain wakeup, not allowed: the previous one, whoever is idle.
            (Wakeup { flags: SCX_WAKE_FORK, ..plain }, PREV),
            (Wakeup { flags: SCX_WAKE_FORK | SCX_WAKE_SYNC, ..plain }, PREV),
            (Wakeup { flags: SCX_WAKE_FORK, waking_idle: true, ..plain }, PREV),
            (Wakeup { allowed: false, ..sync }, PREV),
            (Wakeup { allowed: false, waking_idle: true, ..sync }, PREV),
            // An idle CPU's interrupt wakes.
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

/// Without its rule each of them stays.
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

/// A real-time task that wakes as it goes leaves a CPU with nothing to run but itself: who waits is not told.
#[test]
fn a_sync_wakeup_by_what_is_not_ours_counts_for_nothing() {
    let mut rig = Rig::new("1x1x4x1", &["--wake-affine", "idle,sync"]);
    rig.only_idle(&[]);
    rig.kernel.cpu = NEAR;
    let task = rig.task();
    let target = rig.call(rig.u.affine_target, (rig.raw(task), rig.tctx(task), PREV as i32, SYNC));
    assert_eq!(target, PREV as i32);
}

/// Nobody is idle: who is put in line does not wait for a CPU that still wakes up, if the waking one can have it.
#[test]
fn in_line_where_a_cpu_is_awake() {
    for (claimed, runs, waits, allowed, expected) in [
        (true, true, false, true, NEAR),
        (false, true, false, true, PREV),
        (true, false, false, true, PREV),
        (true, true, true, true, PREV),
        (true, true, false, false, PREV),
    ] {
        let mut rig = Rig::new("1x2x2x1", &[]);
        rig.only_idle(if claimed { &[PREV] } else { &[] });
        assert_eq!(rig.call(rig.u.claim_idle, (PREV as i32,)), claimed);
        rig.cpu(NEAR, |cctx| {
            cctx.curr_weight = if runs { WEIGHT as u32 } else { 0 };
            cctx.waiting = waits.into();
        });
        rig.kernel.cpu = NEAR;
        let task = if allowed { rig.task() } else { rig.task_on([PREV, FAR]) };
        rig.kernel.wake(task, false);
        assert_eq!(rig.kernel.violation, None);
        let line = rig.kernel.tasks[task].cpu;
        assert_eq!(line, expected, "claimed {claimed}, runs {runs}, waits {waits}, allowed {allowed}");
    }
}

#[test]
fn an_idle_previous_cpu_is_no_matter_of_weight() {
    let wakeup = Wakeup { waking: FAR, waking_idle: true, prev_idle: true, prev_waits: 9, ..PLAIN };
    assert_eq!(target("idle,weight", wakeup), PREV);
    assert_eq!(target("weight", wakeup), FAR);
}

/// Who is prompt need not wait for a prompt waker's first turn where a hog, or who has had a slice, makes way at once.
#[test]
fn who_makes_way_at_once_is_no_matter_of_weight() {
    for (prompt, here_prompt, there_runs, there_prompt, expected) in [
        (true, true, true, false, PREV),
        (false, true, true, false, NEAR),
        (true, false, true, false, NEAR),
        (true, true, false, false, NEAR),
        (true, true, true, true, NEAR),
    ] {
        let mut rig = Rig::new("1x1x4x1", &["--wake-affine", "weight"]);
        rig.only_idle(&[]);
        rig.cpu(NEAR, |cctx| (cctx.curr_weight, cctx.curr_prompt) = (WEIGHT as u32, here_prompt.into()));
        rig.cpu(PREV, |cctx| {
            (cctx.curr_weight, cctx.curr_prompt) = (if there_runs { WEIGHT as u32 } else { 0 }, there_prompt.into());
            cctx.queued_load = 5 * WEIGHT;
        });
        rig.kernel.cpu = NEAR;
        let task = rig.task();
        rig.remembered(task, |tctx| tctx.prompt = prompt.into());
        let target = rig.call(rig.u.affine_target, (rig.raw(task), rig.tctx(task), PREV as i32, SCX_WAKE_TTWU));
        let case = (prompt, here_prompt, there_runs, there_prompt);
        assert_eq!((target, rig.stat(STAT_AFFINE)), (expected as i32, u64::from(expected != PREV)), "{case:?}");
    }
}

proptest! {
    /// As the kernel's wake_affine_weight(), in real numbers.
    #[test]
    fn the_lighter_cpu_by_capacity(
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

#[test]
fn flips_count_changes_and_halve_each_second() {
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

/// By the kernel's wake_wide(): both wake as many as the LLC has CPUs, one of them so many times more.
#[test]
fn one_to_many_is_wide() {
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
        let target = rig.call(rig.u.affine_target, (rig.raw(task), rig.tctx(task), PREV as i32, SYNC));
        assert_eq!((target, rig.stat(STAT_WIDE)), if wide { (PREV as i32, 1) } else { (NEAR as i32, 0) });
    }
}

/// Flips are the task's, wherever it runs.
#[test]
fn flips_go_with_the_task() {
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

#[test]
fn a_cpus_load_is_what_waits_and_what_runs() {
    let mut rig = Rig::new("1x1x2x1", &[]);
    rig.only_idle(&[]);
    let tasks: Vec<_> = [100, 20]
        .map(|weight| {
            let task = rig.task();
            rig.set_weight(task, weight);
            let cctx = rig.cctx(0);
            rig.remembered(task, |tctx| tctx.queued_cpu = 0);
            rig.call(rig.u.queue_add, (rig.raw(task), rig.tctx(task), cctx));
            rig.kernel.tasks[task].state = State::Runnable;
            task
        })
        .into();
    rig.cpu(0, |cctx| cctx.curr_weight = 5 << WEIGHT_SHIFT);
    let load = |rig: &mut Rig| rig.call(rig.u.cpu_load, (rig.cctx(0),)) >> WEIGHT_SHIFT;
    assert_eq!(load(&mut rig), 125);
    // What it weighs by now does not matter, and it leaves once.
    rig.set_weight(tasks[0], 7);
    for _ in 0..2 {
        rig.call(rig.u.queue_del, (rig.tctx(tasks[0]),));
        assert_eq!(load(&mut rig), 25);
    }
}

/// The longer it runs the more the others find, and they are not to take the CPU from it.
#[test]
fn a_hog_that_wakes_whom_it_has_sent_something_is_none() {
    for (flags, hog) in [(SYNC, false), (SYNC & !SCX_WAKE_SYNC, true)] {
        let mut rig = Rig::new("1x1x4x1", &[]);
        rig.only_idle(&[]);
        let (hog_task, woken) = (rig.task(), rig.task());
        rig.run(hog_task, NEAR);
        rig.kernel.tasks[hog_task].raw_mut().se.sum_exec_runtime = HOG_NS.into();
        rig.call(rig.u.note_running, (rig.raw(hog_task), rig.tctx(hog_task), rig.cctx(NEAR)));
        rig.kernel.cpu = NEAR;
        rig.call(rig.u.affine_target, (rig.raw(woken), rig.tctx(woken), PREV as i32, flags));
        assert_eq!(rig.call(rig.u.is_hog, (rig.raw(hog_task), rig.tctx(hog_task))), hog);
        assert_eq!(rig.cpu(NEAR, |cctx| cctx.curr_hog != 0), hog);
    }
}

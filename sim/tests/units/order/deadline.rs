// SPDX-License-Identifier: GPL-2.0-only
//! `order/deadline.bpf.h`: time is charged by weight, and what a task is owed or ahead is kept and bounded.

use magpie_sim::dsq::TaskId;
use magpie_sim::native::{
    HOG_NS, OVERRUN_NS, PRODUCER_NS, PROMPT_NS, SCX_WAKE_FORK, SCX_WAKE_SYNC, SCX_WAKE_TTWU, WEIGHT_SHIFT,
};
use magpie_sim::task::{SCHED_BATCH, SCHED_IDLE, SCHED_NORMAL};
use magpie_sim::trace::Op;
use proptest::prelude::*;

use crate::rig::Rig;

const SLICE: i64 = 3_000_000;
const LAG: i64 = 6_000_000;

/// Clocks anywhere, the wrap of 64 bits included.
fn clock() -> impl Strategy<Value = u64> {
    prop_oneof![any::<u64>(), 0..1_000_000_000u64, (u64::MAX - 1_000_000_000)..=u64::MAX]
}

fn weight() -> impl Strategy<Value = u32> {
    prop_oneof![Just(1), Just(100), Just(10_000), 1..=10_000u32]
}

fn by_weight(ns: i64, weight: u32) -> i64 {
    ns * 100 / i64::from(weight)
}

/// A task whose home is `cpu`, `distance` from that CPU's clock (negative: owed), and the clock.
fn task_at(rig: &mut Rig, cpu: usize, vclock: u64, distance: i64, weight: u32) -> TaskId {
    let task = rig.task();
    rig.set_weight(task, weight);
    rig.cpu(cpu, |cctx| cctx.vclock = vclock);
    rig.remembered(task, |tctx| {
        tctx.home = cpu as i32;
        tctx.vruntime = vclock.wrapping_add_signed(distance);
    });
    task
}

fn burst() -> impl Strategy<Value = u64> {
    prop_oneof![Just(u64::from(HOG_NS) - 1), Just(HOG_NS.into()), 0..2 * u64::from(HOG_NS), 0..2 * SLICE as u64]
}

fn has_run_since_it_woke(rig: &mut Rig, task: TaskId, burst: u64) {
    rig.kernel.tasks[task].raw_mut().se.sum_exec_runtime = 1 << 40;
    rig.remembered(task, |tctx| tctx.woke_exec = (1 << 40) - burst);
}

/// How far the task is ahead of its home's clock.
fn distance(rig: &mut Rig, task: TaskId) -> i64 {
    let (home, vruntime) = rig.remembered(task, |tctx| (tctx.home, tctx.vruntime));
    vruntime.wrapping_sub(rig.cpu(home as usize, |cctx| cctx.vclock)) as i64
}

proptest! {
    #[test]
    fn a_charge_is_inverse_to_the_weight(start in clock(), ran in 0..1u64 << 44, weight in weight()) {
        let mut rig = Rig::new("1x1x2x1", &[]);
        let task = task_at(&mut rig, 0, start, 0, weight);
        for so_far in [ran, 2 * ran] {
            rig.kernel.tasks[task].raw_mut().se.sum_exec_runtime = so_far;
            rig.call(rig.u.charge, (rig.raw(task), rig.tctx(task)));
            // Once only: nothing has run since.
            rig.call(rig.u.charge, (rig.raw(task), rig.tctx(task)));
        }
        let charged = rig.remembered(task, |tctx| tctx.vruntime.wrapping_sub(start));
        let exact = 2.0 * ran as f64 * 100.0 / f64::from(weight);
        prop_assert!((charged as f64 - exact).abs() <= 2.0 + exact * 1e-12, "{} for {}", charged, exact);
    }

    #[test]
    fn the_deadline_of_a_hog_is_later_and_of_a_prompt_one_sooner(
        vclock in clock(), ahead in -LAG..LAG, weight in weight(), burst in burst(), prompt: bool,
    ) {
        let mut rig = Rig::new("1x1x2x1", &[]);
        let task = task_at(&mut rig, 0, vclock, ahead, weight);
        has_run_since_it_woke(&mut rig, task, burst);
        rig.remembered(task, |tctx| tctx.prompt = prompt.into());
        let deadline = rig.call(rig.u.deadline, (rig.raw(task), rig.tctx(task)));
        // The first slice of a light task does not wait for longer than that of others.
        let first = by_weight(SLICE, if burst < SLICE as u64 { weight.max(100) } else { weight });
        let asks = match burst < HOG_NS.into() {
            true if prompt && burst < SLICE as u64 => first - LAG - i64::from(PROMPT_NS),
            true => first,
            false => by_weight(SLICE, weight) + LAG,
        };
        prop_assert_eq!(deadline.wrapping_sub(vclock) as i64, ahead + asks);
    }

    #[test]
    fn a_lead_of_less_than_a_slice_is_of_no_account(vclock in clock(), ahead in -LAG..2 * SLICE, burst in burst()) {
        let mut rig = Rig::new("1x1x2x1", &[]);
        let task = task_at(&mut rig, 0, vclock, ahead, 100);
        has_run_since_it_woke(&mut rig, task, burst);
        let deadline = rig.call(rig.u.deadline, (rig.raw(task), rig.tctx(task)));
        let in_line = rig.call(rig.u.line_deadline, (rig.raw(task), rig.tctx(task), rig.cctx(0)));
        let lead = if burst < HOG_NS.into() && (0..SLICE).contains(&ahead) { ahead } else { 0 };
        prop_assert_eq!(deadline.wrapping_sub(in_line) as i64, lead);
    }

    #[test]
    fn who_wakes_others_by_messages_goes_on(ago in 0..2 * SLICE as u64, wakes in 0..3u8, weight in weight(), told_to_go: bool) {
        let mut rig = Rig::new("1x1x2x1", &[]);
        let task = task_at(&mut rig, 0, 1 << 40, 0, weight);
        let now = rig.kernel.now + (1 << 30);
        rig.cpu(0, |cctx| {
            cctx.curr_weight = if told_to_go { 0 } else { 100 };
            cctx.sync_wakes = wakes;
            cctx.sync_woke_at = now - ago;
        });
        let lead = rig.call(rig.u.producer_lead, (rig.raw(task), rig.tctx(task), rig.cctx(0).cast_const(), now));
        let produces = wakes > 0 && ago < SLICE as u64 && !told_to_go;
        prop_assert_eq!(lead as i64, if produces { by_weight(PRODUCER_NS.into(), weight) } else { 0 });
    }

    #[test]
    fn who_waited_for_a_timer_or_a_device_is_prompt(
        ttwu: bool, sync: bool, uninterruptible: bool, in_iowait: bool,
        policy in prop::sample::select(&[SCHED_NORMAL, SCHED_BATCH, SCHED_IDLE]),
    ) {
        let mut rig = Rig::new("1x1x1x1", &[]);
        let task = rig.task();
        let raw = rig.kernel.tasks[task].raw_mut();
        (raw.sched_contributes_to_load, raw.in_iowait, raw.policy) = (uninterruptible, in_iowait, policy);
        let flags = if ttwu { SCX_WAKE_TTWU } else { SCX_WAKE_FORK } | if sync { SCX_WAKE_SYNC } else { 0 };
        let prompt = rig.call(rig.u.wakes_promptly, (rig.raw(task), rig.tctx(task), flags));
        let for_a_lock = uninterruptible && !in_iowait;
        prop_assert_eq!(prompt, ttwu && !sync && !for_a_lock && policy == SCHED_NORMAL);
    }

    #[test]
    fn who_is_prompt_is_so_for_a_slice_and_fresh_until_it_runs(prompt: bool, burst in burst()) {
        let mut rig = Rig::new("1x1x2x1", &[]);
        let task = task_at(&mut rig, 0, 0, 0, 100);
        has_run_since_it_woke(&mut rig, task, burst);
        rig.remembered(task, |tctx| (tctx.prompt, tctx.fresh) = (prompt.into(), prompt.into()));
        rig.call(rig.u.note_running, (rig.raw(task), rig.tctx(task), rig.cctx(0)));
        prop_assert_eq!(rig.cpu(0, |cctx| cctx.curr_prompt != 0), prompt && burst < SLICE as u64);
        prop_assert_eq!(rig.remembered(task, |tctx| tctx.fresh), 0);
    }

    /// Nor who sends others something, or is to be woken otherwise.
    #[test]
    fn who_sends_or_sleeps_is_not_prompt_any_more(sends: bool, sleeps: bool) {
        let mut rig = Rig::new("1x1x2x1", &[]);
        let task = task_at(&mut rig, 0, 0, 0, 100);
        rig.run(task, 0);
        rig.remembered(task, |tctx| tctx.prompt = 1);
        if sends {
            rig.call(rig.u.note_producer, (rig.cctx(0),));
        }
        let raw = rig.raw(task);
        // SAFETY: as the kernel calls it.
        rig.kernel.call(Op::Stopping, Some(task), 0, |ops| unsafe { ops.stopping.unwrap()(raw, !sleeps) });
        prop_assert_eq!(rig.remembered(task, |tctx| tctx.prompt != 0), !sends && !sleeps);
    }

    #[test]
    fn who_sleeps_is_no_hog(burst in burst(), wakes: bool) {
        let mut rig = Rig::new("1x1x2x1", &[]);
        let task = task_at(&mut rig, 0, 0, 0, 100);
        has_run_since_it_woke(&mut rig, task, burst);
        rig.call(rig.u.place, (rig.raw(task), rig.tctx(task), 1, wakes));
        let was = burst >= HOG_NS.into();
        prop_assert_eq!(rig.call(rig.u.is_hog, (rig.raw(task), rig.tctx(task))), was && !wakes);
    }

    #[test]
    fn order_survives_the_wrap(a in any::<u64>(), by in 1..i64::MAX as u64) {
        let mut rig = Rig::new("1x1x1x1", &[]);
        prop_assert!(rig.call(rig.u.vtime_before, (a, a.wrapping_add(by))));
        prop_assert!(!rig.call(rig.u.vtime_before, (a.wrapping_add(by), a)));
        prop_assert!(!rig.call(rig.u.vtime_before, (a, a)));
    }

    #[test]
    fn to_another_cpu_the_distance_goes_along(from in clock(), to in clock(), ahead in -1i64 << 40..1 << 40) {
        let mut rig = Rig::new("1x1x2x1", &[]);
        let task = task_at(&mut rig, 0, from, ahead, 100);
        rig.cpu(1, |cctx| cctx.vclock = to);
        rig.call(rig.u.rebase, (rig.tctx(task), 1));
        prop_assert_eq!(distance(&mut rig, task), ahead);
        prop_assert_eq!(rig.remembered(task, |tctx| (tctx.home, tctx.recent)), (1, 0));
        // It is there now.
        rig.call(rig.u.rebase, (rig.tctx(task), 1));
        prop_assert_eq!(distance(&mut rig, task), ahead);
        prop_assert_eq!(rig.remembered(task, |tctx| (tctx.home, tctx.recent)), (1, 0));
    }

    #[test]
    fn what_a_waiting_task_is_owed_or_ahead_is_bounded(
        from in clock(), to in clock(), ahead in -1i64 << 40..1 << 40, weight in weight(), moves: bool, wakes: bool,
    ) {
        let mut rig = Rig::new("1x1x2x1", &[]);
        rig.cpu(1, |cctx| cctx.vclock = to);
        let task = task_at(&mut rig, 0, from, ahead, weight);
        rig.call(rig.u.place, (rig.raw(task), rig.tctx(task), moves.into(), wakes));
        let most = by_weight(SLICE + i64::from(OVERRUN_NS), weight);
        // Who did not sleep keeps what it is owed.
        let least = if wakes { 0 } else { i64::MIN };
        prop_assert_eq!(distance(&mut rig, task), ahead.clamp(least, most));
    }

    #[test]
    fn who_yields_is_a_slice_behind(vclock in clock(), ahead in -1i64 << 40..1 << 40, weight in weight()) {
        let mut rig = Rig::new("1x1x1x1", &[]);
        let task = task_at(&mut rig, 0, vclock, ahead, weight);
        rig.call(rig.u.fall_behind, (rig.raw(task), rig.tctx(task), rig.cctx(0)));
        prop_assert_eq!(distance(&mut rig, task), ahead.max(by_weight(SLICE, weight)));
    }

    #[test]
    fn the_clock_follows_what_runs_and_never_goes_back(vclock in clock(), ahead in -1i64 << 40..1 << 40) {
        let mut rig = Rig::new("1x1x1x1", &[]);
        let task = task_at(&mut rig, 0, vclock, ahead, 100);
        rig.call(rig.u.note_running, (rig.raw(task), rig.tctx(task), rig.cctx(0)));
        let moved = rig.cpu(0, |cctx| cctx.vclock.wrapping_sub(vclock));
        prop_assert_eq!(moved as i64, ahead.max(0));
    }
}

#[test]
fn a_new_task_starts_even() {
    let mut rig = Rig::new("1x1x2x1", &[]);
    rig.cpu(1, |cctx| cctx.vclock = 12_345);
    let task = rig.task();
    rig.call(rig.u.place, (rig.raw(task), rig.tctx(task), 1, true));
    assert_eq!(rig.remembered(task, |tctx| (tctx.vruntime, tctx.home, tctx.recent)), (12_345, 1, -1));
}

#[test]
fn wakers_see_who_runs() {
    let mut rig = Rig::new("1x1x1x1", &[]);
    let task = task_at(&mut rig, 0, 1000, 500, 200);
    rig.kernel.now = 77_000_000;
    for (policy, idle_policy, burst, hog) in [(SCHED_NORMAL, 0, HOG_NS - 1, 0), (SCHED_IDLE, 1, HOG_NS, 1)] {
        rig.kernel.tasks[task].raw_mut().policy = policy;
        has_run_since_it_woke(&mut rig, task, burst.into());
        rig.call(rig.u.note_running, (rig.raw(task), rig.tctx(task), rig.cctx(0)));
        let seen = rig.cpu(0, |c| (c.curr_started, c.curr_weight, c.curr_idle_policy, c.curr_hog, c.curr_critical));
        assert_eq!(seen, (77_000_000, 200 << WEIGHT_SHIFT, idle_policy, hog, 0));
        let deadline = rig.call(rig.u.deadline, (rig.raw(task), rig.tctx(task)));
        assert_eq!(rig.cpu(0, |c| c.curr_deadline), deadline);
    }
}

// SPDX-License-Identifier: GPL-2.0-only
//! `order/deadline.bpf.h`: time is charged by weight, a deadline holds until the request is used up, and what a task is
//! owed or ahead is kept and bounded.

use magpie_sim::cgroup::Spec;
use magpie_sim::dsq::TaskId;
use magpie_sim::native::{BURST_SHIFT, OVERRUN_NS, SCX_WAKE_SYNC, SCX_WAKE_TTWU, WEIGHT_SHIFT};
use magpie_sim::task::{LOADER_TGID, SCHED_BATCH, SCHED_IDLE, SCHED_NORMAL};
use magpie_sim::trace::Op;
use proptest::prelude::*;

use crate::rig::Rig;

const SLICE: i64 = 3_000_000;
/// The default of --slice-us-lag.
const CREDIT: i64 = 9_000_000;
/// What tasks have run before a test begins.
const RAN: u64 = 1 << 40;

/// Clocks anywhere, the wrap of 64 bits included.
fn clock() -> impl Strategy<Value = u64> {
    prop_oneof![any::<u64>(), 0..1_000_000_000u64, (u64::MAX - 1_000_000_000)..=u64::MAX]
}

fn weight() -> impl Strategy<Value = u32> {
    prop_oneof![Just(1), Just(100), Just(10_000), 1..=10_000u32]
}

fn burst() -> impl Strategy<Value = i64> {
    prop_oneof![Just(SLICE - 1), Just(SLICE), 0..2 * SLICE]
}

fn by_weight(ns: i64, weight: u32) -> i64 {
    ns * 100 / i64::from(weight)
}

/// A task on the clock of `cpu`, at this distance from it (negative: owed).
fn task_at(rig: &mut Rig, cpu: usize, vclock: u64, distance: i64, weight: u32) -> TaskId {
    let task = rig.task();
    rig.set_weight(task, weight);
    rig.cpu(cpu, |cctx| cctx.vclock = vclock);
    rig.remembered(task, |tctx| {
        tctx.vclock_cpu = cpu as i32;
        tctx.vruntime = vclock.wrapping_add_signed(distance);
    });
    task
}

/// The task has run for `burst` since it woke, and usually runs for `average`.
fn has_run(rig: &mut Rig, task: TaskId, burst: i64, average: i64) {
    rig.kernel.tasks[task].raw_mut().se.sum_exec_runtime = RAN;
    rig.remembered(task, |tctx| {
        (tctx.charged, tctx.woke_exec) = (RAN, RAN - burst as u64);
        tctx.burst_avg = average;
    });
}

/// The task runs for so long.
fn run_for(rig: &mut Rig, task: TaskId, ns: u64) {
    rig.kernel.tasks[task].raw_mut().se.sum_exec_runtime += ns;
    rig.call(rig.u.charge, (rig.raw(task), rig.tctx(task)));
}

fn request(rig: &mut Rig, task: TaskId) -> i64 {
    rig.call(rig.u.request, (rig.tctx(task).cast_const(),)) as i64
}

fn deadline(rig: &mut Rig, task: TaskId) -> u64 {
    rig.call(rig.u.deadline, (rig.raw(task), rig.tctx(task)))
}

fn note_wakeup(rig: &mut Rig, task: TaskId, flags: u64) {
    rig.call(rig.u.note_wakeup, (rig.raw(task), rig.tctx(task), flags));
}

/// How far the task is ahead of its clock.
fn distance(rig: &mut Rig, task: TaskId) -> i64 {
    let (cpu, vruntime) = rig.remembered(task, |tctx| (tctx.vclock_cpu, tctx.vruntime));
    vruntime.wrapping_sub(rig.cpu(cpu as usize, |cctx| cctx.vclock)) as i64
}

proptest! {
    #[test]
    fn a_charge_is_inverse_to_the_weight(start in clock(), ran in 0..1u64 << 44, weight in weight()) {
        let mut rig = Rig::new("1x1x2x1", &[]);
        let task = task_at(&mut rig, 0, start, 0, weight);
        for _ in 0..2 {
            run_for(&mut rig, task, ran);
            // Once only: it has not run since.
            run_for(&mut rig, task, 0);
        }
        let charged = rig.remembered(task, |tctx| tctx.vruntime.wrapping_sub(start));
        let exact = 2.0 * ran as f64 * 100.0 / f64::from(weight);
        prop_assert!((charged as f64 - exact).abs() <= 2.0 + exact * 1e-12, "{} for {}", charged, exact);
    }

    #[test]
    fn the_request_is_the_average_or_the_running_burst_if_longer_at_most_a_slice(burst in burst(), average in burst()) {
        let mut rig = Rig::new("1x1x1x1", &[]);
        let task = rig.task();
        has_run(&mut rig, task, burst, average);
        prop_assert_eq!(request(&mut rig, task), burst.max(average).min(SLICE));
    }

    #[test]
    fn a_quarter_of_each_burst_enters_the_average(burst in burst(), average in burst(), sleeps: bool) {
        let mut rig = Rig::new("1x1x1x1", &[]);
        let task = task_at(&mut rig, 0, 0, 0, 100);
        has_run(&mut rig, task, burst, average);
        rig.run(task, 0);
        let raw = rig.raw(task);
        // SAFETY: as the kernel calls it.
        rig.kernel.call(Op::Stopping, Some(task), 0, |ops| unsafe { ops.stopping.unwrap()(raw, !sleeps) });
        let enters = if sleeps { (burst - average) >> BURST_SHIFT } else { 0 };
        prop_assert_eq!(rig.remembered(task, |tctx| tctx.burst_avg), average + enters);
        prop_assert_eq!(BURST_SHIFT, 2);
    }

    #[test]
    fn the_deadline_is_the_rest_of_the_request_less_the_credit_by_weight(
        vruntime in clock(), weight in weight(), burst in burst(), left in 0..=SLICE, sync: bool,
        policy in prop::sample::select(&[SCHED_NORMAL, SCHED_BATCH, SCHED_IDLE]),
    ) {
        let mut rig = Rig::new("1x1x2x1", &[]);
        let task = task_at(&mut rig, 0, vruntime, 0, weight);
        rig.kernel.tasks[task].raw_mut().policy = policy;
        has_run(&mut rig, task, burst, SLICE);
        rig.remembered(task, |tctx| (tctx.request_end, tctx.sync_wakeup) = (RAN + left as u64, sync.into()));
        let credit = if !sync && burst < SLICE && policy == SCHED_NORMAL { CREDIT } else { 0 };
        let ahead = deadline(&mut rig, task).wrapping_sub(vruntime) as i64;
        prop_assert_eq!(ahead, by_weight(left - credit, weight));
    }

    /// Rounding aside. With a new request the deadline is later by what the task asks for then.
    #[test]
    fn the_deadline_holds_until_the_request_is_used_up(
        weight in weight(), average in 1..=SLICE, runs in prop::collection::vec(1..SLICE, 1..20)
    ) {
        let mut rig = Rig::new("1x1x1x1", &[]);
        let start = 1 << 50;
        let task = task_at(&mut rig, 0, start, 0, weight);
        has_run(&mut rig, task, SLICE, average);
        note_wakeup(&mut rig, task, SCX_WAKE_SYNC);
        let (mut ran, mut end) = (0, average);
        let rounding = runs.len() as u64 + 1;
        for run in runs {
            run_for(&mut rig, task, run as u64);
            ran += run;
            if ran >= end {
                end = ran + ran.max(average).min(SLICE);
            }
            let due = start + by_weight(end, weight) as u64;
            prop_assert!(deadline(&mut rig, task).abs_diff(due) <= rounding);
        }
    }

    #[test]
    fn a_wakeup_begins_a_burst_and_a_request(burst in burst(), average in burst(), left in 0..SLICE) {
        let mut rig = Rig::new("1x1x1x1", &[]);
        let task = rig.task();
        has_run(&mut rig, task, burst, average);
        rig.remembered(task, |tctx| tctx.request_end = RAN + left as u64);
        rig.kernel.tasks[task].raw_mut().se.sum_exec_runtime += 1000;
        note_wakeup(&mut rig, task, SCX_WAKE_TTWU);
        prop_assert_eq!(rig.call(rig.u.burst, (rig.tctx(task).cast_const(),)), 0);
        let end = rig.remembered(task, |tctx| tctx.request_end);
        prop_assert_eq!(end - (RAN + 1000), average.min(SLICE) as u64);
    }

    #[test]
    fn sync_is_a_message_or_a_kernel_lock(message: bool, uninterruptible: bool, in_iowait: bool) {
        let mut rig = Rig::new("1x1x1x1", &[]);
        let task = rig.task();
        let raw = rig.kernel.tasks[task].raw_mut();
        (raw.sched_contributes_to_load, raw.in_iowait) = (uninterruptible, in_iowait);
        note_wakeup(&mut rig, task, SCX_WAKE_TTWU | if message { SCX_WAKE_SYNC } else { 0 });
        let sync = rig.remembered(task, |tctx| tctx.sync_wakeup != 0);
        prop_assert_eq!(sync, message || (uninterruptible && !in_iowait));
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
        // The second time it is there already.
        for _ in 0..2 {
            rig.call(rig.u.rebase, (rig.tctx(task), 1));
            prop_assert_eq!(distance(&mut rig, task), ahead);
            prop_assert_eq!(rig.remembered(task, |tctx| (tctx.vclock_cpu, tctx.recent)), (1, 0));
        }
    }

    /// A task that did not sleep keeps what it is owed.
    #[test]
    fn what_a_waiting_task_is_owed_or_ahead_is_bounded(
        from in clock(), to in clock(), ahead in prop_oneof![-1i64 << 40..1 << 40, -SLICE..10 * SLICE], weight in weight(),
        moves: bool, wakes: bool,
    ) {
        let mut rig = Rig::new("1x1x2x1", &[]);
        rig.cpu(1, |cctx| cctx.vclock = to);
        let task = task_at(&mut rig, 0, from, ahead, weight);
        rig.call(rig.u.place, (rig.raw(task), rig.tctx(task), moves.into(), wakes));
        let (least, most) = if wakes { (0, 2 * SLICE) } else { (i64::MIN, SLICE + i64::from(OVERRUN_NS)) };
        prop_assert_eq!(distance(&mut rig, task), ahead.clamp(least, by_weight(most, weight)));
    }

    #[test]
    fn a_task_that_yields_is_a_slice_behind_without_credit(
        vclock in clock(), ahead in -1i64 << 40..1 << 40, weight in weight(), average in burst()
    ) {
        let mut rig = Rig::new("1x1x1x1", &[]);
        let task = task_at(&mut rig, 0, vclock, ahead, weight);
        has_run(&mut rig, task, 0, average);
        rig.call(rig.u.fall_behind, (rig.raw(task), rig.tctx(task), rig.cctx(0)));
        let behind = ahead.max(by_weight(SLICE, weight));
        prop_assert_eq!(distance(&mut rig, task), behind);
        let due = behind + by_weight(average.min(SLICE), weight);
        prop_assert_eq!(deadline(&mut rig, task).wrapping_sub(vclock) as i64, due);
    }

    /// Critical tasks take more than their share.
    #[test]
    fn the_clock_follows_what_runs_and_never_goes_back(
        vclock in clock(), ahead in -1i64 << 40..1 << 40, critical: bool
    ) {
        let mut rig = Rig::new("1x1x1x1", &[]);
        let task = task_at(&mut rig, 0, vclock, ahead, 100);
        if critical {
            rig.kernel.tasks[task].raw_mut().tgid = LOADER_TGID;
        }
        rig.run_noted(task, 0);
        let moved = rig.cpu(0, |cctx| cctx.vclock.wrapping_sub(vclock));
        prop_assert_eq!(moved as i64, if critical { 0 } else { ahead.max(0) });
    }
}

#[test]
fn a_new_task_starts_even_and_asks_for_a_slice() {
    let mut rig = Rig::new("1x1x2x1", &[]);
    rig.cpu(1, |cctx| cctx.vclock = 12_345);
    let task = rig.task();
    assert_eq!(request(&mut rig, task), SLICE);
    rig.call(rig.u.place, (rig.raw(task), rig.tctx(task), 1, true));
    assert_eq!(rig.remembered(task, |tctx| (tctx.vruntime, tctx.vclock_cpu, tctx.recent)), (12_345, 1, -1));
}

#[test]
fn the_credit_is_slice_us_lag() {
    for (flag, credit) in [("0", 0), ("1000", 1_000_000)] {
        let mut rig = Rig::new("1x1x1x1", &["--slice-us-lag", flag]);
        let task = task_at(&mut rig, 0, 1 << 40, 0, 100);
        note_wakeup(&mut rig, task, SCX_WAKE_TTWU);
        assert_eq!(deadline(&mut rig, task) as i64, (1 << 40) + SLICE - credit);
    }
}

#[test]
fn a_task_of_a_cpu_idle_group_has_no_credit() {
    for idle in [false, true] {
        let mut rig = Rig::new("1x1x1x1", &[]);
        let group = rig.kernel.make_cgroup(&Spec { parent: 0, weight: 100, idle });
        let task = task_at(&mut rig, 0, 1 << 50, 0, 100);
        rig.kernel.move_to_cgroup(task, group);
        let [timer, message] = [SCX_WAKE_TTWU, SCX_WAKE_SYNC].map(|flags| {
            note_wakeup(&mut rig, task, flags);
            deadline(&mut rig, task)
        });
        assert_eq!(timer < message, !idle, "{timer} {message}");
    }
}

/// The kernel calls select_cpu() only for tasks that may use several CPUs.
#[test]
fn a_wakeup_is_noted_in_select_cpu_or_enqueue() {
    for cpus in [0..2, 0..1] {
        let mut rig = Rig::new("1x1x2x1", &[]);
        rig.only_idle(&[]);
        let task = rig.task_on(cpus.clone());
        has_run(&mut rig, task, SLICE, SLICE / 2);
        rig.remembered(task, |tctx| tctx.sync_wakeup = 1);
        rig.kernel.wake(task, false);
        let noted = rig.remembered(task, |tctx| (tctx.woke_exec, tctx.request_end, tctx.sync_wakeup));
        assert_eq!(noted, (RAN, RAN + SLICE as u64 / 2, 0), "{cpus:?}");
    }
}

#[test]
fn enqueue_keeps_what_select_cpu_noted() {
    let mut rig = Rig::new("1x1x2x1", &[]);
    rig.only_idle(&[]);
    let task = rig.task();
    rig.kernel.wake(task, true);
    assert_eq!(rig.waiting(0), [task]);
    assert_eq!(rig.remembered(task, |tctx| tctx.sync_wakeup), 1);
}

#[test]
fn wakers_see_what_runs() {
    let mut rig = Rig::new("1x1x1x1", &[]);
    let task = task_at(&mut rig, 0, 1000, 500, 200);
    rig.kernel.now = 77_000_000;
    for (policy, idle_policy, sync) in [(SCHED_NORMAL, 0, 0), (SCHED_IDLE, 1, 1)] {
        rig.kernel.tasks[task].raw_mut().policy = policy;
        has_run(&mut rig, task, 0, SLICE / 3);
        rig.remembered(task, |tctx| tctx.sync_wakeup = sync);
        rig.run_noted(task, 0);
        let seen = rig.cpu(0, |c| (c.curr_started, c.curr_weight, c.curr_request as i64, c.curr_critical));
        assert_eq!(seen, (77_000_000, 200 << WEIGHT_SHIFT, SLICE / 3, 0));
        assert_eq!(rig.cpu(0, |c| (c.curr_idle_policy, c.curr_sync)), (idle_policy, sync));
        let due = deadline(&mut rig, task);
        assert_eq!(rig.cpu(0, |c| c.curr_deadline), due);
    }
}

/// The deadline and the request are those of now; a task that is told to make way stays so.
#[test]
fn a_tick_begins_no_slice() {
    let mut rig = Rig::new("1x1x1x1", &[]);
    let task = task_at(&mut rig, 0, 1 << 40, 0, 100);
    has_run(&mut rig, task, 0, SLICE / 3);
    rig.remembered(task, |tctx| (tctx.request_end, tctx.sync_wakeup) = (RAN + SLICE as u64 / 3, 1));
    rig.run_noted(task, 0);
    let started = rig.kernel.now;
    rig.kernel.now += 1_000_000;
    rig.cpu(0, |cctx| cctx.curr_weight = 0);
    run_for(&mut rig, task, SLICE as u64 / 2);
    rig.call(rig.u.note_current, (rig.raw(task), rig.tctx(task), rig.cctx(0)));
    let seen = rig.cpu(0, |c| (c.curr_started, c.curr_weight, c.curr_request as i64, c.curr_deadline as i64));
    assert_eq!(seen, (started, 0, SLICE / 2, (1 << 40) + SLICE));
}

// SPDX-License-Identifier: GPL-2.0-only
//! `order/deadline.bpf.h`: virtual time advances by service, the vruntime by weight; the request and the credit make the
//! deadline; lag is kept and bounded.

use magpie_sim::cgroup::Spec;
use magpie_sim::dsq::TaskId;
use magpie_sim::native::{
    Context, OVERRUN_NS, SCX_ENQ_WAKEUP, SCX_WAKE_FORK, SCX_WAKE_SYNC, SCX_WAKE_TTWU, SHORT_SHARE, WEIGHT_SHIFT,
};
use magpie_sim::task::{SCHED_BATCH, SCHED_IDLE, SCHED_NORMAL};
use proptest::prelude::*;

use crate::rig::{Rig, nice_weight};

const SLICE: i64 = 3_000_000;
/// A task that runs for less is short.
const SHORT: i64 = SLICE / SHORT_SHARE as i64;
/// The default of --slice-us-lag.
const CREDIT: i64 = 9_000_000;
/// What tasks have run before a test begins.
const RAN: u64 = 1 << 40;

/// Clocks anywhere, the wrap of 64 bits included.
fn clock() -> impl Strategy<Value = u64> {
    prop_oneof![any::<u64>(), 0..1_000_000_000u64, (u64::MAX - 1_000_000_000)..=u64::MAX]
}

fn burst() -> impl Strategy<Value = i64> {
    prop_oneof![Just(SHORT - 1), Just(SHORT), Just(SLICE - 1), Just(SLICE), 0..SHORT, 0..2 * SLICE]
}

/// What a task of this weight asks for, by weight, that has run for `burst` since it woke and is expected to run for `estimate`.
fn request(burst: i64, estimate: i64, weight: u32) -> i64 {
    let slice = by_weight(SLICE, weight);
    if burst.max(estimate) < SHORT { (slice - SLICE).max(0) / i64::from(SHORT_SHARE) } else { slice }
}

fn by_weight(ns: i64, weight: u32) -> i64 {
    ns * 1024 / i64::from(weight)
}

/// A task on the clock of `cpu`, at this distance from it (negative: owed).
fn task_at(rig: &mut Rig, cpu: usize, vtime: u64, distance: i64, weight: u32) -> TaskId {
    let task = rig.task();
    rig.set_weight(task, weight);
    rig.cpu(cpu, |cctx| cctx.vtime = vtime);
    rig.remembered(task, |tctx| {
        tctx.vtime_cpu = cpu as i32;
        tctx.vruntime = vtime.wrapping_add_signed(distance);
    });
    task
}

/// The task has run for `burst` since it woke, and is expected to run for `estimate`.
fn has_run(rig: &mut Rig, task: TaskId, burst: i64, estimate: i64) {
    rig.kernel.tasks[task].raw_mut().se.sum_exec_runtime = RAN;
    rig.remembered(task, |tctx| {
        (tctx.charged, tctx.woke_exec) = (RAN, RAN - burst as u64);
        tctx.burst_est = estimate as u64;
    });
}

/// The task runs for so long.
fn run_for(rig: &mut Rig, task: TaskId, ns: u64) {
    rig.kernel.tasks[task].raw_mut().se.sum_exec_runtime += ns;
    rig.call(rig.u.charge, (rig.raw(task), rig.tctx(task), rig.cctx(0)));
}

fn is_short(rig: &mut Rig, task: TaskId) -> bool {
    rig.call(rig.u.is_short, (rig.tctx(task).cast_const(),))
}

fn deadline(rig: &mut Rig, task: TaskId) -> u64 {
    let cpu = rig.remembered(task, |tctx| tctx.vtime_cpu.max(0));
    rig.set_deadline(task, cpu as usize)
}

fn begin_burst(rig: &mut Rig, task: TaskId, flags: u64) {
    rig.call(rig.u.begin_burst, (rig.raw(task), rig.tctx(task), flags));
}

/// How far the task is ahead of its clock.
fn distance(rig: &mut Rig, task: TaskId) -> i64 {
    let (cpu, vruntime) = rig.remembered(task, |tctx| (tctx.vtime_cpu, tctx.vruntime));
    vruntime.wrapping_sub(rig.cpu(cpu as usize, |cctx| cctx.vtime)) as i64
}

proptest! {
    #[test]
    fn a_charge_is_inverse_to_the_weight(start in clock(), ran in 0..1u64 << 44, weight in nice_weight()) {
        let mut rig = Rig::new("1x1x2x1", &[]);
        let task = task_at(&mut rig, 0, start, 0, weight);
        for _ in 0..2 {
            run_for(&mut rig, task, ran);
            // Once only: it has not run since.
            run_for(&mut rig, task, 0);
        }
        let charged = rig.remembered(task, |tctx| tctx.vruntime.wrapping_sub(start));
        let exact = 2.0 * ran as f64 * 1024.0 / f64::from(weight);
        prop_assert!((charged as f64 - exact).abs() <= 2.0 + exact * 1e-12, "{} for {}", charged, exact);
    }

    #[test]
    fn a_task_is_short_that_ran_and_runs_for_less_than_a_quarter_of_a_slice(burst in burst(), estimate in burst()) {
        let mut rig = Rig::new("1x1x1x1", &[]);
        let task = rig.task();
        has_run(&mut rig, task, burst, estimate);
        prop_assert_eq!(is_short(&mut rig, task), burst.max(estimate) < SLICE / 4);
    }

    #[test]
    fn the_estimate_rises_at_once_and_falls_by_a_quarter_at_each_sleep(
        burst in burst(), estimate in burst(), sleeps: bool
    ) {
        let mut rig = Rig::new("1x1x1x1", &[]);
        let task = task_at(&mut rig, 0, 0, 0, 1024);
        has_run(&mut rig, task, burst, estimate);
        rig.run(task, 0);
        rig.kernel.tasks[task].raw_mut().__state = sleeps.into();
        rig.stopping(task, !sleeps);
        let falls = if sleeps { (estimate - burst).max(0) / 4 } else { 0 };
        let rises = if sleeps { (burst - estimate).max(0) } else { 0 };
        prop_assert_eq!(rig.remembered(task, |tctx| tctx.burst_est) as i64, estimate - falls + rises);
    }

    #[test]
    fn the_deadline_is_the_request_less_the_credit_by_weight(
        vruntime in clock(), weight in nice_weight(), burst in burst(), estimate in burst(), sync: bool,
        policy in prop::sample::select(&[SCHED_NORMAL, SCHED_BATCH, SCHED_IDLE]),
    ) {
        let mut rig = Rig::new("1x1x2x1", &[]);
        let task = task_at(&mut rig, 0, vruntime, 0, weight);
        rig.kernel.tasks[task].raw_mut().policy = policy;
        has_run(&mut rig, task, burst, estimate);
        rig.remembered(task, |tctx| tctx.sync_wakeup = sync.into());
        let request = request(burst, estimate, weight);
        let credit = if !sync && burst < SLICE && policy == SCHED_NORMAL { CREDIT } else { 0 };
        let ahead = deadline(&mut rig, task).wrapping_sub(vruntime) as i64;
        prop_assert_eq!(ahead, request - by_weight(credit, weight.max(1024)));
    }

    /// It is divided again when one of them has changed.
    #[test]
    fn a_slice_is_kept_with_its_weight(weights in prop::collection::vec(nice_weight(), 1..6), us in 1000..20_000u64) {
        let mut rig = Rig::new("1x1x1x1", &["--slice-us", &us.to_string()]);
        let task = task_at(&mut rig, 0, 0, 0, 1024);
        rig.remembered(task, |tctx| tctx.burst_est = u64::MAX >> 1);
        for weight in weights {
            rig.set_weight(task, weight);
            prop_assert_eq!(deadline(&mut rig, task) as i64, by_weight(us as i64 * 1000, weight));
        }
    }

    #[test]
    fn a_wakeup_begins_a_burst(burst in burst(), estimate in burst()) {
        let mut rig = Rig::new("1x1x1x1", &[]);
        let task = rig.task();
        has_run(&mut rig, task, burst, estimate);
        rig.kernel.tasks[task].raw_mut().se.sum_exec_runtime += 1000;
        begin_burst(&mut rig, task, SCX_WAKE_TTWU);
        prop_assert_eq!(rig.call(rig.u.burst, (rig.tctx(task).cast_const(),)), 0);
        prop_assert_eq!(rig.remembered(task, |tctx| tctx.burst_est) as i64, estimate);
    }

    #[test]
    fn sync_is_a_message_a_kernel_lock_or_a_fork(fork: bool, message: bool, uninterruptible: bool, in_iowait: bool) {
        let mut rig = Rig::new("1x1x1x1", &[]);
        let task = rig.task();
        // A child starts with it, too.
        prop_assert_eq!(rig.remembered(task, |tctx| tctx.sync_wakeup), 1);
        let raw = rig.kernel.tasks[task].raw_mut();
        (raw.sched_contributes_to_load, raw.in_iowait) = (uninterruptible, in_iowait);
        let way = if fork { SCX_WAKE_FORK } else { SCX_WAKE_TTWU };
        begin_burst(&mut rig, task, way | if message { SCX_WAKE_SYNC } else { 0 });
        let sync = rig.remembered(task, |tctx| tctx.sync_wakeup != 0);
        prop_assert_eq!(sync, fork || message || (uninterruptible && !in_iowait));
    }

    #[test]
    fn to_another_cpu_the_distance_goes_along(from in clock(), to in clock(), ahead in -1i64 << 40..1 << 40) {
        let mut rig = Rig::new("1x1x2x1", &[]);
        let task = task_at(&mut rig, 0, from, ahead, 1024);
        rig.cpu(1, |cctx| cctx.vtime = to);
        // The second time it is there already.
        for _ in 0..2 {
            rig.call(rig.u.rebase, (rig.tctx(task), 1));
            prop_assert_eq!(distance(&mut rig, task), ahead);
            prop_assert_eq!(rig.remembered(task, |tctx| (tctx.vtime_cpu, tctx.recent)), (1, 0));
        }
    }

    /// A task that wakes has no lag.
    #[test]
    fn what_a_waiting_task_is_owed_or_ahead_is_bounded(
        from in clock(), to in clock(), ahead in prop_oneof![-1i64 << 40..1 << 40, -SLICE..10 * SLICE],
        weight in nice_weight(),
        moves: bool, wakes: bool,
    ) {
        let mut rig = Rig::new("1x1x2x1", &[]);
        rig.cpu(1, |cctx| cctx.vtime = to);
        let task = task_at(&mut rig, 0, from, ahead, weight);
        rig.call(rig.u.place, (rig.raw(task), rig.tctx(task), moves.into(), wakes));
        let most = by_weight(SLICE + i64::from(OVERRUN_NS), weight);
        prop_assert_eq!(distance(&mut rig, task), if wakes { 0 } else { ahead.min(most) });
    }

    /// Else each of its short runs would take less than it requests.
    #[test]
    fn a_short_task_lighter_than_nice_0_keeps_what_it_lacked_when_it_slept(
        vtime in clock(), slept_with in prop_oneof![-1i64 << 40..1 << 40, -SLICE..SLICE], weight in nice_weight(),
        estimate in burst(),
    ) {
        let mut rig = Rig::new("1x1x1x1", &[]);
        let task = task_at(&mut rig, 0, vtime, 0, weight);
        has_run(&mut rig, task, 0, estimate);
        rig.remembered(task, |tctx| tctx.lag = slept_with);
        rig.call(rig.u.place, (rig.raw(task), rig.tctx(task), 0, true));
        let kept = if estimate < SHORT { slept_with.clamp(0, request(0, estimate, weight)) } else { 0 };
        prop_assert_eq!(distance(&mut rig, task), -kept);
    }

    #[test]
    fn a_task_that_yields_is_a_slice_behind_without_credit(
        vtime in clock(), ahead in -1i64 << 40..1 << 40, weight in nice_weight(), estimate in burst()
    ) {
        let mut rig = Rig::new("1x1x1x1", &[]);
        let task = task_at(&mut rig, 0, vtime, ahead, weight);
        has_run(&mut rig, task, 0, estimate);
        rig.remembered(task, |tctx| tctx.sync_wakeup = 0);
        rig.call(rig.u.yield_turn, (rig.tctx(task), rig.cctx(0)));
        // Its negative lag counts.
        let behind = ahead.max(by_weight(SLICE, weight) + 1);
        prop_assert_eq!(distance(&mut rig, task), behind);
        let due = behind + request(0, estimate, weight);
        prop_assert_eq!(deadline(&mut rig, task).wrapping_sub(vtime) as i64, due);
    }

    /// The task that runs and the tasks that wait, in the queues or as the next one, share the time.
    #[test]
    fn virtual_time_advances_by_service(
        vtime in clock(), weight in nice_weight(), queued in 0..1000u64, next in 0..1000u64, ran in 0..1u64 << 30,
    ) {
        let mut rig = Rig::new("1x1x1x1", &[]);
        let task = task_at(&mut rig, 0, vtime, 0, weight);
        rig.cpu(0, |cctx| (cctx.queued_load, cctx.local_load) = (queued << WEIGHT_SHIFT, next << WEIGHT_SHIFT));
        run_for(&mut rig, task, ran);
        let advanced = rig.cpu(0, |cctx| cctx.vtime.wrapping_sub(vtime)) as f64;
        let exact = ran as f64 * 1024.0 / (queued + next + u64::from(weight)) as f64;
        prop_assert!((advanced - exact).abs() <= 1.0, "{advanced} for {exact}");
    }

    /// Before a task joins those that wait, by the time; the rest when current is charged, so that the sum is what it has run.
    #[test]
    fn virtual_time_advances_before_a_task_joins(before in 0..1u64 << 30, after in 0..1u64 << 30, early in 0..1u64 << 20) {
        let mut rig = Rig::new("1x1x1x1", &[]);
        let task = task_at(&mut rig, 0, 0, 0, 1024);
        rig.cpu(0, |cctx| (cctx.curr_weight, cctx.advanced_at) = (1024 << WEIGHT_SHIFT, 1000));
        // The clock has also counted an interrupt.
        rig.call(rig.u.advance_to, (rig.cctx(0), 1000 + before + early));
        prop_assert_eq!(rig.cpu(0, |cctx| cctx.vtime), before + early);
        rig.cpu(0, |cctx| cctx.queued_load = 1024 << WEIGHT_SHIFT);
        run_for(&mut rig, task, before + after);
        let left = after.saturating_sub(early);
        prop_assert_eq!(rig.cpu(0, |cctx| cctx.vtime), before + early + left / 2);
        // What was counted too much is not counted again.
        run_for(&mut rig, task, early.saturating_sub(after));
        prop_assert_eq!(rig.cpu(0, |cctx| cctx.vtime), before + early + left / 2);
    }

    /// It did not wait for its turn, so no task lacks what it took.
    #[test]
    fn virtual_time_stands_still_while_a_critical_task_runs(vtime in clock(), ran in 0..1u64 << 30, woken: bool) {
        let mut rig = Rig::new("1x1x1x1", &[]);
        let task = task_at(&mut rig, 0, vtime, 0, 1024);
        rig.cpu(0, |cctx| {
            (cctx.curr_weight, cctx.curr_critical, cctx.advanced_at) = (1024 << WEIGHT_SHIFT, 1, 1000);
            cctx.queued_load = 1024 << WEIGHT_SHIFT;
        });
        if woken {
            rig.call(rig.u.advance_to, (rig.cctx(0), 1000 + ran));
        }
        run_for(&mut rig, task, ran);
        prop_assert_eq!(rig.cpu(0, |cctx| cctx.vtime), vtime);
        prop_assert_eq!(distance(&mut rig, task), ran as i64);
    }

    #[test]
    fn a_task_alone_has_no_negative_lag(vtime in clock(), ahead in -1i64 << 40..1 << 40, others in 0..2u64) {
        let mut rig = Rig::new("1x1x1x1", &[]);
        let task = task_at(&mut rig, 0, vtime, ahead, 1024);
        rig.cpu(0, |cctx| cctx.queued_load = others << 10 << WEIGHT_SHIFT);
        run_for(&mut rig, task, 0);
        prop_assert_eq!(distance(&mut rig, task), if others > 0 { ahead } else { ahead.min(0) });
    }
}

/// Run a task, which a timer woke if `new`, alongside another one that waits.
fn alongside(rig: &mut Rig, new: bool, lag: i64, ran: i64) -> u64 {
    let task = task_at(rig, 0, 1 << 40, -lag, 1024);
    has_run(rig, task, 0, SLICE);
    rig.remembered(task, |tctx| tctx.sync_wakeup = (!new).into());
    rig.set_deadline(task, 0);
    let has_credit = rig.remembered(task, |tctx| tctx.has_credit);
    rig.cpu(0, |cctx| cctx.curr_has_credit = has_credit);
    run_for(rig, task, ran as u64);
    rig.cpu(0, |cctx| cctx.lent)
}

/// Tasks with credit pass others for a slice in all. Then no task has credit, until one that lacks service has run, or no task
/// waits.
#[test]
fn credit_is_lent_for_a_slice() {
    let mut rig = Rig::new("1x1x1x1", &[]);
    rig.cpu(0, |cctx| cctx.queued_load = 1024 << WEIGHT_SHIFT);
    assert_eq!(alongside(&mut rig, true, 0, SLICE - 1), SLICE as u64 - 1);
    assert_eq!(alongside(&mut rig, true, 0, SLICE), SLICE as u64);
    let wakee = task_at(&mut rig, 0, 1 << 40, 0, 1024);
    has_run(&mut rig, wakee, 0, SLICE);
    begin_burst(&mut rig, wakee, SCX_WAKE_TTWU);
    assert_eq!(deadline(&mut rig, wakee) as i64, (1 << 40) + SLICE);
    // A new task, with credit or without, and one that is ahead return nothing.
    assert_eq!(alongside(&mut rig, true, SLICE, 1000), SLICE as u64);
    assert_eq!(alongside(&mut rig, false, 0, 1000), SLICE as u64);
    assert_eq!(alongside(&mut rig, false, SLICE, 1000), SLICE as u64 - 1000);
    assert_eq!(deadline(&mut rig, wakee) as i64, (1 << 40) + SLICE - CREDIT);
    rig.cpu(0, |cctx| cctx.queued_load = 0);
    assert_eq!(alongside(&mut rig, false, 0, SLICE), 0);
}

#[test]
fn a_new_task_starts_even_and_is_not_short() {
    let mut rig = Rig::new("1x1x2x1", &[]);
    rig.cpu(1, |cctx| cctx.vtime = 12_345);
    let task = rig.task();
    assert!(!is_short(&mut rig, task));
    rig.call(rig.u.place, (rig.raw(task), rig.tctx(task), 1, true));
    assert_eq!(rig.remembered(task, |tctx| (tctx.vruntime, tctx.vtime_cpu, tctx.recent)), (12_345, 1, -1));
}

/// The kernel calls select_cpu() for a child that may use several CPUs, and enqueue() for either, not as for a wakeup.
#[test]
fn a_child_has_no_credit() {
    for cpus in [0..2, 0..1] {
        let mut rig = Rig::new("1x1x2x1", &[]);
        rig.only_idle(&[]);
        rig.cpu(0, |cctx| cctx.vtime = 1 << 40);
        let child = rig.task_on(cpus.clone());
        rig.kernel.wake_up_new(child);
        assert_eq!(rig.waiting(0), [child]);
        assert_eq!(deadline(&mut rig, child) as i64, (1 << 40) + SLICE, "{cpus:?}");
    }
}

/// A task that is runnable when the program is loaded has run before, and neither wakes nor is charged for that.
#[test]
fn a_task_that_runs_at_attach_is_not_charged_for_its_past() {
    let mut rig = Rig::new("1x1x2x1", &[]);
    let task = rig.task();
    rig.kernel.tasks[task].raw_mut().se.sum_exec_runtime = RAN;
    rig.kernel.attach().unwrap();
    rig.only_idle(&[]);
    rig.cpu(0, |cctx| cctx.vtime = 1 << 50);
    rig.kernel.activate(task, 0, 0);
    assert_eq!(rig.call(rig.u.burst, (rig.tctx(task).cast_const(),)), 0);
    run_for(&mut rig, task, 1000);
    assert_eq!((distance(&mut rig, task), deadline(&mut rig, task) as i64), (500, (1 << 50) + 1000 + SLICE));
}

/// Of what a short task with credit was ahead when it slept, virtual time makes up a sixteenth of the time that passes; of what a
/// long or a sync one was, nothing, and nothing remains if no task waited.
#[test]
fn virtual_time_makes_up_for_short_tasks() {
    const UNIT: u64 = 1024 << WEIGHT_SHIFT;
    for (sync, estimate, waiting, ahead) in [(0, 0, UNIT, 640), (1, 0, UNIT, 0), (0, SLICE, UNIT, 0), (0, 0, 0, 0)] {
        let mut rig = Rig::new("1x1x1x1", &[]);
        let short = task_at(&mut rig, 0, 1 << 50, 640, 1024);
        has_run(&mut rig, short, 0, estimate);
        rig.remembered(short, |tctx| tctx.sync_wakeup = sync);
        rig.cpu(0, |cctx| cctx.queued_load = waiting);
        rig.call(rig.u.end_burst, (rig.tctx(short), rig.cctx(0)));
        assert_eq!(rig.cpu(0, |cctx| cctx.ahead), ahead);

        let task = task_at(&mut rig, 0, 1 << 50, 0, 1024);
        has_run(&mut rig, task, 0, SLICE);
        rig.cpu(0, |cctx| cctx.queued_load = UNIT);
        let mut passes = |ns| {
            let before = rig.cpu(0, |cctx| cctx.vtime);
            run_for(&mut rig, task, ns);
            rig.cpu(0, |cctx| cctx.vtime) - before
        };
        let forgiven = u64::from(ahead > 0) * 20;
        assert_eq!(
            [passes(320), passes(320 * 31), passes(320)],
            [160 - forgiven / 2, 160 * 31 - 31 * forgiven / 2, 160]
        );
        // Alone it owes nothing.
        rig.cpu(0, |cctx| (cctx.queued_load, cctx.ahead) = (0, 1));
        run_for(&mut rig, task, 1);
        assert_eq!(rig.cpu(0, |cctx| cctx.ahead), 0);
    }
}

#[test]
fn one_long_burst_is_remembered_for_some_sleeps() {
    let mut rig = Rig::new("1x1x1x1", &[]);
    let task = rig.task();
    for (estimate, sleeps) in [(0, 0), (SHORT - 1, 0), (SHORT, 1), (SLICE, 5)] {
        has_run(&mut rig, task, 0, estimate);
        let nr = (0..).take_while(|_| {
            let long = !is_short(&mut rig, task);
            rig.call(rig.u.end_burst, (rig.tctx(task), rig.cctx(0)));
            long
        });
        assert_eq!(nr.count(), sleeps, "{estimate}");
    }
}

/// At a quarter of a slice it is short no more, and after a slice its credit is gone.
#[test]
fn a_task_that_runs_on_comes_later() {
    for (ran, request) in
        [(0, -CREDIT), (SHORT - 1, -CREDIT), (SHORT, SLICE - CREDIT), (SLICE - 1, SLICE - CREDIT), (SLICE, SLICE)]
    {
        let mut rig = Rig::new("1x1x1x1", &[]);
        let task = task_at(&mut rig, 0, 1 << 40, 0, 1024);
        has_run(&mut rig, task, 0, 0);
        begin_burst(&mut rig, task, SCX_WAKE_TTWU);
        run_for(&mut rig, task, ran as u64);
        assert_eq!(deadline(&mut rig, task) as i64 - (1 << 40), ran + request, "after {ran} ns");
    }
}

#[test]
fn tasks_of_a_kind_wait_in_the_order_in_which_they_came() {
    let mut rig = Rig::new("1x1x2x1", &[]);
    rig.only_idle(&[]);
    let tasks = [2 * SLICE, SLICE - 1, 1, -SLICE, 0].map(|ahead| task_at(&mut rig, 0, 1 << 40, ahead, 1024));
    for task in tasks {
        rig.kernel.activate(task, 0, SCX_ENQ_WAKEUP);
    }
    assert_eq!(rig.waiting(0), tasks);
}

/// Its CPU had not finished to switch away from it: the kernel queues it there (SCX_OPS_ALLOW_QUEUED_WAKEUP). Or it may use one
/// CPU only. It is sent something by current, which has to leave for it to run; an interrupt has no waker.
#[test]
fn a_wakeup_that_select_cpu_has_not_seen_is_noted() {
    for (context, sync) in
        [(Context::Syscall, 1), (Context::SoftInSyscall, 1), (Context::HardInterrupt, 0), (Context::SoftInterrupt, 0)]
    {
        for cpus in [0..2, 0..1] {
            let mut rig = Rig::new("1x1x2x1", &[]);
            rig.only_idle(&[]);
            let task = rig.task_on(cpus);
            rig.remembered(task, |tctx| tctx.sync_wakeup = 1 - sync);
            rig.kernel.tasks[task].raw_mut().se.sum_exec_runtime = 5;
            rig.kernel.native.context(context);
            rig.kernel.activate(task, 0, SCX_ENQ_WAKEUP);
            rig.kernel.native.context(Context::Syscall);
            assert_eq!(rig.remembered(task, |tctx| (tctx.woke_exec, tctx.sync_wakeup)), (5, sync), "{context:?}");
        }
    }
}

#[test]
fn the_credit_is_slice_us_lag() {
    for (flag, credit) in [("0", 0), ("1000", 1_000_000)] {
        let mut rig = Rig::new("1x1x1x1", &["--slice-us-lag", flag]);
        let task = task_at(&mut rig, 0, 1 << 40, 0, 1024);
        begin_burst(&mut rig, task, SCX_WAKE_TTWU);
        assert_eq!(deadline(&mut rig, task) as i64, (1 << 40) + SLICE - credit);
    }
}

#[test]
fn a_task_of_a_cpu_idle_group_has_no_credit() {
    for idle in [false, true] {
        let mut rig = Rig::new("1x1x1x1", &[]);
        let group = rig.kernel.make_cgroup(&Spec { idle, ..Spec::default() });
        let task = task_at(&mut rig, 0, 1 << 50, 0, 1024);
        rig.kernel.move_to_cgroup(task, group);
        rig.call(rig.u.group_enter, (rig.raw(task), rig.tctx(task)));
        let [timer, message] = [SCX_WAKE_TTWU, SCX_WAKE_SYNC].map(|flags| {
            begin_burst(&mut rig, task, flags);
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
        rig.kernel.wake_from(Context::HardInterrupt, task, false);
        assert_eq!(rig.remembered(task, |tctx| (tctx.woke_exec, tctx.sync_wakeup)), (RAN, 0), "{cpus:?}");
    }
}

#[test]
fn enqueue_keeps_what_select_cpu_noted() {
    let mut rig = Rig::new("1x1x2x1", &[]);
    rig.only_idle(&[]);
    let task = rig.task();
    rig.remembered(task, |tctx| tctx.sync_wakeup = 0);
    rig.kernel.wake(task, true);
    assert_eq!(rig.waiting(0), [task]);
    assert_eq!(rig.remembered(task, |tctx| tctx.sync_wakeup), 1);
}

#[test]
fn wakers_see_what_runs() {
    let mut rig = Rig::new("1x1x1x1", &[]);
    let task = task_at(&mut rig, 0, 1000, 500, 1991);
    rig.kernel.now = 77_000_000;
    for (policy, idle_policy, burst, estimate) in [(SCHED_NORMAL, 0, 0, SHORT - 1), (SCHED_IDLE, 1, SLICE, SHORT)] {
        rig.kernel.tasks[task].raw_mut().policy = policy;
        has_run(&mut rig, task, burst, estimate);
        rig.run_noted(task, 0);
        let seen = rig.cpu(0, |c| (c.curr_started, c.curr_left, c.curr_weight, c.curr_idle_policy, c.curr_critical));
        assert_eq!(seen, (77_000_000, estimate - burst, 1991 << WEIGHT_SHIFT, idle_policy, 0));
        let due = deadline(&mut rig, task);
        assert_eq!(rig.cpu(0, |c| (c.curr_deadline, c.curr_requeued)), (due, due + SLICE as u64 * 1024 / 1991));
    }
}

/// What it asks for is that of now. A task that is told to make way stays so.
#[test]
fn a_tick_begins_no_slice() {
    let mut rig = Rig::new("1x1x1x1", &[]);
    let task = task_at(&mut rig, 0, 1 << 40, 0, 1024);
    has_run(&mut rig, task, 0, 0);
    rig.remembered(task, |tctx| tctx.sync_wakeup = 1);
    rig.run_noted(task, 0);
    let started = rig.kernel.now;
    rig.kernel.now += 1_000_000;
    rig.cpu(0, |cctx| cctx.curr_weight = 0);
    rig.kernel.tasks[task].raw_mut().se.sum_exec_runtime += SHORT as u64;
    rig.tick(task);
    let seen = rig.cpu(0, |c| (c.curr_started, c.curr_weight, c.curr_deadline as i64, c.vtime));
    assert_eq!(seen, (started, 0, (1 << 40) + SHORT + SLICE, (1 << 40) + SHORT as u64));
}

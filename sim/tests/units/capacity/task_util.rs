// SPDX-License-Identifier: GPL-2.0-only
//! `capacity/task_util.bpf.h`: how much of a CPU a task uses, and what is left of a CPU.

use magpie_sim::dsq::TaskId;
use magpie_sim::native::*;
use scx_magpie::bpf_intf::*;

use crate::rig::Rig;

const MSEC: u64 = 1_000_000;
/// 32 periods: in which utilization halves.
const HALF_LIFE: u64 = 32 * 1024 * 1024;
/// CPUs 0 to 3 are strong, 4 to 7 weak.
const MACHINE: &str = "1x1x8x1:1024*4,430*4";
const STRONG: usize = 0;
const WEAK: usize = 4;

fn rig() -> Rig {
    let mut rig = Rig::new(MACHINE, &[]);
    rig.kernel.now = 1000 * MSEC;
    rig
}

/// Runs on the CPU for that long, then sleeps or is queued.
fn runs(rig: &mut Rig, task: TaskId, cpu: usize, ns: u64, sleeps: bool) {
    rig.call(rig.u.util_starts, (rig.raw(task).cast_const(), rig.tctx(task), cpu as i32, rig.cctx(cpu)));
    rig.kernel.now += ns;
    rig.call(rig.u.util_stops, (rig.raw(task).cast_const(), rig.tctx(task), cpu as i32, rig.cctx(cpu), sleeps));
}

fn sleeps(rig: &mut Rig, task: TaskId, ns: u64) {
    rig.kernel.now += ns;
    rig.call(rig.u.decay_task_util, (rig.raw(task).cast_const(), rig.tctx(task), STRONG as i32, rig.kernel.now));
}

fn close(a: u32, b: u32) -> bool {
    a.abs_diff(b) <= 24
}

#[test]
fn new_tasks_start_at_half_of_what_is_spare() {
    for (cpu, used, util) in [(STRONG, 0, 512), (STRONG, 400, 312), (WEAK, 0, 215), (WEAK, 430, 0), (WEAK, 700, 0)] {
        let mut rig = rig();
        let (task, now) = (rig.task(), rig.kernel.now);
        rig.cpu(cpu, |cctx| (cctx.pelt.updated_at, cctx.pelt.util_avg, cctx.pelt.running) = (now, used, 0));
        rig.call(rig.u.decay_task_util, (rig.raw(task).cast_const(), rig.tctx(task), cpu as i32, rig.kernel.now));
        let (avg, task_util) = rig.remembered(task, |tctx| (tctx.util.util_avg, tctx.task_util));
        assert_eq!((avg, task_util), (util, util), "CPU {cpu}, used {used}");
        // And it goes on from there.
        sleeps(&mut rig, task, HALF_LIFE);
        let avg = rig.remembered(task, |tctx| tctx.util.util_avg);
        assert!(close(avg, util / 2), "{avg} of {util}");
    }
}

/// On a weak CPU it does less.
#[test]
fn it_rises_while_the_task_runs_and_halves_while_it_does_not() {
    for (cpu, capacity) in [(STRONG, 1024), (WEAK, 430)] {
        let mut rig = rig();
        let task = rig.task();
        runs(&mut rig, task, cpu, 20 * HALF_LIFE, false);
        let avg = |rig: &mut Rig| rig.remembered(task, |tctx| tctx.util.util_avg);
        assert!(close(avg(&mut rig), capacity), "{}", avg(&mut rig));
        sleeps(&mut rig, task, HALF_LIFE);
        assert!(close(avg(&mut rig), capacity / 2));
        sleeps(&mut rig, task, 3 * HALF_LIFE);
        assert!(close(avg(&mut rig), capacity / 16));
    }
}

/// What it is expected to use when it wakes rises to a peak at once and falls slowly. Being queued is no sleep.
#[test]
fn peaks_are_remembered() {
    let mut rig = rig();
    let task = rig.task();
    runs(&mut rig, task, STRONG, 20 * HALF_LIFE, true);
    sleeps(&mut rig, task, 10 * HALF_LIFE);
    let seen = |rig: &mut Rig| rig.remembered(task, |tctx| (tctx.util.util_avg, tctx.util_est, tctx.task_util));
    let (avg, est, util) = seen(&mut rig);
    assert!(avg < 8 && close(est, 1024) && util == est, "{avg} {est} {util}");
    let mut last = est;
    for _ in 0..3 {
        runs(&mut rig, task, STRONG, MSEC / 10, true);
        sleeps(&mut rig, task, 20 * HALF_LIFE);
        let (_, est, _) = seen(&mut rig);
        assert!(close(est, last * 3 / 4), "{est} after {last}");
        last = est;
    }
    runs(&mut rig, task, STRONG, MSEC / 10, false);
    assert_eq!(seen(&mut rig).1, last);
}

#[test]
fn uclamp_bounds_it() {
    for (util, min, max, clamped) in
        [(500, 0, 1024, 500), (500, 0, 200, 200), (100, 700, 1024, 700), (100, 300, 200, 200), (0, 0, 0, 0)]
    {
        let mut rig = rig();
        let task = rig.task();
        let raw = rig.kernel.tasks[task].raw_mut();
        raw.uclamp[uclamp_id_UCLAMP_MIN as usize].value = min;
        raw.uclamp[uclamp_id_UCLAMP_MAX as usize].value = max;
        rig.remembered(task, |tctx| tctx.util.util_avg = util);
        rig.call(rig.u.update_task_util, (rig.raw(task).cast_const(), rig.tctx(task)));
        assert_eq!(rig.remembered(task, |tctx| tctx.task_util), clamped, "{util} in {min}..{max}");
    }
}

#[test]
fn spare_capacity_is_without_what_the_task_has_left_there() {
    for (vtime_cpu, util, spare) in
        [(STRONG as i32, 300, 1024 - 400), (STRONG as i32, 900, 1024), (1, 300, 1024 - 700), (-1, 0, 324)]
    {
        let mut rig = rig();
        let (task, now) = (rig.task(), rig.kernel.now);
        rig.cpu(STRONG, |cctx| (cctx.pelt.updated_at, cctx.pelt.util_avg, cctx.pelt.running) = (now, 700, 0));
        rig.remembered(task, |tctx| (tctx.vtime_cpu, tctx.util.util_avg) = (vtime_cpu, util));
        let seen = rig.call(rig.u.spare_capacity, (STRONG as i32, rig.tctx(task).cast_const()));
        assert!(seen.abs_diff(spare) <= 1, "{seen}, not {spare}: {vtime_cpu} {util}");
    }
}

#[test]
fn time_in_which_a_task_is_too_big_for_its_cpu_is_counted() {
    for (cpu, est, misfits, ms) in [(WEAK, 800, 1, 5), (WEAK, 100, 0, 0), (STRONG, 1000, 0, 0)] {
        let mut rig = rig();
        let task = rig.task();
        sleeps(&mut rig, task, 0);
        sleeps(&mut rig, task, 50 * HALF_LIFE);
        rig.remembered(task, |tctx| tctx.util_est = est);
        rig.kernel.cpu = cpu;
        runs(&mut rig, task, cpu, 5 * MSEC, true);
        assert_eq!(rig.stat(magpie_stat_STAT_MISFIT), misfits, "{cpu} {est}");
        assert_eq!((rig.stat(magpie_stat_STAT_MISFIT_NS) + MSEC / 100) / MSEC, ms);
        assert_eq!(rig.cpu(cpu, |cctx| (cctx.misfit, cctx.curr_util)), (0, 0));
    }
}

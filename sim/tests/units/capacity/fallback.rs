// SPDX-License-Identifier: GPL-2.0-only
//! `capacity/fit.bpf.h`: where big tasks go, and in which lines tasks wait where CPUs differ in capacity.

use magpie_sim::dsq::TaskId;
use magpie_sim::native::MISFIT_WAIT_NS;
use scx_magpie::bpf_intf::*;

use crate::rig::Rig;

/// An LLC of two big CPUs and two little ones (0, 1; 2, 3), and another (4, 5; 6, 7).
const MACHINE: &str = "1x2x4x1:1024*2,430*2";

fn sized(rig: &mut Rig, util: u32) -> TaskId {
    let task = rig.task();
    rig.remembered(task, |tctx| tctx.task_util = util);
    task
}

#[test]
fn big_tasks_look_for_big_cpus_wherever_they_are() {
    use magpie_stat_STAT_BEYOND as BEYOND;
    use magpie_stat_STAT_PREV as PREV;
    use magpie_stat_STAT_RECENT as RECENT;
    use magpie_stat_STAT_SCAN as SCAN;
    use magpie_stat_STAT_TARGET as TARGET;
    for (prev, target, recent, idle, found, stat) in [
        (0, 0, -1, &[0, 1, 2][..], 0, TARGET),
        (1, 0, -1, &[1, 2], 1, PREV),
        (2, 3, 1, &[1, 2, 3], 1, RECENT),
        // Its candidates are idle, and too weak.
        (2, 3, -1, &[0, 2, 3], 0, SCAN),
        (2, 3, 2, &[2, 3, 5], 5, BEYOND),
        (2, 2, -1, &[4, 6, 7], 4, BEYOND),
        // None that is strong enough: one is better than none.
        (2, 2, -1, &[3], 3, SCAN),
        (2, 2, -1, &[7], 7, BEYOND),
        (2, 2, -1, &[], -1, magpie_stat_STAT_FAILED),
    ] {
        let mut rig = Rig::new(MACHINE, &[]);
        let task = sized(&mut rig, 600);
        rig.remembered(task, |tctx| tctx.recent = recent);
        rig.only_idle(idle);
        let cpu = rig.call(rig.u.find_idle, (rig.raw(task), rig.tctx(task).cast_const(), prev, target));
        assert_eq!(cpu, found, "{prev} {target} {recent} {idle:?}");
        assert_eq!(rig.stat(stat), 1, "{prev} {target} {recent} {idle:?}");
        assert_eq!(rig.idle().len(), idle.len() - usize::from(found >= 0));
    }
}

/// However busy the LLC is said to be.
#[test]
fn their_search_is_not_bounded() {
    for (util, found) in [(600, 1), (100, -1)] {
        let mut rig = Rig::new(MACHINE, &["--small-llc-boost", "off"]);
        let task = sized(&mut rig, util);
        rig.only_idle(&[1]);
        for llc in 0..2 {
            let published = rig.call(rig.u.llc_published, (llc,));
            // SAFETY: the program does not run.
            unsafe { (*published).nr_scan = 0 };
        }
        assert_eq!(rig.call(rig.u.find_idle, (rig.raw(task), rig.tctx(task).cast_const(), 3, 3)), found, "{util}");
    }
}

/// Among those that are too weak.
#[test]
fn the_largest_spare_capacity_wins() {
    let mut rig = Rig::new("1x1x4x1:1024,620,250,250", &[]);
    let task = sized(&mut rig, 600);
    let now = rig.kernel.now;
    for (cpu, util) in [(1, 500), (2, 100), (3, 200)] {
        rig.cpu(cpu, |cctx| (cctx.pelt.updated_at, cctx.pelt.util_avg, cctx.pelt.running) = (now, util, 0));
    }
    for (idle, found) in [(&[1, 2, 3][..], 2), (&[1, 3], 1), (&[3], 3), (&[0, 2], 0)] {
        rig.only_idle(idle);
        assert_eq!(rig.call(rig.u.find_idle, (rig.raw(task), rig.tctx(task).cast_const(), 3, 3)), found, "{idle:?}");
    }
    // What it has left there itself is not in its way.
    rig.remembered(task, |tctx| (tctx.home, tctx.util.util_avg) = (1, 400));
    rig.only_idle(&[1, 2, 3]);
    assert_eq!(rig.call(rig.u.find_idle, (rig.raw(task), rig.tctx(task).cast_const(), 3, 3)), 1);
}

#[test]
fn whole_idle_cores_come_first() {
    let mut rig = Rig::new("1x1x3x2:1024,1024,430", &[]);
    let task = sized(&mut rig, 600);
    for (idle, found) in [(&[1, 2, 3, 4, 5][..], 2), (&[1, 4, 5], 1), (&[0, 3], 0)] {
        rig.only_idle(idle);
        assert_eq!(rig.call(rig.u.find_idle, (rig.raw(task), rig.tctx(task).cast_const(), 5, 5)), found, "{idle:?}");
    }
}

#[test]
fn they_may_be_confined() {
    let mut rig = Rig::new(MACHINE, &[]);
    let task = rig.task_on([1, 2, 3]);
    rig.remembered(task, |tctx| tctx.task_util = 600);
    for (idle, found) in [(&[0, 1, 2][..], 1), (&[0, 2, 4], 2), (&[0, 4], -1)] {
        rig.only_idle(idle);
        assert_eq!(rig.call(rig.u.find_idle, (rig.raw(task), rig.tctx(task).cast_const(), 3, 3)), found, "{idle:?}");
    }
}

/// A waiting task is offered to a CPU that is strong enough, if one is idle.
#[test]
fn thieves_are_strong() {
    for (util, idle, thief) in [(600, &[2, 3, 5][..], 5), (600, &[2], 2), (100, &[2, 5], 2)] {
        let mut rig = Rig::new(MACHINE, &[]);
        let task = sized(&mut rig, util);
        rig.only_idle(idle);
        assert_eq!(rig.call(rig.u.find_idle_for_queued, (rig.raw(task), 1)), thief, "{util} {idle:?}");
    }
}

/// (task's util, previous CPU, target, util of who runs there) -> where it waits. CPUs of the other kind are those whose
/// turn it is, and the less loaded of two.
#[test]
fn tasks_wait_with_their_kind() {
    for (util, prev, target, curr, line) in [
        (100, 2, 3, 100, 3),
        // Who runs there could as well run elsewhere.
        (100, 0, 0, 100, 0),
        (100, 2, 0, 900, 2),
        (100, 1, 0, 900, 3),
        (900, 0, 0, 900, 0),
        (900, 1, 2, 100, 1),
        (900, 3, 2, 100, 1),
    ] {
        let mut rig = Rig::new(MACHINE, &[]);
        let task = sized(&mut rig, util);
        rig.cpu(target as usize, |cctx| cctx.curr_util = curr);
        for cpu in 0..8 {
            rig.cpu(cpu, |cctx| cctx.curr_weight = if [1, 3].contains(&cpu) { 100 } else { 200 });
        }
        rig.kernel.cpu = 7;
        assert_eq!(rig.call(rig.u.fallback_cpu, (rig.raw(task), prev, target)), line, "{util} {prev} {target} {curr}");
    }
}

#[test]
fn nobody_waits_where_it_may_not_run() {
    let mut rig = Rig::new(MACHINE, &[]);
    let task = rig.task_on([0, 1]);
    rig.cpu(0, |cctx| cctx.curr_util = 900);
    assert_eq!(rig.call(rig.u.fallback_cpu, (rig.raw(task), 2, 0)), 0);
}

/// Weak CPUs leave big tasks to the strong ones for half a millisecond, and no longer; small ones they take at once.
#[test]
fn weak_cpus_are_slow_to_take_big_tasks() {
    for (util, thief, wait_time, taken) in [
        (600, 2, 0, false),
        (600, 2, MISFIT_WAIT_NS - 1, false),
        (600, 2, MISFIT_WAIT_NS, true),
        (600, 1, 0, true),
        (100, 2, 0, true),
    ] {
        let mut rig = Rig::new(MACHINE, &[]);
        rig.kernel.now = 1_000_000_000;
        rig.only_idle(&[]);
        let task = sized(&mut rig, util);
        rig.queue(task, 0, 1);
        rig.kernel.now += u64::from(wait_time);
        rig.kernel.cpu = thief;
        assert_eq!(rig.call(rig.u.steal, (thief as i32,)), taken, "{util} {thief} {wait_time}");
        assert_eq!(rig.stat(magpie_stat_STAT_STEAL_HOT), u64::from(!taken));
    }
}

/// A small one behind it is taken meanwhile.
#[test]
fn small_tasks_pass_big_ones() {
    let mut rig = Rig::new(MACHINE, &[]);
    rig.kernel.now = 1_000_000_000;
    rig.only_idle(&[]);
    let (big, small) = (sized(&mut rig, 600), sized(&mut rig, 100));
    rig.queue(big, 0, 1);
    rig.queue(small, 0, 2);
    rig.kernel.cpu = 2;
    assert!(rig.call(rig.u.steal, (2,)));
    assert_eq!(rig.local(2), [small]);
}

// SPDX-License-Identifier: GPL-2.0-only
//! `capacity/fallback.bpf.h`: where a task waits if no CPU is idle for it, and how long weak CPUs leave it to strong ones.

use magpie_sim::dsq::TaskId;

use crate::rig::Rig;

const WAIT: u64 = 500_000;
/// An LLC of two strong CPUs and two weak ones (0, 1; 2, 3), and another (4, 5; 6, 7).
const MACHINE: &str = "1x2x4x1:1024*2,430*2";

fn rig() -> Rig {
    let mut rig = Rig::new(MACHINE, &[]);
    rig.kernel.now = 1_000_000_000;
    rig.only_idle(&[]);
    rig
}

fn sized(rig: &mut Rig, util: u32) -> TaskId {
    let task = rig.task();
    rig.remembered(task, |tctx| tctx.task_util = util);
    task
}

/// (task's util, previous CPU, target, util of current there) -> where it waits. CPUs of the other kind are looked at in turn,
/// two at a time, and the less loaded one is taken: 1 of the strong ones, 3 of the weak ones.
#[test]
fn tasks_wait_with_their_kind() {
    for (util, prev, target, curr, queue) in [
        (100, 2, 3, 100, 3),
        // Current could as well run on a weak CPU.
        (100, 0, 0, 100, 0),
        (100, 2, 0, 900, 2),
        (100, 1, 0, 900, 3),
        (900, 0, 0, 900, 0),
        (900, 1, 2, 100, 1),
        (900, 3, 2, 100, 1),
    ] {
        let mut rig = rig();
        let task = sized(&mut rig, util);
        rig.cpu(target as usize, |cctx| cctx.curr_util = curr);
        for cpu in 0..8 {
            rig.cpu(cpu, |cctx| cctx.curr_weight = if [1, 3].contains(&cpu) { 100 } else { 200 });
        }
        rig.kernel.cpu = 7;
        assert_eq!(rig.call(rig.u.fallback_cpu, (rig.raw(task), prev, target)), queue, "{util} {prev} {target} {curr}");
    }
}

#[test]
fn successive_tasks_wait_at_different_cpus() {
    let mut rig = rig();
    let task = sized(&mut rig, 900);
    let seen: Vec<_> = (0..2).map(|_| rig.call(rig.u.fallback_cpu, (rig.raw(task), 2, 2))).collect();
    assert_eq!(seen, [1, 5]);
}

/// One CPU of 1024, two of 600, three of 250.
#[test]
fn of_three_kinds_a_task_waits_where_it_fits() {
    for (util, queues) in [(900, &[0][..]), (400, &[0, 1, 2])] {
        let mut rig = Rig::new("1x1x6x1:1024*1,600*2,250*3", &[]);
        rig.kernel.now = 1_000_000_000;
        rig.only_idle(&[]);
        let task = sized(&mut rig, util);
        let mut seen: Vec<_> = (0..6).map(|_| rig.call(rig.u.fallback_cpu, (rig.raw(task), 3, 3))).collect();
        seen.sort_unstable();
        seen.dedup();
        // Where neither of the two CPUs fits, the task remains at the target.
        seen.retain(|&cpu| cpu != 3);
        assert_eq!(seen, queues, "{util}");
    }
}

#[test]
fn a_task_waits_where_it_may_run() {
    let mut rig = rig();
    let task = rig.task_on([0, 1]);
    rig.cpu(0, |cctx| cctx.curr_util = 900);
    assert_eq!(rig.call(rig.u.fallback_cpu, (rig.raw(task), 2, 0)), 0);
}

/// A weak CPU takes a big task that has waited for half a millisecond, no sooner; small ones at once.
#[test]
fn weak_cpus_leave_big_tasks_to_strong_ones_for_a_while() {
    for (util, thief, wait, taken) in
        [(600, 2, 0, false), (600, 2, WAIT - 1, false), (600, 2, WAIT, true), (600, 1, 0, true), (100, 2, 0, true)]
    {
        let mut rig = rig();
        let task = sized(&mut rig, util);
        rig.queue(task, 0, 1);
        rig.kernel.now += wait;
        rig.kernel.cpu = thief;
        assert_eq!(rig.call(rig.u.steal, (thief as i32,)), taken, "{util} {thief} {wait}");
        let left = rig.call(rig.u.weak_wait, (rig.tctx(task).cast_const(), rig.kernel.now));
        assert_eq!(left, WAIT as i64 - wait as i64);
    }
}

/// A small task behind it is taken meanwhile.
#[test]
fn small_tasks_pass_big_ones() {
    let mut rig = rig();
    let (big, small) = (sized(&mut rig, 600), sized(&mut rig, 100));
    rig.queue(big, 0, 1);
    rig.queue(small, 0, 2);
    rig.kernel.cpu = 2;
    assert!(rig.call(rig.u.steal, (2,)));
    assert_eq!(rig.local(2), [small]);
}

/// A waiting task is offered to an idle CPU that is strong enough; after the wait to any.
#[test]
fn weak_cpus_are_kicked_after_the_wait_only() {
    for (util, wait, idle, kicked) in [
        (600, 0, &[2, 3, 5][..], &[5][..]),
        (600, WAIT, &[2, 3, 5], &[5]),
        (600, WAIT - 1, &[2], &[]),
        (600, WAIT, &[2], &[2]),
        (100, 0, &[2, 5], &[2]),
    ] {
        let mut rig = rig();
        let task = sized(&mut rig, util);
        rig.queue(task, 1, 1);
        rig.kernel.now += wait;
        rig.only_idle(idle);
        rig.kicked();
        let now = rig.kernel.now;
        rig.call(rig.u.kick_idle_for, (rig.raw(task), rig.tctx(task), 1, now));
        assert_eq!(rig.kicked(), kicked, "{util} {wait} {idle:?}");
    }
}

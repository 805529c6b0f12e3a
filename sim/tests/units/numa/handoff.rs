// SPDX-License-Identifier: GPL-2.0-only
//! `numa/handoff.bpf.h`: who has shown that it sleeps right after it woke another leaves its CPU to it; and who then does not
//! makes way.

use magpie_sim::dsq::TaskId;
use magpie_sim::native::{HANDOFF_LOOK_NS, HANDOFF_PENALTY, HANDOFF_SCORE, SCX_WAKE_SYNC, SCX_WAKE_TTWU};
use magpie_sim::time::USEC;

use crate::rig::Rig;

const SYNC: u64 = SCX_WAKE_SYNC | SCX_WAKE_TTWU;
const OTHER: usize = 1;

/// CPU 0 runs a task of ours, on a machine whose other CPU is idle; and the task that it wakes.
fn rig(flags: &[&str]) -> (Rig, TaskId, TaskId) {
    let mut rig = Rig::new("1x1x2x1", flags);
    rig.only_idle(&[OTHER]);
    let (waker, woken) = (rig.task(), rig.task());
    starts(&mut rig, waker);
    (rig, waker, woken)
}

fn starts(rig: &mut Rig, waker: TaskId) {
    rig.run(waker, 0);
    rig.call(rig.u.note_running, (rig.raw(waker), rig.tctx(waker), rig.cctx(0)));
}

fn hands_off(rig: &mut Rig, woken: TaskId, target: usize, flags: u64) -> bool {
    rig.call(rig.u.hands_off, (rig.tctx(woken).cast_const(), target as i32, flags))
}

/// The waker stops so long after its last wakeup.
fn stops(rig: &mut Rig, waker: TaskId, after: u64, sleeps: bool) {
    rig.kernel.now += after;
    rig.call(rig.u.judge_handoff, (rig.tctx(waker), rig.cctx(0), sleeps));
}

/// It wakes one and sleeps at once, so many times.
fn behaves(rig: &mut Rig, waker: TaskId, woken: TaskId, times: i32) {
    for _ in 0..times {
        starts(rig, waker);
        hands_off(rig, woken, 0, SYNC);
        stops(rig, waker, 15 * USEC, true);
    }
    starts(rig, waker);
}

fn sync_sleep_score(rig: &mut Rig, waker: TaskId) -> i32 {
    rig.remembered(waker, |tctx| tctx.sync_sleep_score)
}

#[test]
fn it_takes_some_times_to_be_trusted() {
    let (mut rig, waker, woken) = rig(&[]);
    for times in 0..HANDOFF_SCORE as i32 {
        assert_eq!(sync_sleep_score(&mut rig, waker), times);
        assert!(!hands_off(&mut rig, woken, 0, SYNC), "after {times} times");
        stops(&mut rig, waker, 15 * USEC, true);
        starts(&mut rig, waker);
    }
    assert!(hands_off(&mut rig, woken, 0, SYNC));
    assert_eq!(rig.cpu(0, |cctx| (cctx.handed_off, cctx.next_waits)), (1, 1));
}

#[test]
fn not_every_wakeup_is_one() {
    type Change = fn(&mut Rig, TaskId, TaskId);
    let cases: [(&str, &[&str], usize, u64, Change); 9] = [
        ("no hint", &[], 0, SCX_WAKE_TTWU, |_, _, _| ()),
        ("chosen by wake-affine is another CPU", &[], OTHER, SYNC, |_, _, _| ()),
        ("switched off", &["--handoff-us", "0"], 0, SYNC, |_, _, _| ()),
        ("an interrupt wakes, in the idle loop", &[], 0, SYNC, |rig, _, _| rig.cpu(0, |cctx| cctx.curr_weight = 0)),
        ("by who serves the CPU", &[], 0, SYNC, |rig, _, _| rig.cpu(0, |cctx| cctx.curr_critical = 1)),
        ("the second one", &[], 0, SYNC, |rig, _, woken| _ = hands_off(rig, woken, 0, SYNC)),
        ("others wait", &[], 0, SYNC, |rig, _, _| rig.cpu(0, |cctx| cctx.waiting = 1)),
        ("another is next", &[], 0, SYNC, |rig, _, _| {
            let other = rig.task();
            rig.kernel.cpus[0].local.push_back(other);
        }),
        ("not trusted", &[], 0, SYNC, |rig, waker, _| rig.remembered(waker, |tctx| tctx.sync_sleep_score -= 1)),
    ];
    for (what, flags, target, wake_flags, change) in cases {
        let (mut rig, waker, woken) = rig(flags);
        behaves(&mut rig, waker, woken, HANDOFF_SCORE as i32);
        // With the flag that switches it off nobody is judged.
        rig.remembered(waker, |tctx| tctx.sync_sleep_score = HANDOFF_SCORE as i32);
        change(&mut rig, waker, woken);
        assert!(!hands_off(&mut rig, woken, target, wake_flags), "{what}");
    }
}

#[test]
fn what_costs_trust() {
    let trusted = HANDOFF_SCORE as i32;
    let distrusted = -(HANDOFF_PENALTY as i32);
    for (before, after, sleeps, wakeups, expected) in [
        (trusted, 19 * USEC, true, 1, trusted),
        (trusted, 21 * USEC, true, 1, 0),
        (trusted, USEC, false, 1, 0),
        (trusted, USEC, true, 2, 0),
        (trusted, HANDOFF_LOOK_NS.into(), true, 1, distrusted),
        (trusted, HANDOFF_LOOK_NS.into(), false, 1, distrusted),
        // It had handed nothing off.
        (0, HANDOFF_LOOK_NS.into(), true, 1, 0),
        (distrusted, 21 * USEC, true, 1, distrusted),
        (distrusted, USEC, true, 1, distrusted + 1),
    ] {
        let (mut rig, waker, woken) = rig(&[]);
        rig.remembered(waker, |tctx| tctx.sync_sleep_score = before);
        for _ in 0..wakeups {
            hands_off(&mut rig, woken, 0, SYNC);
        }
        stops(&mut rig, waker, after, sleeps);
        assert_eq!(
            sync_sleep_score(&mut rig, waker),
            expected,
            "{before}, {after} ns, sleeps {sleeps}, {wakeups} wakeups"
        );
        assert_eq!(rig.cpu(0, |cctx| (cctx.handed_off, cctx.sync_wakes)), (0, 0));
    }
}

/// Weak CPUs are not handed to who needs a strong one.
#[test]
fn it_has_to_be_big_enough() {
    for (util, expected) in [(200, true), (400, false)] {
        let mut rig = Rig::new("1x1x2x1:1024,430", &[]);
        let weak = (0..2).find(|&cpu| rig.kernel.machine.places[cpu].capacity < 1024).unwrap();
        rig.only_idle(&[]);
        let (waker, woken) = (rig.task(), rig.task());
        rig.run(waker, weak);
        rig.call(rig.u.note_running, (rig.raw(waker), rig.tctx(waker), rig.cctx(weak)));
        rig.remembered(waker, |tctx| tctx.sync_sleep_score = HANDOFF_SCORE as i32);
        rig.remembered(woken, |tctx| tctx.task_util = util);
        rig.kernel.cpu = weak;
        assert_eq!(hands_off(&mut rig, woken, weak, SYNC), expected, "{util}");
    }
}

/// The timer is set once while hand-offs follow each other: it looks twice as late as HANDOFF_LOOK_NS, at most.
#[test]
fn who_does_not_sleep_makes_way() {
    let look = u64::from(HANDOFF_LOOK_NS);
    // By the time, not by what an idle CPU was left with.
    for (again_at, late, left) in
        [(0, false, None), (0, false, Some(0)), (10 * USEC, false, None), (look - 15 * USEC, true, None)]
    {
        let (mut rig, waker, woken) = rig(&[]);
        behaves(&mut rig, waker, woken, HANDOFF_SCORE as i32);
        let start = rig.kernel.now;
        rig.kernel.cpus[0].clock_left_at = left;
        assert!(hands_off(&mut rig, woken, 0, SYNC));
        if again_at != 0 {
            stops(&mut rig, waker, again_at, true);
            rig.remembered(waker, |tctx| tctx.sync_sleep_score = HANDOFF_SCORE as i32);
            starts(&mut rig, waker);
            assert!(hands_off(&mut rig, woken, 0, SYNC));
        }
        let (mut due, mut kicked) = rig.fire_timer();
        // Setting it takes a moment.
        assert!((look..look + 10 * USEC).contains(&(due - start)), "it looks {} ns later", due - start);
        if late {
            assert!(kicked.is_empty(), "it had not had the time to sleep yet");
            (due, kicked) = rig.fire_timer();
            assert!(due - start < 2 * look + 10 * USEC, "it looks {} ns later", due - start);
        }
        assert_eq!(kicked, [0], "handed off again after {again_at} ns");
    }
}

/// Who sleeps in time is left alone, and so is who comes next.
#[test]
fn the_timer_finds_nothing_to_do() {
    let (mut rig, waker, woken) = rig(&[]);
    behaves(&mut rig, waker, woken, HANDOFF_SCORE as i32);
    assert!(hands_off(&mut rig, woken, 0, SYNC));
    stops(&mut rig, waker, 5 * USEC, true);
    starts(&mut rig, woken);
    assert!(rig.fire_timer().1.is_empty());
    assert!(rig.kernel.timers.iter().all(|timer| timer.due.is_none()));
}

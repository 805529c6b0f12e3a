// SPDX-License-Identifier: GPL-2.0-only
//! `wake/handoff.bpf.h`: a waker that has slept right after its sync wakeups leaves its CPU to the wakee; if it then goes on,
//! its slice is over.

use magpie_sim::dsq::TaskId;
use magpie_sim::native::{HANDOFF_PENALTY, HANDOFF_SAMPLE, HANDOFF_SCORE, SCX_WAKE_SYNC, SCX_WAKE_TTWU};
use magpie_sim::task::Place;
use magpie_sim::time::USEC;
use scx_magpie::bpf_intf::*;

use crate::rig::Rig;

const SYNC: u64 = SCX_WAKE_SYNC | SCX_WAKE_TTWU;
const SCORE: i32 = HANDOFF_SCORE as i32;
const OTHER: usize = 1;

/// CPU 0 runs a task of ours, on a machine whose other CPU is idle; and the task that it wakes.
fn rig(flags: &[&str]) -> (Rig, TaskId, TaskId) {
    let mut rig = Rig::new("1x1x2x1", flags);
    rig.only_idle(&[OTHER]);
    let (waker, wakee) = (rig.task(), rig.task());
    starts(&mut rig, waker, 0);
    (rig, waker, wakee)
}

/// The task runs on the CPU, with some of its slice left.
fn starts(rig: &mut Rig, waker: TaskId, cpu: usize) {
    rig.kernel.tasks[waker].raw_mut().scx.slice = 1000;
    rig.running(waker, cpu);
}

fn hands_off(rig: &mut Rig, wakee: TaskId, target: usize, flags: u64) -> bool {
    rig.call(rig.u.hands_off, (rig.tctx(wakee).cast_const(), target as i32, flags))
}

/// The waker stops so long after its last wakeup.
fn stops(rig: &mut Rig, waker: TaskId, after: u64, sleeps: bool) {
    rig.kernel.now += after;
    rig.call(rig.u.judge_handoff, (rig.tctx(waker), rig.cctx(0), sleeps));
}

fn score(rig: &mut Rig, waker: TaskId) -> i32 {
    rig.remembered(waker, |tctx| tctx.handoff_score)
}

/// The waker, which runs on the CPU, has this score.
fn set_score(rig: &mut Rig, waker: TaskId, cpu: usize, score: i32) {
    rig.remembered(waker, |tctx| tctx.handoff_score = score);
    rig.cpu(cpu, |cctx| cctx.handoff_score = score);
}

#[test]
fn a_waker_has_to_have_slept_some_times_in_a_row() {
    let (mut rig, waker, wakee) = rig(&[]);
    for times in 0..SCORE {
        assert_eq!(score(&mut rig, waker), times);
        assert!(!hands_off(&mut rig, wakee, 0, SYNC), "after {times} times");
        assert_ne!(rig.kernel.tasks[waker].raw().scx.slice, 0);
        stops(&mut rig, waker, 15 * USEC, true);
        starts(&mut rig, waker, 0);
    }
    assert!(hands_off(&mut rig, wakee, 0, SYNC));
    assert_eq!(rig.cpu(0, |cctx| cctx.handed_off), 1);
}

/// Nothing can be stolen from the local DSQ: the next tick runs the wakee, if the waker does not sleep.
#[test]
fn a_handoff_ends_the_wakers_slice() {
    let (mut rig, waker, wakee) = rig(&[]);
    set_score(&mut rig, waker, 0, SCORE);
    assert!(hands_off(&mut rig, wakee, 0, SYNC));
    assert_eq!(rig.kernel.tasks[waker].raw().scx.slice, 0);
}

/// Idle CPUs are not looked at, and the waker is not preempted: it sleeps by itself.
#[test]
fn the_wakee_waits_in_the_local_dsq_of_the_waker() {
    let (mut rig, waker, wakee) = rig(&["--wake-affine", "sync"]);
    set_score(&mut rig, waker, 0, SCORE);
    rig.kernel.tasks[wakee].cpu = OTHER;
    rig.kernel.wake(wakee, true);
    assert_eq!((rig.kernel.violation.clone(), rig.kernel.tasks[wakee].place), (None, Place::Local(0)));
    assert_eq!((rig.idle(), rig.kernel.cpus[0].need_resched), ([OTHER].into(), false));
    assert_eq!((rig.stat(magpie_stat_STAT_HANDOFF), rig.stat(magpie_stat_STAT_SEARCH)), (1, 0));
}

#[test]
fn other_wakeups_are_none() {
    type Change = fn(&mut Rig, TaskId, TaskId);
    let cases: [(&str, &[&str], usize, u64, Change); 9] = [
        ("not a sync wakeup", &[], 0, SCX_WAKE_TTWU, |_, _, _| ()),
        ("wake-affine has chosen another CPU", &[], OTHER, SYNC, |_, _, _| ()),
        ("switched off", &["--handoff-us", "0"], 0, SYNC, |_, _, _| ()),
        ("an interrupt wakes, in the idle loop", &[], 0, SYNC, |rig, _, _| rig.cpu(0, |cctx| cctx.curr_weight = 0)),
        ("by a kernel thread of the CPU", &[], 0, SYNC, |rig, _, _| rig.cpu(0, |cctx| cctx.curr_critical = 1)),
        ("the second one", &[], 0, SYNC, |rig, _, wakee| _ = hands_off(rig, wakee, 0, SYNC)),
        ("others wait in its queues", &[], 0, SYNC, |rig, _, _| rig.cpu(0, |cctx| cctx.queued = 1)),
        ("another is in the local DSQ", &[], 0, SYNC, |rig, _, _| {
            let other = rig.task();
            rig.queue_local(other, 0);
        }),
        ("the score is too low", &[], 0, SYNC, |rig, waker, _| set_score(rig, waker, 0, SCORE - 1)),
    ];
    for (what, flags, target, wake_flags, change) in cases {
        let (mut rig, waker, wakee) = rig(flags);
        set_score(&mut rig, waker, 0, SCORE);
        change(&mut rig, waker, wakee);
        assert!(!hands_off(&mut rig, wakee, target, wake_flags), "{what}");
        // The slice timer leaves a task that sends messages to the tick in any case.
        let sent = wake_flags == SYNC && rig.cpu(0, |cctx| cctx.curr_weight != 0 && cctx.curr_critical == 0);
        assert_eq!(rig.cpu(0, |cctx| cctx.sync_wakes != 0), sent, "{what}");
    }
}

/// (score before; ns until the waker stops; does it sleep? sync wakeups since it ran) -> score.
#[test]
fn the_score_follows_what_the_waker_does() {
    let low = -(HANDOFF_PENALTY as i32);
    for (before, after, sleeps, wakeups, expected) in [
        (0, 19 * USEC, true, 1, 1),
        (SCORE, 19 * USEC, true, 1, SCORE),
        (low, USEC, true, 1, low + 1),
        // It handed nothing off: the score was too low.
        (SCORE - 1, 21 * USEC, true, 1, 0),
        (SCORE - 1, USEC, false, 1, 0),
        (SCORE - 1, USEC, true, 2, 0),
        (low, 21 * USEC, true, 1, low),
        // It did.
        (SCORE, 21 * USEC, true, 1, low),
        (SCORE, USEC, false, 1, low),
        (SCORE, USEC, true, 2, low),
    ] {
        let (mut rig, waker, wakee) = rig(&["--handoff-us", "20"]);
        set_score(&mut rig, waker, 0, before);
        for _ in 0..wakeups {
            hands_off(&mut rig, wakee, 0, SYNC);
        }
        stops(&mut rig, waker, after, sleeps);
        assert_eq!(score(&mut rig, waker), expected, "{before}, {after} ns, sleeps {sleeps}, {wakeups} wakeups");
        assert_eq!(rig.cpu(0, |cctx| (cctx.handed_off, cctx.sync_wakes)), (0, 0));
    }
}

/// To read the clock costs a tenth of a wakeup. A waker that has always slept is timed now and then.
#[test]
fn one_in_eight_handoffs_is_timed() {
    let (mut rig, waker, wakee) = rig(&[]);
    set_score(&mut rig, waker, 0, SCORE);
    for nr in 0..=HANDOFF_SAMPLE {
        assert!(hands_off(&mut rig, wakee, 0, SYNC), "{nr}");
        let late = nr % HANDOFF_SAMPLE != 0 || nr == HANDOFF_SAMPLE;
        stops(&mut rig, waker, if late { 1_000_000 * USEC } else { USEC }, true);
        let expected = if nr < HANDOFF_SAMPLE { SCORE } else { -(HANDOFF_PENALTY as i32) };
        assert_eq!(score(&mut rig, waker), expected, "{nr}");
    }
}

/// A task that woke none is not judged, whatever it does.
#[test]
fn only_sync_wakeups_are_judged() {
    for (wake_flags, expected) in [(SYNC, 0), (SCX_WAKE_TTWU, 3)] {
        let (mut rig, waker, wakee) = rig(&[]);
        set_score(&mut rig, waker, 0, 3);
        hands_off(&mut rig, wakee, 0, wake_flags);
        let (ops, raw) = (rig.kernel.ops, rig.raw(waker));
        rig.call(ops.stopping, (raw, true));
        assert_eq!(score(&mut rig, waker), expected);
    }
}

#[test]
fn weak_cpus_are_not_handed_to_big_tasks() {
    for (util, expected) in [(200, true), (400, false)] {
        let mut rig = Rig::new("1x1x2x1:1024,430", &[]);
        let weak = (0..2).find(|&cpu| rig.kernel.machine.places[cpu].capacity < 1024).unwrap();
        rig.only_idle(&[]);
        let (waker, wakee) = (rig.task(), rig.task());
        starts(&mut rig, waker, weak);
        set_score(&mut rig, waker, weak, SCORE);
        rig.remembered(wakee, |tctx| tctx.task_util = util);
        assert_eq!(hands_off(&mut rig, wakee, weak, SYNC), expected, "{util}");
    }
}

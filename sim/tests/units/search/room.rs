// SPDX-License-Identifier: GPL-2.0-only
//! `search/room.bpf.h`, `search/move.bpf.h`: a task that runs for long goes where there is more room.

use magpie_sim::native::{ROOM_NS, SCX_ENQ_WAKEUP, move_why_MOVE_NOT, move_why_MOVE_PREFERRED, move_why_MOVE_ROOM};
use magpie_sim::task::Place;
use magpie_sim::trace::Op;
use scx_magpie::bpf_intf::magpie_stat_STAT_ROOM_MOVE;

use crate::rig::Rig;

/// Two LLCs of four cores: CPUs 4 and 5 are the best of the first, 6 and 7 the next.
const RANKED: &str = "1x2x4x2:1024@1,1024@1,1024@9,1024@5";
const SMT: &str = "1x2x2x2";
const LLCS: &str = "1x2x4x1";

/// Where a long runner of CPU 0 would go, now that the others are idle or not.
fn room(machine: &str, idle: &[usize], allowed: &[usize]) -> i32 {
    let mut rig = Rig::new(machine, &[]);
    rig.only_idle(idle);
    let task = if allowed.is_empty() { rig.task() } else { rig.task_on(allowed.iter().copied()) };
    rig.call(rig.u.find_room, (rig.raw(task), 0))
}

#[test]
fn an_idle_core_that_is_preferred() {
    for (idle, found) in [
        (&[1, 4, 5, 6, 7][..], 4),
        (&[1, 5, 6, 7], 6),
        // Half a core; a core no better.
        (&[1, 5, 7], -1),
        (&[1, 2, 3], -1),
    ] {
        assert_eq!(room(RANKED, idle, &[]), found, "{idle:?}");
    }
    let mut rig = Rig::new(RANKED, &[]);
    rig.only_idle(&[5, 6, 7]);
    let task = rig.task();
    assert_eq!(rig.call(rig.u.find_room, (rig.raw(task), 4)), -1, "on the best core already");
}

#[test]
fn a_core_of_its_own_in_place_of_a_shared_one() {
    for (idle, found) in [
        (&[2, 3][..], 2),
        // Not shared.
        (&[1, 2, 3], -1),
        // No whole one in this LLC; nor in the other.
        (&[2, 4, 5], 4),
        (&[2, 4, 6], -1),
    ] {
        assert_eq!(room(SMT, idle, &[]), found, "{idle:?}");
    }
    for (idle, found) in [(&[4, 5][..], 4), (&[2, 3, 4, 5], 2), (&[1, 4, 5], -1), (&[8, 9, 12, 13], 8)] {
        assert_eq!(room("4x1x2x2", idle, &[]), found, "other nodes: {idle:?}");
    }
}

/// A task leaves CPU 0 for another node, or for another core of its node, which is not its preferred one.
#[test]
fn a_task_that_left_for_a_core_is_not_sent_back() {
    for (why, preferred, to, held) in
        [(move_why_MOVE_ROOM, 0, 4, true), (move_why_MOVE_ROOM, 1, 2, false), (move_why_MOVE_PREFERRED, 1, 4, false)]
    {
        let mut rig = Rig::new("2x1x2x2", &["--numa-backoff", "4"]);
        rig.kernel.call(Op::UpdateIdle, None, 0, |_| unsafe { rig.u.read_prolog_depth.unwrap()() });
        rig.only_idle(&[to, to + 1]);
        let task = rig.task();
        rig.run_noted(task, 0);
        rig.kernel.cpus[0].nr_running += 1;
        rig.remembered(task, |tctx| (tctx.move_why, tctx.preferred_node) = (why as u8, preferred));
        rig.kernel.do_enqueue(task, 0, 0);
        assert_eq!(rig.kernel.tasks[task].place, Place::Local(to));
        let now = rig.kernel.now;
        let retry_at = rig.remembered(task, |tctx| tctx.preferred_retry_at);
        assert_eq!(retry_at > now + 3_900_000_000, held, "{retry_at}, now {now}");
    }
}

#[test]
fn an_llc_with_two_idle_cpus_more() {
    for (idle, found) in [(&[4, 5][..], 4), (&[3, 5, 6, 7], 5), (&[4], -1), (&[2, 3, 5, 6, 7], -1)] {
        assert_eq!(room(LLCS, idle, &[]), found, "{idle:?}");
    }
    assert_eq!(room("2x1x4x1", &[4, 5, 6, 7], &[]), -1, "another node");
}

#[test]
fn idle_cpus_are_counted_over_all_lines() {
    let mut rig = Rig::new("1x2x40x1", &[]);
    let idle: Vec<_> = (0..40).filter(|cpu| cpu % 3 == 0).chain([41, 50]).collect();
    rig.only_idle(&idle);
    assert_eq!([0, 1].map(|llc| rig.call(rig.u.nr_idle, (llc,))), [14, 2]);
}

#[test]
fn affinity_is_kept() {
    assert_eq!(room(RANKED, &[4, 5, 6, 7], &[0, 7, 6]), 6);
    assert_eq!(room(LLCS, &[4, 5, 6], &[0, 6]), 6);
    assert_eq!(room(LLCS, &[4, 5, 6], &[0, 1]), -1);
}

/// Its slice ends at a tick when it has run for ROOM_NS and there has been room for as long; enqueue() sends it.
#[test]
fn long_runners_move_once_the_room_lasts() {
    let long = ROOM_NS.into();
    for (burst, lasted, still, moves) in [
        (long, long, true, true),
        (long - 1, long, true, false),
        (long, long - 1, true, false),
        (long, long, false, false),
    ] {
        let mut rig = Rig::new(LLCS, &[]);
        rig.kernel.call(Op::UpdateIdle, None, 0, |_| unsafe { rig.u.read_prolog_depth.unwrap()() });
        rig.only_idle(if still { &[4, 5] } else { &[] });
        let task = rig.task();
        rig.run_noted(task, 0);
        rig.kernel.cpus[0].nr_running += 1;
        let since = rig.kernel.now;
        rig.kernel.now += lasted;
        let now = rig.kernel.now;
        rig.kernel.tasks[task].raw_mut().scx.slice = 1000;
        rig.remembered(task, |tctx| (tctx.woke_exec, tctx.charged, tctx.room_since) = (0, burst, since));
        rig.call(rig.u.check_move, (rig.raw(task), rig.tctx(task), 0, rig.cctx(0), now));
        let why = if moves { move_why_MOVE_ROOM } else { move_why_MOVE_NOT };
        assert_eq!(rig.remembered(task, |tctx| tctx.move_why), why as u8, "{burst} {lasted} {still}");
        assert_eq!(rig.kernel.tasks[task].raw().scx.slice == 0, moves);
        rig.kernel.do_enqueue(task, 0, 0);
        assert_eq!(rig.kernel.tasks[task].place, if moves { Place::Local(4) } else { Place::Dsq(0) });
        assert_eq!(rig.stat(magpie_stat_STAT_ROOM_MOVE), u64::from(moves));
    }
}

/// Whether other cores are idle counts only at the end: short tasks run on them now and then.
#[test]
fn a_core_need_not_be_idle_all_the_time() {
    for (sibling_idle, moves) in [(false, true), (true, false)] {
        let mut rig = Rig::new(SMT, &[]);
        rig.kernel.call(Op::UpdateIdle, None, 0, |_| unsafe { rig.u.read_prolog_depth.unwrap()() });
        let task = rig.task();
        rig.run_noted(task, 0);
        rig.remembered(task, |tctx| (tctx.woke_exec, tctx.charged) = (0, ROOM_NS.into()));
        rig.kernel.tasks[task].raw_mut().scx.slice = 1000;
        let tick = |rig: &mut Rig, idle: &[usize]| {
            rig.only_idle(idle);
            let now = rig.kernel.now;
            rig.call(rig.u.check_move, (rig.raw(task), rig.tctx(task), 0, rig.cctx(0), now));
            rig.kernel.now += u64::from(ROOM_NS) / 2;
            rig.remembered(task, |tctx| u32::from(tctx.move_why))
        };
        assert_eq!(tick(&mut rig, &[2, 3]), move_why_MOVE_NOT);
        assert_eq!(tick(&mut rig, if sibling_idle { &[1, 3] } else { &[3] }), move_why_MOVE_NOT);
        assert_eq!(tick(&mut rig, &[2, 3]), if moves { move_why_MOVE_ROOM } else { move_why_MOVE_NOT });
    }
}

/// A tick has ended its slice to move it, but it sleeps first.
#[test]
fn a_task_that_sleeps_is_no_longer_to_move() {
    let mut rig = Rig::new(LLCS, &[]);
    let task = rig.task();
    rig.run_noted(task, 0);
    rig.remembered(task, |tctx| tctx.move_why = move_why_MOVE_ROOM as u8);
    rig.stopping(task, false);
    assert_eq!(rig.remembered(task, |tctx| tctx.move_why), move_why_MOVE_NOT as u8);
}

#[test]
fn a_wakeup_is_not_sent() {
    let mut rig = Rig::new(LLCS, &[]);
    rig.only_idle(&[4, 5]);
    let task = rig.task();
    rig.remembered(task, |tctx| tctx.move_why = move_why_MOVE_ROOM as u8);
    assert!(!rig.call(rig.u.send_away, (rig.raw(task), 0, SCX_ENQ_WAKEUP)));
    assert_eq!((rig.stat(magpie_stat_STAT_ROOM_MOVE), rig.remembered(task, |tctx| tctx.move_why)), (0, 0));
}

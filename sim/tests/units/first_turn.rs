// SPDX-License-Identifier: GPL-2.0-only
//! `first_turn.bpf.h`: who woke promptly makes way, after its first turn, for one that did and waits for its own.

use magpie_sim::dsq::TaskId;
use magpie_sim::kernel::Curr;
use magpie_sim::native::{SCX_ENQ_WAKEUP, TURN_LEAST_NS};
use magpie_sim::task::State;
use magpie_sim::time::USEC;
use magpie_sim::trace::Op;
use scx_magpie::bpf_intf::*;

use crate::rig::Rig;

const TURN: u64 = 250 * USEC;
const START: u64 = 1_000_000 * USEC;

/// CPU 0 of two, both busy, runs a task since START, which was prompt or not.
fn rig(flags: &[&str], prompt: bool) -> Rig {
    let mut rig = Rig::new("1x1x2x1", flags);
    rig.only_idle(&[]);
    rig.kernel.now = START;
    let curr = rig.task();
    rig.remembered(curr, |tctx| tctx.prompt = prompt.into());
    starts(&mut rig, curr);
    rig
}

fn starts(rig: &mut Rig, task: TaskId) {
    rig.run(task, 0);
    let raw = rig.raw(task);
    // SAFETY: as the kernel calls it.
    rig.kernel.call(Op::Running, Some(task), 0, |ops| unsafe { ops.running.unwrap()(raw) });
}

/// A task wakes there, so long after START.
fn wakes(rig: &mut Rig, prompt: bool, after: u64) -> TaskId {
    wakes_ahead(rig, prompt, after, 0)
}

/// ... and has had so much more than others.
fn wakes_ahead(rig: &mut Rig, prompt: bool, after: u64, ahead: u64) -> TaskId {
    let task = rig.task();
    rig.remembered(task, |tctx| (tctx.home, tctx.vruntime) = (0, ahead));
    rig.kernel.now = START + after;
    rig.remembered(task, |tctx| (tctx.prompt, tctx.fresh) = (prompt.into(), prompt.into()));
    rig.kernel.tasks[task].state = State::Sleeping;
    rig.kernel.activate(task, 0, SCX_ENQ_WAKEUP);
    assert_eq!(rig.kernel.violation, None);
    assert_eq!(rig.waiting(0).last(), Some(&task));
    task
}

/// When the timer is to come, after START. Setting it takes a moment: to 10 us.
fn due(rig: &Rig) -> Option<u64> {
    rig.kernel.timers.iter().find_map(|timer| timer.due).map(|due| rounded(due - START))
}

fn rounded(ns: u64) -> u64 {
    (ns + 5 * USEC) / (10 * USEC) * (10 * USEC)
}

/// Whom the timer tells to make way.
fn fires(rig: &mut Rig) -> (Vec<usize>, u64) {
    (rig.fire_timer().1, rig.stat(magpie_stat_STAT_TURN))
}

#[test]
fn one_that_waits_for_its_first_turn_ends_the_other_ones() {
    for after in [0, 100 * USEC, TURN - 1] {
        let mut rig = rig(&[], true);
        wakes(&mut rig, true, after);
        assert_eq!(rig.kicked(), [0; 0]);
        assert_eq!(due(&rig), Some(rounded(TURN.max(after + u64::from(TURN_LEAST_NS)))));
        assert_eq!(fires(&mut rig), (vec![0], 1));
        assert_eq!(rig.cpu(0, |cctx| cctx.curr_weight), 0, "it is told once");
    }
}

#[test]
fn there_is_nothing_to_wait_for() {
    for (flags, curr_prompt, prompt, urgent) in [
        (&["--first-turn-us", "0"][..], true, true, 0),
        (&["--no-wakeup-preempt"], true, true, 0),
        (&["--no-wakeup-preempt"], false, true, 0),
        (&[], true, false, 0),
        (&[], true, true, 1),
    ] {
        let mut rig = rig(flags, curr_prompt);
        rig.cpu(0, |cctx| cctx.curr_critical = urgent);
        wakes(&mut rig, prompt, 0);
        assert_eq!((rig.kicked(), due(&rig)), (vec![], None), "{flags:?}, {curr_prompt}, {prompt}, {urgent}");
    }
    // Who runs has had its turn, and yet less than who wakes.
    let mut rig = rig(&[], false);
    rig.cpu(0, |cctx| cctx.curr_deadline = cctx.curr_deadline.wrapping_sub(10_000 * USEC));
    wakes_ahead(&mut rig, true, 0, 20_000 * USEC);
    assert_eq!((rig.kicked(), due(&rig)), (vec![], None));
}

/// Who starts a first turn looks for others that wait for theirs.
#[test]
fn one_turn_follows_the_other() {
    for (waits, expected) in [(true, Some(TURN)), (false, None)] {
        let mut rig = rig(&[], false);
        let next = rig.task();
        rig.remembered(next, |tctx| (tctx.prompt, tctx.fresh) = (1, 1));
        let waiting = rig.task();
        rig.remembered(waiting, |tctx| (tctx.prompt, tctx.fresh) = (1, waits.into()));
        rig.queue(waiting, 0, 0);
        starts(&mut rig, next);
        assert_eq!(due(&rig), expected);
    }
}

/// The timer was set for the turn of another, or for one that wait_time: stolen since.
#[test]
fn what_has_changed_since_counts() {
    let late = 200 * USEC;
    let mut set = rig(&[], true);
    let waiting = wakes(&mut set, true, 0);
    set.cpu(0, |cctx| cctx.curr_started += late);
    assert_eq!(fires(&mut set), (vec![], 0));
    assert_eq!(due(&set), Some(TURN + late));
    set.kernel.take_out(waiting);
    assert_eq!(fires(&mut set), (vec![], 0));
    assert_eq!(due(&set), None);
}

/// Who lent its CPU comes behind those that wait for their first turn, and before all others, whatever their deadlines.
#[test]
fn who_lends_waits_for_first_turns_only() {
    for lends in [true, false] {
        let mut rig = rig(&[], true);
        let curr = rig.kernel.cpus[0].curr;
        let Curr::Task(curr) = curr else { panic!("CPU 0 idles") };
        let fresh = [(); 2].map(|()| wakes(&mut rig, true, 0));
        let other = rig.task();
        rig.queue(other, 0, 0);
        for (task, deadline) in fresh.into_iter().zip([-2i64, -1]).chain([(other, 0)]) {
            rig.kernel.take_out(task);
            rig.queue(task, 0, deadline as u64);
        }
        if lends {
            assert_eq!(fires(&mut rig), (vec![0], 1));
        }
        rig.kernel.tasks[curr].state = State::Runnable;
        rig.kernel.do_enqueue(curr, 0, 0);
        assert_eq!(rig.kernel.violation, None);
        let expected = if lends { [fresh[0], fresh[1], curr, other] } else { [curr, fresh[0], fresh[1], other] };
        assert_eq!(rig.waiting(0), expected);
        assert_eq!(rig.cpu(0, |cctx| cctx.lends), 0);
    }
}

/// Whoever waits has its deadline after that of who lends: it gets the CPU only if it waits for its first turn.
#[test]
fn who_lends_goes_on_if_nobody_waits_for_a_first_turn_any_more() {
    for gone in [false, true] {
        let mut rig = rig(&[], true);
        let Curr::Task(curr) = rig.kernel.cpus[0].curr else { panic!("CPU 0 idles") };
        let fresh = wakes(&mut rig, true, 0);
        let other = rig.task();
        rig.queue(other, 0, 20_000 * USEC);
        rig.kernel.take_out(fresh);
        rig.queue(fresh, 0, 10_000 * USEC);
        assert_eq!(fires(&mut rig), (vec![0], 1));
        if gone {
            rig.kernel.take_out(fresh);
        }
        rig.kernel.tasks[curr].set_queued(true);
        let raw = rig.raw(curr);
        // SAFETY: as the kernel calls it.
        rig.kernel.call(Op::Dispatch, Some(curr), 0, |ops| unsafe { ops.dispatch.unwrap()(0, raw) });
        assert_eq!(rig.local(0), if gone { vec![] } else { vec![fresh] });
        assert_eq!(rig.cpu(0, |cctx| cctx.lends != 0), !gone);
    }
}

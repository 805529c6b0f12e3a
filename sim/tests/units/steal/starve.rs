// SPDX-License-Identifier: GPL-2.0-only
//! `steal/starve.bpf.h`: of the last MAX_STARVE tasks in line, one that waits for too long runs next.

use magpie_sim::dsq::TaskId;
use magpie_sim::native::{MAX_STARVE, STARVE_LOOKS};
use proptest::prelude::*;
use scx_magpie::bpf_intf::*;

use crate::rig::Rig;

/// A quarter of the watchdog's timeout.
const FLAGS: [&str; 2] = ["--timeout-ms", "4000"];
const STARVE: u64 = 1_000_000_000;
const LOOKS: usize = MAX_STARVE as usize;

/// Tasks in line on CPU 0 in this order, which have wait_time for so long.
fn rig(waits: &[u64]) -> (Rig, Vec<TaskId>) {
    let mut rig = Rig::new("1x1x2x1", &FLAGS);
    rig.only_idle(&[]);
    rig.kernel.now = 1_000_000_000_000;
    let now = rig.kernel.now;
    let tasks = waits.iter().enumerate().map(|(i, wait)| {
        let task = rig.task();
        rig.queue(task, 0, i as u64);
        rig.remembered(task, |tctx| tctx.enqueued_at = now - wait);
        task
    });
    let tasks = tasks.collect();
    (rig, tasks)
}

fn run_starved(rig: &mut Rig) -> bool {
    let now = rig.kernel.now;
    rig.call(rig.u.run_starved, (0, rig.cctx(0), now))
}

proptest! {
    #[test]
    fn one_of_the_last_that_waits_too_long(
        waits in prop::collection::vec(prop_oneof![9 => 0..STARVE, 1 => STARVE..2 * STARVE, 1 => Just(STARVE)], 0..40)
    ) {
        let (mut rig, tasks) = rig(&waits);
        let starved = (0..waits.len()).rev().take(LOOKS).find(|&i| waits[i] >= STARVE);
        prop_assert_eq!(run_starved(&mut rig), starved.is_some());
        prop_assert_eq!(rig.local(0), starved.map(|i| tasks[i]).into_iter().collect::<Vec<_>>());
        prop_assert_eq!(rig.stat(magpie_stat_STAT_STARVED), u64::from(starved.is_some()));
    }
}

#[test]
fn the_sixteenth_is_seen_the_seventeenth_is_not() {
    for (behind, taken) in [(LOOKS - 1, true), (LOOKS, false)] {
        let mut waits = vec![0; behind];
        waits.insert(0, 2 * STARVE);
        let (mut rig, _) = rig(&waits);
        assert_eq!(run_starved(&mut rig), taken, "{behind} behind it");
    }
}

#[test]
fn at_the_edge() {
    for (wait, taken) in [(STARVE - 1, false), (STARVE, true)] {
        assert_eq!(run_starved(&mut rig(&[wait]).0), taken, "{wait}");
    }
}

/// A look in vain is not repeated for a while. One that found a task is: there may be more.
#[test]
fn looks_in_vain_are_few() {
    let (mut rig, _) = rig(&[STARVE, STARVE, STARVE - 1]);
    assert!(run_starved(&mut rig) && run_starved(&mut rig));
    assert!(!run_starved(&mut rig));
    let rest = STARVE / u64::from(STARVE_LOOKS);
    rig.kernel.now += rest - 1;
    assert!(!run_starved(&mut rig));
    rig.kernel.now += 1;
    assert!(run_starved(&mut rig));
    assert_eq!(rig.local(0).len(), 3);
}

#[test]
fn no_look_where_nobody_waits() {
    let (mut rig, _) = rig(&[]);
    assert!(!run_starved(&mut rig));
    assert_eq!(rig.cpu(0, |cctx| cctx.starved_at), 0);
}

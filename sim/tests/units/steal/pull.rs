// SPDX-License-Identifier: GPL-2.0-only
//! `steal/heat.bpf.h`: by distance, a task that stopped a moment ago is left to the caches of its LLC, and not for longer.

use magpie_sim::dsq::TaskId;
use scx_magpie::bpf_intf::*;

use crate::rig::Rig;

const USEC: u64 = 1000;
const MSEC: u64 = 1_000_000;
const THIEF: usize = 0;

/// Nodes of two LLCs of two CPUs: CPU 2 is of another LLC, CPU 4 of another node. The costs are 50 and 100 us.
fn rig(flags: &[&str]) -> Rig {
    let costs = ["--migration-cost-llc-us", "50", "--migration-cost-node-us", "100"];
    let mut rig = Rig::new("2x2x2x1", &[&costs[..], flags].concat());
    rig.kernel.now = 1_000_000_000;
    rig.only_idle(&[]);
    rig
}

/// A task that stopped so many us ago waits on the CPU.
fn waits(rig: &mut Rig, cpu: usize, stopped: u64) -> TaskId {
    let task = rig.task();
    let at = rig.kernel.now - stopped * USEC;
    rig.remembered(task, |tctx| tctx.stopped_at = at);
    rig.queue(task, cpu, task as u64);
    task
}

fn steal(rig: &mut Rig) -> bool {
    rig.kernel.cpu = THIEF;
    rig.call(rig.u.steal, (THIEF as i32,))
}

#[test]
fn by_distance_hot_ones_stay() {
    for (victim, cold) in [(1, 0), (2, 50), (4, 100)] {
        for stopped in [0, cold.max(1) - 1, cold, 1000] {
            let mut rig = rig(&[]);
            let task = waits(&mut rig, victim, stopped);
            let taken = stopped >= cold;
            assert_eq!(steal(&mut rig), taken, "of CPU {victim}, stopped {stopped} us ago");
            assert_eq!(rig.local(THIEF), if taken { vec![task] } else { vec![] });
            assert_eq!(rig.stat(magpie_stat_STAT_STEAL_HOT), u64::from(!taken));
            assert_eq!(rig.stat(magpie_stat_STAT_STEAL_MISS), u64::from(!taken));
        }
    }
}

#[test]
fn the_first_cold_one_is_taken_from_behind_hot_ones() {
    let mut rig = rig(&[]);
    waits(&mut rig, 2, 10);
    let elsewhere = rig.task_on(1..8);
    rig.queue(elsewhere, 2, 10);
    let cold = waits(&mut rig, 2, 70);
    waits(&mut rig, 2, 80);
    assert!(steal(&mut rig));
    assert_eq!(rig.local(THIEF), [cold]);
    assert_eq!(rig.stat(magpie_stat_STAT_STEAL_HOT), 0);
}

/// The thief is woken when the first of those that it saw is cold, if it is idle then.
#[test]
fn it_looks_again_in_time() {
    for idle in [true, false] {
        let mut rig = rig(&[]);
        let tasks = [(2, 0), (3, 20), (4, 40)].map(|(victim, stopped)| waits(&mut rig, victim, stopped));
        assert!(!steal(&mut rig));
        // They have nothing to do here, so they must not be taken.
        for task in tasks {
            rig.remembered(task, |tctx| tctx.stopped_at += MSEC);
        }
        rig.cpu(THIEF, |cctx| cctx.idle = u8::from(idle));
        let start = rig.kernel.now;
        let mut passed = 0;
        while passed < 80 * USEC && rig.stat(magpie_stat_STAT_KICK) == 0 {
            passed += USEC / 4;
            rig.kernel.run_until(start + passed);
        }
        // Something was also spent on looking.
        let expected = if idle { 30 * USEC..40 * USEC } else { 80 * USEC..81 * USEC };
        assert!(expected.contains(&passed), "idle {idle}: kicked after {passed} ns");
    }
}

/// What it saw at another look is forgotten; and without a cost there is nothing to wait for.
#[test]
fn nothing_hot_no_timer() {
    let mut rig = rig(&["--steal", "node"]);
    waits(&mut rig, 4, 0);
    assert!(!steal(&mut rig));
    assert_eq!(rig.stat(magpie_stat_STAT_STEAL_HOT), 0);
    let hot = waits(&mut rig, 2, 0);
    assert!(!steal(&mut rig));
    rig.kernel.now += 60 * USEC;
    assert!(steal(&mut rig));
    assert_eq!(rig.local(THIEF), [hot]);
    assert!(!steal(&mut rig));
    assert_eq!(rig.stat(magpie_stat_STAT_STEAL_HOT), 1);
}

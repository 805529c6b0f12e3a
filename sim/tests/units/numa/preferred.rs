// SPDX-License-Identifier: GPL-2.0-only
//! `numa/preferred.bpf.h`: which node a task prefers, and how long it is not moved there.

use magpie_sim::dsq::TaskId;
use magpie_sim::native::*;
use scx_magpie::bpf_intf::*;

use crate::rig::Rig;

const MSEC: u64 = 1_000_000;
/// CPUs of the two nodes of two LLCs of two.
const MACHINE: &str = "2x2x2x1";
pub(super) const HERE: usize = 0;
pub(super) const THERE: usize = 4;

pub(super) fn rig(flags: &[&str]) -> Rig {
    let mut rig = Rig::new(MACHINE, flags);
    rig.kernel.now = 1_000_000 * MSEC;
    rig.only_idle(&[]);
    rig
}

/// A task that runs on node 0 and whose preferred node is `node`.
fn runner(rig: &mut Rig, node: i32) -> TaskId {
    let task = rig.task();
    rig.run(task, HERE);
    rig.remembered(task, |tctx| tctx.preferred_node = node);
    task
}

#[test]
fn the_preferred_node_is_where_the_task_first_runs_then_where_it_runs_most() {
    let mut rig = rig(&[]);
    let task = rig.task();
    let settle = |rig: &mut Rig, node: i32, times: usize| {
        (0..times).for_each(|_| rig.call(rig.u.update_preferred_node, (rig.tctx(task), node, NO_NODE)));
        rig.remembered(task, |tctx| tctx.preferred_node)
    };
    assert_eq!(settle(&mut rig, 1, 1), 1);
    // It has not run for long yet.
    assert_eq!(settle(&mut rig, 0, 2), 0);
    // It has now: the share falls below half after ln 2 of the time constant.
    assert_eq!(settle(&mut rig, 0, 10_000), 0);
    assert_eq!(settle(&mut rig, 1, 85), 0);
    assert_eq!(settle(&mut rig, 1, 6), 1);
}

#[test]
fn the_preferred_node_is_where_the_memory_is_wherever_the_task_runs() {
    let mut rig = rig(&[]);
    let task = runner(&mut rig, 0);
    rig.remembered(task, |tctx| tctx.preferred_share = PREFERRED_ALL as i32);
    for (memory, preferred) in [(1, 1), (1, 1), (0, 0), (1, 1)] {
        rig.call(rig.u.update_preferred_node, (rig.tctx(task), 0, memory));
        assert_eq!(rig.remembered(task, |tctx| tctx.preferred_node), preferred);
    }
    for _ in 0..1000 {
        rig.call(rig.u.update_preferred_node, (rig.tctx(task), 0, 1));
    }
    assert_eq!(rig.remembered(task, |tctx| (tctx.preferred_node, tctx.preferred_share)), (1, 0));
    rig.call(rig.u.update_preferred_node, (rig.tctx(task), 0, NO_NODE));
    assert_eq!(rig.remembered(task, |tctx| tctx.preferred_node), 0);
}

/// For four scan periods by default, the waker, too; where the wakee leaves its preferred node only.
#[test]
fn a_pull_away_from_it_holds_wakee_and_waker_back() {
    for (flag, prev, preferred, starts) in [
        ("4", THERE, 1, true),
        ("4", THERE, 0, false),
        ("4", THERE, NO_NODE, false),
        ("4", HERE + 2, 1, false),
        ("0", THERE, 1, false),
        ("7", THERE, 1, true),
    ] {
        let mut rig = rig(&["--numa-backoff", flag]);
        let (waker, task) = (runner(&mut rig, 0), rig.task());
        rig.kernel.cpu = HERE;
        rig.cpu(HERE, |cctx| cctx.curr_weight = 1);
        rig.remembered(task, |tctx| (tctx.preferred_node) = preferred);
        rig.remembered(waker, |tctx| tctx.move_why = 1);
        let flags = SCX_WAKE_TTWU | SCX_WAKE_SYNC;
        let target = rig.call(rig.u.affine_target, (rig.raw(task), rig.tctx(task), prev as i32, flags));
        assert_eq!(target as usize, HERE);
        assert_eq!(rig.stat(magpie_stat_STAT_AFFINE_FAR), u64::from(prev == THERE));
        let (now, periods) = (rig.kernel.now, flag.parse::<u64>().unwrap());
        for id in [task, waker] {
            let wait = if starts { (now + periods * 1000 * MSEC, 1) } else { (0, 0) };
            assert_eq!(
                rig.remembered(id, |tctx| (tctx.preferred_retry_at, tctx.numa_backoff)),
                wait,
                "{flag} {prev} {preferred}"
            );
        }
        assert_eq!(rig.remembered(waker, |tctx| tctx.move_why != 0), !starts);
    }
}

#[test]
fn a_longer_wait_is_never_shortened() {
    let mut rig = rig(&[]);
    let (task, now) = (rig.task(), rig.kernel.now);
    for (ms, held, wait) in
        [(500, false, (500, 0)), (100, true, (500, 0)), (4000, true, (4000, 1)), (60, false, (4000, 1))]
    {
        rig.call(rig.u.delay_return, (rig.tctx(task), now, ms * MSEC, held));
        let (at, held) = rig.remembered(task, |tctx| (tctx.preferred_retry_at, tctx.numa_backoff));
        assert_eq!(((at - now) / MSEC, held), wait);
    }
}

/// Only a task that is away, by the time at which it may be moved again, on machines with several nodes.
#[test]
fn which_tasks_want_their_preferred_node() {
    for (machine, node, preferred, retry, wants) in [
        (MACHINE, 0, 1, 0, true),
        (MACHINE, 0, 1, 1, false),
        (MACHINE, 1, 1, 0, false),
        (MACHINE, 0, NO_NODE, 0, false),
        ("1x2x2x1", 0, 1, 0, false),
    ] {
        let mut rig = Rig::new(machine, &[]);
        let (task, now) = (rig.task(), rig.kernel.now);
        rig.remembered(task, |tctx| (tctx.preferred_node, tctx.preferred_retry_at) = (preferred, now + retry));
        let args = (rig.tctx(task).cast_const(), node, now);
        assert_eq!(rig.call(rig.u.wants_preferred_node, args), wants, "{machine} {node} {preferred} {retry}");
    }
}

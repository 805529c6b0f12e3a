// SPDX-License-Identifier: GPL-2.0-only
//! `capacity/rank.bpf.h`: a task that runs for long goes to a more preferred core of its LLC that idles as a whole.

use magpie_sim::native::{SCX_ENQ_WAKEUP, migrate_to_MIGRATE_BETTER};
use scx_magpie::bpf_intf::magpie_stat_STAT_RANK_MOVE;

use crate::rig::Rig;

/// Two LLCs of four cores: CPUs 4 and 5 are the best of the first, 6 and 7 the next.
fn rig() -> Rig {
    Rig::new("1x2x4x2:1024@1,1024@1,1024@9,1024@5", &[])
}

#[test]
fn the_best_idle_core_is_found() {
    for (idle, cpu, found) in [
        (&[][..], 0, -1),
        (&[1, 4, 5, 6, 7], 0, 4),
        (&[1, 5, 6, 7], 0, 6),
        // Half a core; a core no better; the other LLC's.
        (&[1, 5, 7], 0, -1),
        (&[1, 2, 3], 0, -1),
        (&[5, 6, 7], 4, -1),
        (&[1, 12, 13], 0, -1),
        // Beside a busy sibling: any.
        (&[2, 3], 0, 2),
        (&[6, 7], 4, 6),
    ] {
        let mut rig = rig();
        rig.only_idle(idle);
        let task = rig.task();
        assert_eq!(rig.call(rig.u.find_better, (rig.raw(task), cpu)), found, "{idle:?} from {cpu}");
    }
}

#[test]
fn affinity_is_kept() {
    let mut rig = rig();
    rig.only_idle(&[4, 5, 6, 7]);
    let task = rig.task_on([0, 7, 6]);
    assert_eq!(rig.call(rig.u.find_better, (rig.raw(task), 0)), 6);
    let task = rig.task_on([0, 1, 12]);
    assert_eq!(rig.call(rig.u.find_better, (rig.raw(task), 0)), -1);
}

/// At a tick the slice of a task that runs for long ends, and enqueue() sends it; a wakeup is not sent.
#[test]
fn long_tasks_move_and_short_ones_stay() {
    for (burst_us, moves) in [(50_000, true), (10, false)] {
        let mut rig = rig();
        rig.only_idle(&[4, 5]);
        let task = rig.task();
        rig.run_noted(task, 0);
        rig.kernel.tasks[task].raw_mut().scx.slice = 1000;
        rig.remembered(task, |tctx| tctx.burst_est = burst_us * 1000);
        // Not current there: whether the prolog counts is not known.
        rig.kernel.cpu = 1;
        rig.call(rig.u.check_rank, (rig.raw(task), rig.tctx(task), 0));
        assert_eq!(rig.remembered(task, |tctx| tctx.migrate_to == migrate_to_MIGRATE_BETTER as u8), moves);
        assert_eq!(rig.kernel.tasks[task].raw().scx.slice == 0, moves);
    }
    let mut rig = rig();
    rig.only_idle(&[4, 5]);
    let task = rig.task();
    rig.remembered(task, |tctx| tctx.migrate_to = migrate_to_MIGRATE_BETTER as u8);
    assert!(!rig.call(rig.u.send_better, (rig.raw(task), rig.tctx(task), 0, SCX_ENQ_WAKEUP)));
    assert_eq!(rig.stat(magpie_stat_STAT_RANK_MOVE), 0);
    assert_eq!(rig.remembered(task, |tctx| tctx.migrate_to), 0);
}

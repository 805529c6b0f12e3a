// SPDX-License-Identifier: GPL-2.0-only
//! `core/task.bpf.h`: what kind of task it is, where it may run, and what is remembered of it.

use std::collections::BTreeSet;

use magpie_sim::native::{PF_IDLE, PF_KTHREAD};
use magpie_sim::task::{LOADER_TGID, SCHED_BATCH, SCHED_NORMAL};
use magpie_sim::trace::Op;
use proptest::prelude::*;

use crate::rig::Rig;

#[test]
fn pinned_and_migration_disabled_tasks_do_not_migrate() {
    // What the prolog adds is not known yet, is nothing, is one.
    for (prolog, known, highest, highest_taken) in [(0, false, 255, 510), (0, true, 0, 0), (1, true, 1, 2)] {
        let mut rig = Rig::new("1x1x4x1", &[]);
        rig.kernel.quirks.prolog_disables_migration = prolog == 1;
        if known {
            rig.kernel.call(Op::UpdateIdle, None, 0, |_| unsafe { rig.u.read_prolog_depth.unwrap()() });
        }
        let (task, pinned) = (rig.task_on([1, 2]), rig.task_on([1]));
        for (curr, taken, disabled, is_migratable) in [
            (false, 0, 0, true),
            (false, 0, 1, false),
            (true, 0, highest, true),
            (true, 0, highest + 1, false),
            (true, 1, highest_taken, true),
            (true, 1, highest_taken + 1, false),
        ] {
            for task in [task, pinned] {
                // The prolog of the call adds the rest.
                rig.kernel.tasks[task].raw_mut().migration_disabled = disabled - if curr { prolog } else { 0 };
                rig.kernel.cpus[0].curr = magpie_sim::kernel::Curr::Idle;
                rig.cpu(0, |cctx| cctx.released = taken);
                if curr {
                    rig.run(task, 0);
                }
                let moves = rig.call(rig.u.is_migratable, (rig.raw(task),));
                assert_eq!(moves, is_migratable && task != pinned, "{prolog} {known}: {curr} {taken} {disabled}");
            }
        }
    }
}

#[test]
fn per_cpu_kthreads_and_the_loader_are_critical() {
    let mut rig = Rig::new("1x1x4x1", &[]);
    for (flags, tgid, policy, cpus, critical) in [
        (0, 100, SCHED_NORMAL, 1, false),
        (PF_KTHREAD, 100, SCHED_NORMAL, 1, true),
        (PF_KTHREAD, 100, SCHED_NORMAL, 2, false),
        (0, LOADER_TGID, SCHED_NORMAL, 4, true),
        // Its thread that samples.
        (0, LOADER_TGID, SCHED_BATCH, 4, false),
        (0, 0, SCHED_NORMAL, 4, false),
    ] {
        let task = rig.task_on(0..cpus);
        let raw = rig.kernel.tasks[task].raw_mut();
        (raw.flags, raw.tgid, raw.policy) = (flags, tgid, policy);
        assert_eq!(rig.call(rig.u.is_critical, (rig.raw(task),)), critical, "{flags:#x} {tgid} {policy} {cpus}");
    }
}

#[test]
fn the_idle_task_is_told_by_its_flag() {
    let mut rig = Rig::new("1x1x1x1", &[]);
    let task = rig.task();
    rig.kernel.tasks[task].raw_mut().flags = PF_KTHREAD;
    assert!(!rig.call(rig.u.is_idle_task, (rig.raw(task),)));
    rig.kernel.tasks[task].raw_mut().flags = PF_IDLE;
    assert!(rig.call(rig.u.is_idle_task, (rig.raw(task),)));
}

#[test]
fn each_task_is_remembered_by_itself() {
    let mut rig = Rig::new("1x1x2x1", &[]);
    let tasks = [rig.task(), rig.task()];
    for task in tasks {
        assert_eq!(rig.call(rig.u.task_ctx, (rig.raw(task),)), rig.tctx(task));
        assert_eq!(rig.remembered(task, |tctx| (tctx.vtime_cpu, tctx.recent)), (-1, -1));
    }
    assert_ne!(rig.tctx(tasks[0]), rig.tctx(tasks[1]));
}

proptest! {
    #[test]
    fn it_may_use_what_its_mask_says(cpus in prop::collection::btree_set(0..70usize, 1..70)) {
        let mut rig = Rig::new("1x1x35x2", &[]);
        let task = rig.task_on(cpus.iter().copied());
        for cpu in 0..70 {
            prop_assert_eq!(rig.call(rig.u.may_use, (rig.raw(task), cpu as i32)), cpus.contains(&cpu));
        }
    }

    /// All allowed CPUs that are online in turn; the previous one when there is none.
    #[test]
    fn any_cpu_is_an_allowed_one_that_is_online(
        cpus in prop::collection::btree_set(0..20usize, 1..20), online in prop::collection::btree_set(0..20usize, 1..20)
    ) {
        let mut rig = Rig::new("1x1x20x1", &[]);
        rig.kernel.online = online.iter().copied().collect();
        let task = rig.task_on(cpus.iter().copied());
        let given: BTreeSet<_> = (0..20).map(|_| rig.call(rig.u.any_allowed, (rig.raw(task), 33)) as usize).collect();
        let both: BTreeSet<_> = cpus.intersection(&online).copied().collect();
        prop_assert_eq!(given, if both.is_empty() { [33].into() } else { both });
    }
}

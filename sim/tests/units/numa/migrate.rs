// SPDX-License-Identifier: GPL-2.0-only
//! `numa/migrate.bpf.h`: a running task that is away from its preferred node is sent there, if a CPU is idle there and it may migrate.

use magpie_sim::dsq::TaskId;
use magpie_sim::native::*;
use magpie_sim::task::Place;
use magpie_sim::trace::Op;
use scx_magpie::bpf_intf::*;

use super::preferred::{HERE, THERE, rig};
use crate::rig::Rig;

const MSEC: u64 = 1_000_000;
/// The program comes to know what the BPF prolog counts in tasks.
fn read_prolog_depth(rig: &mut Rig) {
    rig.kernel.call(Op::UpdateIdle, None, 0, |_| unsafe { rig.u.read_prolog_depth.unwrap()() });
}

/// A task that runs on node 0 and whose preferred node is `node`.
fn runner(rig: &mut Rig, node: i32) -> TaskId {
    let task = rig.task();
    rig.run(task, HERE);
    rig.remembered(task, |tctx| tctx.preferred_node = node);
    task
}

/// A tick of the task's CPU, later than the last one.
fn look(rig: &mut Rig, task: TaskId) {
    rig.kernel.now += 4 * MSEC;
    let cpu = rig.kernel.tasks[task].cpu;
    rig.kernel.cpu = cpu;
    let now = rig.kernel.now;
    rig.call(rig.u.check_move, (rig.raw(task), rig.tctx(task), cpu as i32, rig.cctx(cpu), now));
}

/// Does it move to its preferred node when it is next enqueued?
fn migrate_preferred(rig: &mut Rig, task: TaskId) -> bool {
    rig.remembered(task, |tctx| tctx.move_why != 0)
}

#[test]
fn a_tick_ends_the_slice_of_a_task_that_can_go_to_its_preferred_node() {
    for (preferred, idle, held, allowed, disabled, goes) in [
        (1, &[THERE][..], false, 0..8, 0, true),
        (1, &[THERE + 3], false, 0..8, 0, true),
        (1, &[], false, 0..8, 0, false),
        (1, &[HERE + 1], false, 0..8, 0, false),
        (1, &[THERE], true, 0..8, 0, false),
        (1, &[THERE], false, 0..1, 0, false),
        (1, &[THERE], false, 0..8, 1, false),
        (0, &[THERE], false, 0..8, 0, false),
    ] {
        let mut rig = rig(&[]);
        read_prolog_depth(&mut rig);
        let task = rig.task_on(allowed.clone());
        rig.run(task, HERE);
        rig.kernel.tasks[task].raw_mut().migration_disabled = disabled;
        rig.kernel.tasks[task].raw_mut().scx.slice = 5;
        rig.call(rig.u.update_preferred_node, (rig.tctx(task), 0, preferred));
        rig.kernel.set_memory(rig.kernel.tasks[task].raw().tgid, preferred);
        let later = rig.kernel.now + 1000 * MSEC;
        rig.remembered(task, |tctx| {
            (tctx.preferred_retry_at, tctx.numa_backoff) = if held { (later, 1) } else { (0, 0) }
        });
        // The LLCs' words are hints, until a search has been in vain.
        rig.call(rig.u.find_idle, (rig.raw(task), rig.tctx(task), HERE as i32, HERE as i32));
        rig.only_idle(idle);
        look(&mut rig, task);
        let what = format!("{preferred} {idle:?} {held} {allowed:?} {disabled}");
        assert_eq!(migrate_preferred(&mut rig, task), goes, "{what}");
        assert_eq!(rig.kernel.tasks[task].raw().scx.slice == 0, goes, "{what}");
        let stats = [magpie_stat_STAT_ON_PREFERRED, magpie_stat_STAT_OFF_PREFERRED, magpie_stat_STAT_PREFERRED_HELD];
        let expected = [u64::from(preferred == 0), u64::from(preferred == 1), u64::from(held)];
        assert_eq!(stats.map(|stat| rig.stat(stat)), expected, "{what}");
    }
}

/// A sixteenth of the scan period.
#[test]
fn attempts_are_some_time_apart() {
    let mut rig = rig(&[]);
    let task = runner(&mut rig, 1);
    rig.kernel.set_memory(rig.kernel.tasks[task].raw().tgid, 1);
    look(&mut rig, task);
    let at = rig.remembered(task, |tctx| tctx.preferred_retry_at);
    assert_eq!(at - rig.kernel.now, 1000 * MSEC / 16);
}

#[test]
fn kernel_threads_and_machines_of_one_node_have_no_preferred_nodes() {
    let mut rig = rig(&[]);
    let task = rig.task();
    rig.run(task, HERE);
    rig.kernel.tasks[task].raw_mut().flags = PF_KTHREAD;
    look(&mut rig, task);
    assert_eq!(rig.remembered(task, |tctx| tctx.preferred_node), NO_NODE);
    drop(rig);

    let mut rig = Rig::new("1x2x2x1", &[]);
    let task = rig.task();
    rig.run(task, HERE);
    look(&mut rig, task);
    assert_eq!((rig.remembered(task, |tctx| tctx.preferred_node), rig.kernel.hashes.len()), (NO_NODE, 0));
}

/// Ticks that come faster than each two milliseconds are left out.
#[test]
fn ticks_count_looks_at_processes_if_the_loader_samples() {
    for (flag, looks) in [("0", None), ("5", Some(3))] {
        let mut rig = rig(&["--numa-sample-share", flag]);
        let task = rig.task();
        rig.run(task, HERE);
        (0..3).for_each(|_| look(&mut rig, task));
        rig.kernel.now -= 3 * MSEC;
        look(&mut rig, task);
        assert_eq!(rig.kernel.hashes.values().next().map(|process| process[0]), looks);
    }
}

/// As put_prev_task_scx() does when the slice is over: where the task goes.
fn enqueue(rig: &mut Rig, task: TaskId) -> Place {
    let cpu = rig.kernel.tasks[task].cpu;
    rig.kernel.cpu = cpu;
    rig.kernel.do_enqueue(task, cpu, 0);
    assert_eq!(rig.kernel.violation, None);
    rig.kernel.tasks[task].place
}

#[test]
fn a_task_is_sent_there_if_it_is_known_to_be_migratable() {
    for (seed, prolog, idle, disabled, sent) in [
        (0, true, &[THERE + 1][..], 0, true),
        (1, true, &[THERE + 1], 0, true),
        // On the node's other LLC.
        (0, true, &[THERE + 2], 0, true),
        // No CPU is idle there any more.
        (0, true, &[], 0, false),
        (0, true, &[HERE + 1], 0, false),
        // It may not migrate: the kernel would eject us.
        (0, true, &[THERE + 1], 1, false),
        (1, true, &[THERE + 1], 1, false),
        // That is not known yet.
        (0, false, &[THERE + 1], 0, false),
        (1, false, &[THERE + 1], 0, false),
    ] {
        let mut rig = rig(&[]);
        rig.kernel.quirks.prolog_disables_migration = seed == 1;
        let task = rig.task();
        if prolog {
            read_prolog_depth(&mut rig);
        }
        rig.run(task, HERE);
        rig.kernel.cpus[HERE].nr_running += 1;
        rig.kernel.tasks[task].raw_mut().migration_disabled = disabled;
        rig.remembered(task, |tctx| (tctx.preferred_node, tctx.move_why) = (1, 1));
        rig.only_idle(idle);
        let place = enqueue(&mut rig, task);
        let queue = if disabled == 0 { HERE } else { HERE + MAX_CPUS };
        let expected = if sent { Place::Local(idle[0]) } else { Place::Dsq(queue) };
        assert_eq!(place, expected, "{seed} {prolog} {idle:?} {disabled}");
        assert_eq!(rig.stat(magpie_stat_STAT_PREFERRED_MOVE), u64::from(sent));
        // Some kernels lose SCX_ENQ_PREEMPT on the way: the kick does the same.
        let kicks = rig.kernel.kicks.contains(&(idle.first().copied().unwrap_or(0), SCX_KICK_PREEMPT));
        assert_eq!(kicks, sent);
        assert!(!migrate_preferred(&mut rig, task));
    }
}

/// Its slice is not renewed.
#[test]
fn a_task_that_is_to_go_home_does_not_keep_running() {
    for migrate_preferred in [false, true] {
        let mut rig = rig(&[]);
        let task = runner(&mut rig, 1);
        rig.kernel.tasks[task].set_queued(true);
        rig.remembered(task, |tctx| tctx.move_why = migrate_preferred.into());
        let (ops, raw) = (rig.kernel.ops, rig.raw(task));
        rig.call(ops.dispatch, (HERE as i32, raw));
        assert_eq!(rig.stat(magpie_stat_STAT_KEEP), u64::from(!migrate_preferred));
    }
}

#[test]
fn any_llc_of_a_node_may_have_an_idle_cpu() {
    let mut rig = rig(&[]);
    // A search in vain finds out which LLCs have none.
    let task = rig.task();
    let any = |rig: &mut Rig| [0, 1].map(|node| rig.call(rig.u.node_any_idle, (node,)));
    for (idle, nodes) in [(&[][..], [false, false]), (&[HERE + 3], [true, false]), (&[THERE + 2], [false, true])] {
        rig.only_idle(&[]);
        rig.call(rig.u.find_idle, (rig.raw(task), rig.tctx(task).cast_const(), HERE as i32, HERE as i32));
        rig.only_idle(idle);
        assert_eq!(any(&mut rig), nodes, "{idle:?}");
    }
}

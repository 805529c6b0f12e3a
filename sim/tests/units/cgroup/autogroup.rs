// SPDX-License-Identifier: GPL-2.0-only
//! `cgroup/ids.bpf.h` and `groups.bpf.h`: the kernel's autogroups are groups with a share, which come and go with their tasks.

use magpie_sim::cgroup::Spec;
use magpie_sim::dsq::TaskId;
use magpie_sim::native::{UNUSED_CHECKS, WEIGHT_SHIFT};

use crate::rig::Rig;

fn rig() -> Rig {
    let mut rig = Rig::new("1x1x4x1", &[]);
    rig.kernel.now = 1_000_000_000_000;
    rig
}

fn poll(rig: &mut Rig) {
    rig.call(rig.u.check_groups, ());
}

/// As when it wakes, or is put into a queue again: a while after the last time.
fn wakes(rig: &mut Rig, task: TaskId) {
    rig.kernel.now += 10_000_000;
    rig.call(rig.u.group_enter, (rig.raw(task), rig.tctx(task)));
    rig.call(rig.u.flush_cpu, (0,));
}

/// A task of the session that is known to be in it.
fn member(rig: &mut Rig, session: usize) -> TaskId {
    let task = rig.task();
    rig.kernel.set_session(task, session);
    wakes(rig, task);
    poll(rig);
    wakes(rig, task);
    task
}

fn weight(rig: &mut Rig, task: TaskId) -> u32 {
    rig.kernel.now += 10_000_000;
    rig.call(rig.u.update_share, (rig.tctx(task), rig.kernel.now));
    rig.call(rig.u.task_weight, (rig.tctx(task).cast_const(),)) >> WEIGHT_SHIFT
}

fn group_of(rig: &mut Rig, task: TaskId) -> u32 {
    rig.remembered(task, |tctx| tctx.group)
}

#[test]
fn tasks_share_what_their_session_is_due() {
    let mut rig = rig();
    let build = [(); 4].map(|()| member(&mut rig, 0));
    let lone = member(&mut rig, 1);
    let in_the_first = rig.task();
    wakes(&mut rig, in_the_first);
    assert_eq!([build[0], build[3], lone, in_the_first].map(|task| weight(&mut rig, task)), [256, 256, 1024, 1024]);
    // By /proc/PID/autogroup.
    rig.kernel.autogroups[0].shares = 2048 << 10;
    poll(&mut rig);
    assert_eq!(weight(&mut rig, build[0]), 512);
}

#[test]
fn a_session_has_no_group_before_the_loader_has_looked() {
    let mut rig = rig();
    let task = rig.task();
    rig.kernel.set_session(task, 2);
    for _ in 0..3 {
        wakes(&mut rig, task);
        assert_eq!((group_of(&mut rig, task), weight(&mut rig, task)), (0, 1024));
    }
    poll(&mut rig);
    assert_eq!(group_of(&mut rig, task), 0);
    wakes(&mut rig, task);
    assert_eq!(group_of(&mut rig, task), rig.kernel.autogroup_id(2));
    assert_ne!(group_of(&mut rig, task), 0);
}

#[test]
fn a_cgroup_is_before_the_session() {
    let mut rig = rig();
    let task = member(&mut rig, 0);
    let cgroup = rig.kernel.make_cgroup(&Spec { weight: 200, ..Spec::default() });
    for (to, id) in [(cgroup, rig.kernel.program_id(cgroup)), (0, rig.kernel.autogroup_id(0))] {
        rig.kernel.move_to_cgroup(task, to);
        wakes(&mut rig, task);
        assert_eq!(group_of(&mut rig, task), id, "cgroup {to}");
    }
    // There and back while it sleeps.
    rig.kernel.move_to_cgroup(task, cgroup);
    rig.kernel.move_to_cgroup(task, 0);
    wakes(&mut rig, task);
    assert_eq!(group_of(&mut rig, task), rig.kernel.autogroup_id(0));
    assert_eq!(rig.kernel.native.group(rig.kernel.autogroup_id(0)).members, 1);
}

#[test]
fn a_session_that_ended_loses_its_group() {
    let mut rig = rig();
    let tasks = [(); 2].map(|()| member(&mut rig, 3));
    let id = rig.kernel.autogroup_id(3);
    let polls = |rig: &mut Rig, nr| (0..nr).for_each(|_| poll(rig));
    for (i, &task) in tasks.iter().enumerate() {
        polls(&mut rig, UNUSED_CHECKS);
        assert_eq!((rig.kernel.autogroup_id(3), rig.kernel.native.group(id).members), (id, 2 - i as u32));
        rig.call(rig.u.group_leave, (rig.tctx(task), 0, rig.kernel.now));
        rig.call(rig.u.leave_autogroup, (rig.tctx(task),));
    }
    polls(&mut rig, UNUSED_CHECKS - 1);
    assert_eq!(rig.kernel.autogroup_id(3), id);
    polls(&mut rig, 1);
    assert_eq!((rig.kernel.autogroup_id(3), rig.kernel.native.group(id).weight), (0, 0));
}

/// A task that exits still has the id of its removed cgroup, which a session has by now.
#[test]
fn the_member_of_a_removed_cgroup_leaves_no_session() {
    let mut rig = Rig::new("1x1x4x1", &["--max-cgroups", "4"]);
    rig.kernel.now = 1_000_000_000_000;
    let exits = rig.task();
    let cgroup = rig.kernel.make_cgroup(&Spec::default());
    rig.kernel.move_to_cgroup(exits, cgroup);
    let id = rig.kernel.program_id(cgroup);
    let member = member(&mut rig, 0);
    let session = rig.kernel.autogroup_id(0);
    rig.remembered(exits, |tctx| tctx.group = session);
    assert_ne!(id, session);
    rig.call(rig.u.leave_autogroup, (rig.tctx(exits),));
    assert_eq!(rig.kernel.native.group(session).members, 1);
    rig.call(rig.u.leave_autogroup, (rig.tctx(member),));
    assert_eq!(rig.kernel.native.group(session).members, 0);
}

#[test]
fn half_of_the_ids_are_left_to_cgroups() {
    let mut rig = Rig::new("1x1x4x1", &["--max-cgroups", "3"]);
    rig.kernel.now = 1_000_000_000_000;
    let tasks = [0, 1, 2].map(|session| member(&mut rig, session));
    assert_eq!(tasks.map(|task| group_of(&mut rig, task)), [1, 2, 0]);
}

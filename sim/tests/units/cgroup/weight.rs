// SPDX-License-Identifier: GPL-2.0-only
//! `cgroup/weight.bpf.h`: a task's weight is its share at each level; sums follow what is runnable, and are seldom written and
//! read.

use magpie_sim::cgroup::{CgroupId, Spec, kernel_weight};
use magpie_sim::dsq::TaskId;
use magpie_sim::native::{CHANGE_SLOTS, FLUSH_NS, GROUP_FLAGS, MAX_WEIGHT, SETTLE_CPUS, SHARE_NS, WEIGHT_SHIFT};
use magpie_sim::task::{NICE_WEIGHTS, State};
use proptest::prelude::*;

use crate::rig::{Rig, nice_weight};

const UNIT: f64 = (1 << WEIGHT_SHIFT) as f64;

/// CPUs 0 to 3, and groups of these parents and weights.
fn rig(groups: &[(CgroupId, u32)]) -> Rig {
    let mut rig = Rig::new("1x1x4x1", &[]);
    rig.kernel.now = 1_000_000_000_000;
    for &(parent, weight) in groups {
        rig.kernel.make_cgroup(&Spec { parent, weight, ..Spec::default() });
    }
    rig
}

fn member(rig: &mut Rig, cgroup: CgroupId, weight: u32) -> TaskId {
    let task = rig.task();
    rig.set_weight(task, weight);
    rig.kernel.move_to_cgroup(task, cgroup);
    task
}

/// A task of the cgroup that is runnable, on CPU 0.
fn runnable(rig: &mut Rig, cgroup: CgroupId, weight: u32) -> TaskId {
    let task = member(rig, cgroup, weight);
    enter(rig, task);
    task
}

fn enter(rig: &mut Rig, task: TaskId) {
    rig.call(rig.u.group_enter, (rig.raw(task), rig.tctx(task)));
}

fn leave(rig: &mut Rig, task: TaskId, cpu: i32) {
    rig.remembered(task, |tctx| tctx.vtime_cpu = cpu);
    rig.call(rig.u.group_leave, (rig.tctx(task), cpu, rig.kernel.now));
}

/// On the scale of nice 0 = 1024, once all is told and the task's share is looked at.
fn weight(rig: &mut Rig, task: TaskId) -> f64 {
    for cpu in 0..4 {
        rig.call(rig.u.flush_cpu, (cpu,));
    }
    rig.kernel.now += u64::from(SHARE_NS);
    last_weight(rig, task)
}

/// As it is known now.
fn last_weight(rig: &mut Rig, task: TaskId) -> f64 {
    rig.call(rig.u.update_share, (rig.tctx(task), rig.kernel.now));
    f64::from(rig.call(rig.u.task_weight, (rig.tctx(task).cast_const(),))) / UNIT
}

/// This part of a weight, as fine as the program has it.
fn part(of: u32, weight: u32, all: u32) -> f64 {
    (f64::from(of) * f64::from(weight) / f64::from(all) * UNIT).floor() / UNIT
}

/// What is told of the group, and what is not.
fn sums(rig: &Rig, cgroup: CgroupId) -> (i64, i64) {
    let id = rig.kernel.program_id(cgroup);
    (rig.kernel.native.group(id).sum, rig.kernel.native.untold(id).0)
}

/// Runnable tasks of the group and below it, as the group knows them.
fn tasks(rig: &Rig, cgroup: CgroupId) -> i64 {
    rig.kernel.native.group(rig.kernel.program_id(cgroup)).tasks
}

/// As if the CPU had settled just now.
fn settled(rig: &mut Rig, cpu: i32) {
    rig.call(rig.u.flush_cpu, (cpu,));
}

#[test]
fn tasks_of_the_root_have_their_plain_weight() {
    let mut rig = rig(&[(0, 50)]);
    let task = runnable(&mut rig, 0, 335);
    runnable(&mut rig, 1, 1024);
    assert_eq!(weight(&mut rig, task), 335.0);
}

/// The head of cgroup/weight.bpf.h.
#[test]
fn shares_of_groups_and_tasks_side_by_side() {
    let mut rig = rig(&[(0, 100), (1, 300), (0, 300)]);
    let in_a = runnable(&mut rig, 1, 1024);
    assert_eq!(weight(&mut rig, in_a), 1024.0);
    let in_b = runnable(&mut rig, 2, 1024);
    assert_eq!((weight(&mut rig, in_a), weight(&mut rig, in_b)), (256.0, 768.0));
    // Its weight in b is all of b's, whatever it is.
    let other = runnable(&mut rig, 2, 3121);
    assert_eq!((weight(&mut rig, in_b), weight(&mut rig, other)), (part(768, 1024, 4145), part(768, 3121, 4145)));
}

proptest! {
    /// A chain of groups, each with a sibling that has something runnable.
    #[test]
    fn nested_shares_multiply(
        levels in prop::collection::vec((1..=10_000u32, 1..=10_000u32), 1..8), plain in nice_weight()
    ) {
        let mut rig = rig(&[]);
        let (mut parent, mut share) = (0, 1.0);
        for (level, &(own, sibling)) in levels.iter().enumerate() {
            let spec = |weight| Spec { parent, weight, ..Spec::default() };
            let (sibling_group, group) = (rig.kernel.make_cgroup(&spec(sibling)), rig.kernel.make_cgroup(&spec(own)));
            runnable(&mut rig, sibling_group, 1024);
            // At the first level the weight counts, and what it is a share of is up to virtual time.
            let (own, sibling) = (f64::from(kernel_weight(own)), f64::from(kernel_weight(sibling)));
            share *= own / if level > 0 { own + sibling } else { 1.0 };
            parent = group;
        }
        let task = runnable(&mut rig, parent, plain);
        let exact = share.clamp(1.0 / UNIT, f64::from(MAX_WEIGHT));
        let got = weight(&mut rig, task);
        prop_assert!((got - exact).abs() <= 2.0 / UNIT, "{} for {}", got, exact);
    }

    /// Tasks wake, sleep and move, and CPUs flush, in any order: sums, and what is not told to them, are those of runnable tasks.
    #[test]
    fn sums_follow_what_is_runnable(steps in prop::collection::vec((0..12usize, 0..6usize, 0..5u8), 0..200)) {
        let mut rig = rig(&[(0, 100), (1, 10), (1, 10_000), (3, 7), (0, 1)]);
        let tasks: Vec<_> = (0..12).map(|i| member(&mut rig, 1 + i % 5, NICE_WEIGHTS[3 * i])).collect();
        for (i, to, what) in steps {
            rig.kernel.now += 100_000;
            match what {
                0 | 1 => enter(&mut rig, tasks[i]),
                2 => leave(&mut rig, tasks[i], to as i32 % 4),
                3 => rig.kernel.move_to_cgroup(tasks[i], to),
                _ => { rig.call(rig.u.flush_cpu, (to as i32 % 4,)); }
            }
            let (mut expected, mut runnable) = ([0; 6], [0; 6]);
            for &task in &tasks {
                let counted = i64::from(rig.remembered(task, |tctx| tctx.counted));
                expected[rig.kernel.tasks[task].cgroup] += counted;
                runnable[rig.kernel.tasks[task].cgroup] += i64::from(counted > 0);
            }
            for id in (1..6).rev() {
                let program_id = rig.kernel.program_id(id);
                runnable[id] -= rig.kernel.native.untold(program_id).1;
                prop_assert_eq!(rig.kernel.native.group(program_id).tasks, runnable[id], "group {}", id);
                runnable[rig.kernel.cgroups[id].parent] += runnable[id];
                let cgroup = &rig.kernel.cgroups[id];
                let (told, untold) = sums(&rig, id);
                prop_assert_eq!(told + untold, expected[id], "group {}", id);
                if told > 0 {
                    expected[cgroup.parent] += i64::from(cgroup.kernel_weight());
                }
            }
        }
    }
}

#[test]
fn a_task_that_moves_has_its_new_groups_share_at_once() {
    let mut rig = rig(&[(0, 100), (1, 300), (1, 100)]);
    runnable(&mut rig, 2, 1024);
    runnable(&mut rig, 3, 1024);
    let sleeper = member(&mut rig, 2, 335);
    enter(&mut rig, sleeper);
    assert_eq!(weight(&mut rig, sleeper), part(768, 335, 1359));
    leave(&mut rig, sleeper, 0);
    rig.kernel.move_to_cgroup(sleeper, 3);
    enter(&mut rig, sleeper);
    assert_eq!(last_weight(&mut rig, sleeper), part(256, 335, 1024));
}

/// Tasks that die leave their group after it is gone.
#[test]
fn a_group_that_goes_takes_its_weight_along() {
    let mut rig = rig(&[(0, 100), (1, 300)]);
    let task = runnable(&mut rig, 2, 1024);
    settled(&mut rig, 0);
    assert_eq!((sums(&rig, 1), tasks(&rig, 1)), ((3072, 0), 1));
    rig.kernel.tasks[task].state = State::Dead;
    rig.kernel.remove_cgroup(2);
    assert_eq!((sums(&rig, 1), tasks(&rig, 1)), ((0, 0), 0));
}

/// 1 (cpuset of 3 CPUs) - 2 with four tasks; 3 next to 1 with one task; all of weight 100.
#[test]
fn weights_count_by_the_mode() {
    let weights = |mode: &str| {
        let mut rig = Rig::new("1x1x4x1", &["--cgroup-mode", mode]);
        rig.kernel.now = 1_000_000_000_000;
        for spec in [Spec { cpus: 3, ..Spec::default() }, Spec { parent: 1, ..Spec::default() }, Spec::default()] {
            rig.kernel.make_cgroup(&spec);
        }
        // A cpuset is polled: it is not there yet when its group is made.
        rig.kernel.publish();
        let [one, other] = [2, 3].map(|cgroup| runnable(&mut rig, cgroup, 1024));
        for _ in 0..3 {
            runnable(&mut rig, 2, 1024);
        }
        weight(&mut rig, one);
        // The averages have all of it.
        rig.kernel.now += 1_000_000_000;
        weight(&mut rig, one);
        [one, other].map(|task| weight(&mut rig, task))
    };
    assert_eq!(weights("smp"), [256.0, 1024.0]);
    assert_eq!(weights("concur"), [768.0, 1024.0]);
    assert_eq!(weights("tasks"), [1024.0, 1024.0]);
    assert_eq!(weights("max"), [768.0, 4096.0]);
}

/// The kernel's runnable_avg: half of the way in 32 periods; rounded down, and at least 1.
#[test]
fn tasks_count_by_their_average() {
    let mut rig = Rig::new("1x1x4x1", &["--cgroup-mode", "concur"]);
    rig.kernel.now = 1_000_000_000_000;
    rig.kernel.make_cgroup(&Spec::default());
    rig.kernel.publish();
    let tasks: Vec<_> = (0..4).map(|_| runnable(&mut rig, 1, 1024)).collect();
    let all = |rig: &mut Rig, periods: u64| {
        rig.kernel.now += periods << 20;
        4.0 * weight(rig, tasks[0]) / 1024.0
    };
    assert_eq!(all(&mut rig, 0), 1.0);
    // weight() waits for a period, too.
    assert_eq!(all(&mut rig, 16), 1.0);
    assert_eq!(all(&mut rig, 16), 2.0);
    assert_eq!(all(&mut rig, 32), 3.0);
    assert_eq!(all(&mut rig, 320), 4.0);
    tasks[1..].iter().for_each(|&task| leave(&mut rig, task, 0));
    settled(&mut rig, 0);
    let last = |rig: &mut Rig, periods: u64| {
        rig.kernel.now += periods << 20;
        weight(rig, tasks[0]) / 1024.0
    };
    assert_eq!(last(&mut rig, 30), 2.0);
    assert_eq!(last(&mut rig, 32), 1.0);
}

#[test]
fn a_short_sleep_tells_nothing() {
    let mut rig = rig(&[(0, 100)]);
    let task = runnable(&mut rig, 1, 1024);
    for cpu in 0..4 {
        settled(&mut rig, cpu);
        leave(&mut rig, task, cpu);
        assert_eq!(sums(&rig, 1), (1024, -1024));
        // Wherever it wakes, that is told to the CPU where it slept.
        enter(&mut rig, task);
        assert_eq!(sums(&rig, 1), (1024, 0));
    }
}

#[test]
fn a_change_is_told_at_the_next_after_a_while_or_by_a_tick() {
    let mut rig = rig(&[(0, 100)]);
    let task = runnable(&mut rig, 1, 1024);
    settled(&mut rig, 0);
    // Not the first change after a while, which is often one of several that add up to nothing.
    rig.kernel.now += u64::from(FLUSH_NS);
    leave(&mut rig, task, 0);
    assert_eq!(sums(&rig, 1), (1024, -1024));
    rig.kernel.now += u64::from(FLUSH_NS);
    enter(&mut rig, task);
    assert_eq!(sums(&rig, 1), (0, 1024));
    rig.call(rig.u.flush, (0, rig.cctx(0)));
    assert_eq!(sums(&rig, 1), (1024, 0));

    // Others flush a CPU that runs no task of sched_ext, not a busy one.
    for (curr_weight, left) in [(1, -1024), (0, 0)] {
        enter(&mut rig, task);
        settled(&mut rig, 3);
        leave(&mut rig, task, 3);
        rig.cpu(3, |cctx| cctx.curr_weight = curr_weight);
        for _ in 0..4u32.div_ceil(SETTLE_CPUS) {
            rig.call(rig.u.flush, (0, rig.cctx(0)));
        }
        assert_eq!(sums(&rig, 1).1, left);
    }
}

/// A new task has run nowhere.
#[test]
fn what_a_new_task_changes_is_told_by_the_cpu_that_wakes_it() {
    let mut rig = rig(&[(0, 100)]);
    rig.kernel.cpu = 2;
    settled(&mut rig, 2);
    runnable(&mut rig, 1, 1024);
    assert_eq!(sums(&rig, 1), (0, 1024));
    settled(&mut rig, 2);
    assert_eq!(sums(&rig, 1), (1024, 0));
}

#[test]
fn changes_of_another_group_are_left_alone() {
    let mut rig = rig(&[(0, 100); CHANGE_SLOTS as usize + 1]);
    let (first, last) = (1, CHANGE_SLOTS as usize + 1);
    let tasks = [first, last].map(|cgroup| runnable(&mut rig, cgroup, 1024));
    settled(&mut rig, 0);
    tasks.iter().for_each(|&task| leave(&mut rig, task, 0));
    assert_eq!((sums(&rig, first), sums(&rig, last)), ((1024, -1024), (0, 0)));
    tasks.iter().for_each(|&task| enter(&mut rig, task));
    assert_eq!((sums(&rig, first), sums(&rig, last)), ((1024, 0), (0, 1024)));
}

/// So that a switch reads no line that other CPUs write.
#[test]
fn a_share_is_looked_at_once_a_millisecond() {
    let mut rig = rig(&[(0, 100), (1, 100)]);
    let task = runnable(&mut rig, 2, 1024);
    assert_eq!(weight(&mut rig, task), 1024.0);
    runnable(&mut rig, 1, 1024);
    settled(&mut rig, 0);
    assert_eq!(last_weight(&mut rig, task), 1024.0);
    rig.kernel.now += u64::from(SHARE_NS);
    assert_eq!(last_weight(&mut rig, task), 512.0);
    rig.kernel.set_cgroup_weight(2, 300);
    assert_eq!(weight(&mut rig, task), 768.0);
    rig.kernel.set_cgroup_weight(1, 1000);
    assert_eq!(weight(&mut rig, task), 7680.0);
    // Its own weight counts at once.
    runnable(&mut rig, 2, 1024);
    rig.set_weight(task, 3121);
    enter(&mut rig, task);
    assert_eq!(weight(&mut rig, task), part(7680, 3121, 4145));
    rig.set_weight(task, 526);
    enter(&mut rig, task);
    settled(&mut rig, 0);
    rig.kernel.now += u64::from(SHARE_NS);
    assert_eq!(last_weight(&mut rig, task), part(7680, 526, 1550));
}

#[test]
fn tasks_of_idle_groups_have_the_least_weight_and_are_sched_idle() {
    let mut rig = rig(&[(0, 700), (1, 100)]);
    let task = runnable(&mut rig, 2, 1024);
    let is_idle = |rig: &mut Rig| rig.call(rig.u.is_idle_policy, (rig.raw(task), rig.tctx(task)));
    assert!(!is_idle(&mut rig));
    rig.kernel.set_cgroup_idle(1, true);
    assert_eq!(weight(&mut rig, task), 3.0);
    assert!(is_idle(&mut rig));
    let word = rig.remembered(task, |tctx| tctx.share);
    assert_ne!(word & GROUP_FLAGS, 0);
    rig.kernel.set_cgroup_idle(1, false);
    // The kernel has forgotten the 700.
    assert_eq!(weight(&mut rig, task), 1024.0);
    assert!(!is_idle(&mut rig));
}

/// What it is owed, or ahead, is CPU time.
#[test]
fn a_task_with_a_new_weight_is_owed_the_same_cpu_time() {
    let lag = |owed: i64, from, to| {
        let mut rig = rig(&[(0, from)]);
        let task = runnable(&mut rig, 1, 1024);
        assert_eq!(weight(&mut rig, task), f64::from(kernel_weight(from)));
        let vtime = rig.cpu(2, |cctx| cctx.vtime);
        rig.remembered(task, |tctx| (tctx.vtime_cpu, tctx.vruntime) = (2, vtime.wrapping_sub_signed(owed)));
        rig.kernel.set_cgroup_weight(1, to);
        weight(&mut rig, task);
        vtime.wrapping_sub(rig.remembered(task, |tctx| tctx.vruntime)) as i64
    };
    assert_eq!(lag(1_000_000, 100, 100), 1_000_000);
    assert_eq!(lag(1_000_000, 100, 10_000), 10_000);
    assert_eq!(lag(-1_000_000, 100, 10_000), -10_000);
    assert_eq!(lag(1_000_000, 10_000, 100), 100_000_000);
    // A second of CPU time is the most that is kept, be the clock days away.
    for forever in [1 << 45, i64::MAX] {
        assert_eq!(lag(forever, 200, 100), 1_000_000_000);
        assert_eq!(lag(-forever, 200, 100), -1_000_000_000);
    }
}

#[test]
fn without_a_free_id_a_group_counts_as_its_parent() {
    let mut rig = Rig::new("1x1x4x1", &["--max-cgroups", "4"]);
    let make = |rig: &mut Rig, parent| rig.kernel.make_cgroup(&Spec { parent, weight: 100, ..Spec::default() });
    let lost = |rig: &Rig| rig.kernel.native.shared().lost_groups;
    let (first, second) = (make(&mut rig, 0), make(&mut rig, 1));
    rig.kernel.remove_cgroup(second);
    // The id that has been free for longest.
    let more = [0, 0, 0].map(|parent| make(&mut rig, parent));
    assert_eq!([first, more[0], more[1], more[2]].map(|cgroup| rig.kernel.program_id(cgroup)), [1, 3, 4, 2]);
    assert_eq!(lost(&rig), 0);
    // The only one that is free may be the one given last.
    rig.kernel.remove_cgroup(more[2]);
    let again = make(&mut rig, 0);
    assert_eq!(rig.kernel.program_id(again), 2);
    assert_eq!(lost(&rig), 0);
    let beyond = [first, 0].map(|parent| make(&mut rig, parent));
    assert_eq!(beyond.map(|cgroup| rig.kernel.program_id(cgroup)), [1, 0]);
    assert_eq!(lost(&rig), 2);
    // Such a group's weight is not its parent's.
    rig.kernel.set_cgroup_weight(beyond[0], 1234);
    assert_eq!(rig.kernel.native.group(1).weight, 1024);
    rig.kernel.remove_cgroup(beyond[0]);
    assert_eq!(rig.kernel.native.group(1).weight, 1024);
    assert_eq!(lost(&rig), 1);
}

/// mkdir works all the same, and the id is free for the next one.
#[test]
fn without_memory_a_group_counts_as_its_parent() {
    let mut rig = Rig::new("1x1x4x1", &["--max-cgroups", "4"]);
    let first = rig.kernel.make_cgroup(&Spec::default());
    rig.kernel.hashes_full = true;
    let lost: Vec<_> = (0..5).map(|_| rig.kernel.make_cgroup(&Spec { parent: first, ..Spec::default() })).collect();
    rig.kernel.hashes_full = false;
    assert!(lost.iter().all(|&group| rig.kernel.program_id(group) == 1));
    assert_eq!(rig.kernel.native.shared().lost_groups, 5);
    let more = [0, 0, 0].map(|parent| rig.kernel.make_cgroup(&Spec { parent, ..Spec::default() }));
    assert_eq!(more.map(|cgroup| rig.kernel.program_id(cgroup)), [2, 3, 4]);
}

/// As many as there are numbers for, twice: what the first ones had is free again, and their sums are gone.
#[test]
fn ten_thousand_groups_come_and_go() {
    let mut rig = Rig::new("1x1x4x1", &["--max-cgroups", "10000"]);
    for round in 0..2 {
        let groups: Vec<_> = (0..10_000).map(|_| rig.kernel.make_cgroup(&Spec::default())).collect();
        let tasks: Vec<_> = groups.iter().map(|&group| runnable(&mut rig, group, 1024)).collect();
        settled(&mut rig, 0);
        assert!(groups.iter().all(|&group| sums(&rig, group).0 == 1024), "round {round}");
        for &task in &tasks {
            leave(&mut rig, task, 0);
            rig.kernel.move_to_cgroup(task, 0);
        }
        settled(&mut rig, 0);
        for group in groups {
            let id = rig.kernel.program_id(group);
            assert_eq!(rig.kernel.native.group(id).sum, 0, "round {round}");
            rig.kernel.remove_cgroup(group);
        }
        assert_eq!(rig.kernel.native.shared().lost_groups, 0, "round {round}");
    }
}

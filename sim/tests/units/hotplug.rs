// SPDX-License-Identifier: GPL-2.0-only
//! `hotplug.bpf.h`: CPUs that go leave nothing behind, and those that come are used.

use std::collections::BTreeSet;

use magpie_sim::dsq::pinned_queue;
use magpie_sim::native::MAX_CPUS;
use magpie_sim::task::{Place, State};
use proptest::prelude::*;

use crate::rig::Rig;

/// Of the LLC that the CPU is in.
fn nr_cpus(rig: &mut Rig, cpu: usize) -> u32 {
    let llc = rig.kernel.layout.cpus[&cpu].llc as u32;
    // SAFETY: an entry of the program's table.
    unsafe { (*rig.call(rig.u.llc_layout, (llc,))).nr_cpus }
}

fn is_usable(rig: &mut Rig, cpu: usize) -> bool {
    rig.call(rig.u.is_usable, (cpu as i32,))
}

#[test]
fn a_cpu_that_goes_is_not_searched_and_does_not_count() {
    let mut rig = Rig::new("1x2x2x1", &[]);
    assert_eq!(nr_cpus(&mut rig, 3), 2);
    rig.kernel.offline(3);
    assert!(!is_usable(&mut rig, 3));
    assert_eq!((nr_cpus(&mut rig, 3), nr_cpus(&mut rig, 0)), (1, 2));
    assert_eq!(rig.idle(), BTreeSet::from([0, 1, 2]));
    // It idles once more on its way, and says so.
    rig.call(rig.u.mark_idle, (3, rig.cctx(3)));
    assert!(!rig.call(rig.u.claim_idle, (3,)));
    rig.kernel.bring_online(3);
    assert!(is_usable(&mut rig, 3));
    assert_eq!(nr_cpus(&mut rig, 3), 2);
    assert!(!rig.call(rig.u.claim_idle, (3,)), "it has not said that it idles");
    rig.call(rig.u.mark_idle, (3, rig.cctx(3)));
    assert!(rig.call(rig.u.claim_idle, (3,)));
}

/// In each of its three queues.
#[test]
fn what_waits_on_a_cpu_that_goes_is_moved_by_the_kernel() {
    for queue in [3, pinned_queue(3), 2 * MAX_CPUS + 3] {
        let mut rig = Rig::new("1x1x4x1", &[]);
        rig.only_idle(&[]);
        let tasks: Vec<_> = (0..20).map(|_| rig.task()).collect();
        for &task in &tasks {
            rig.kernel.tasks[task].cpu = 3;
            rig.kernel.tasks[task].state = State::Runnable;
            rig.kernel.cpus[3].nr_running += 1;
            rig.kernel.insert(task, queue as u64, Some(0), 0);
        }
        rig.kernel.offline(3);
        assert_eq!(rig.kernel.violation, None);
        for task in tasks {
            let place = rig.kernel.tasks[task].place;
            assert!(matches!(place, Place::Dsq(id) if id < 3), "from {queue}: {place:?}");
        }
    }
}

/// Ids of CPUs may have holes, and the kernel ejects a scheduler that asks about one.
#[test]
fn nothing_is_asked_about_a_cpu_that_can_never_come() {
    let mut rig = Rig::new("1x1x4x1", &[]);
    rig.kernel.offline(3);
    rig.kernel.possible.clear(3);
    for _ in 0..4 {
        rig.call(rig.u.check_unusable, (rig.cctx(0),));
    }
    assert_eq!(rig.kernel.violation, None);
}

/// The loader has not told yet where it stands.
#[test]
fn a_cpu_that_is_not_present_does_not_steal() {
    for present in [true, false] {
        let mut rig = Rig::new("1x1x4x1", &[]);
        rig.only_idle(&[]);
        let task = rig.task();
        rig.queue(task, 0, 1);
        if !present {
            rig.kernel.offline(3);
        }
        rig.kernel.cpu = 3;
        assert_eq!(rig.call(rig.u.steal, (3,)), present);
    }
}

/// A CPU that is not present may idle over a task in its local DSQ: the ticks of another kick it, within a round over all CPUs.
#[test]
fn a_task_left_on_a_cpu_that_is_not_present_is_found() {
    let mut rig = Rig::new("1x2x8x1", &[]);
    rig.only_idle(&[]);
    rig.kernel.offline(13);
    rig.kicked();
    let round = |rig: &mut Rig| {
        for _ in 0..rig.nr_cpus().div_ceil(4) {
            rig.call(rig.u.check_unusable, (rig.cctx(0),));
        }
        rig.kicked()
    };
    assert_eq!(round(&mut rig), [] as [usize; 0]);
    for cpu in [13, 2] {
        let task = rig.task();
        rig.kernel.cpus[cpu].local.push_back(task);
    }
    assert_eq!(round(&mut rig), [13], "CPU 2 is present");
}

#[test]
fn a_cpu_that_was_never_seen_is_used_when_the_loader_has_found_its_place() {
    let mut rig = Rig::with_online("1x2x2x2", [0, 1, 2, 4]);
    assert_eq!(nr_cpus(&mut rig, 0), 3);
    rig.kernel.bring_online(3);
    assert!(!is_usable(&mut rig, 3));
    rig.kernel.follow_hotplug();
    assert!(is_usable(&mut rig, 3));
    assert_eq!(nr_cpus(&mut rig, 0), 4);
    // Its core is whole with it, and not without.
    rig.call(rig.u.mark_idle, (3, rig.cctx(3)));
    assert_eq!(rig.idle(), BTreeSet::from([0, 1, 2, 3, 4]));
}

/// One that fits no place makes the loader start anew.
#[test]
fn an_llc_that_was_never_seen_makes_the_loader_start_anew() {
    let mut rig = Rig::with_online("1x2x2x1", [0, 1]);
    rig.kernel.bring_online(2);
    rig.kernel.follow_hotplug();
    assert_eq!(rig.kernel.layout.llcs.len(), 2);
    assert!(is_usable(&mut rig, 2));
}

/// Where its sibling has gone, a CPU is all of its core.
#[test]
fn a_core_is_whole_without_a_cpu_that_went() {
    let mut rig = Rig::new("1x1x2x2", &[]);
    rig.only_idle(&[2]);
    let find = |rig: &mut Rig| {
        let task = rig.task();
        rig.call(rig.u.scan_window, (rig.raw(task), 0, 0, 1 << 30, true))
    };
    assert_eq!(find(&mut rig), -1);
    rig.kernel.offline(3);
    assert_eq!(find(&mut rig), 2);
}

proptest! {
    /// As many count in each LLC as are there, whatever came and went.
    #[test]
    fn counts_follow(changes in prop::collection::vec(0..8usize, 1..40)) {
        let mut rig = Rig::new("1x2x2x2", &[]);
        for cpu in changes {
            if rig.kernel.online.test(cpu) && rig.kernel.online.len() > 1 {
                rig.kernel.offline(cpu);
            } else if !rig.kernel.online.test(cpu) {
                rig.kernel.bring_online(cpu);
            }
            prop_assert_eq!(rig.kernel.violation.clone(), None);
        }
        for llc in 0..2 {
            let online = (4 * llc..4 * llc + 4).filter(|&cpu| rig.kernel.online.test(cpu)).count() as u32;
            prop_assert_eq!(nr_cpus(&mut rig, 4 * llc), online);
        }
    }
}

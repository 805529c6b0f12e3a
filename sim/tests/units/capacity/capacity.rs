// SPDX-License-Identifier: GPL-2.0-only
//! `capacity/capacity.bpf.h`: which CPUs are strong enough for a task, and which tasks are big.

use proptest::prelude::*;

use crate::rig::Rig;

/// CPUs 0 to 3 are strong, 4 to 7 weak.
const MACHINE: &str = "1x1x8x1:1024*4,430*4";

proptest! {
    /// By the kernel's margin.
    #[test]
    fn a_task_fits_if_it_leaves_a_fifth_of_the_cpu_unused(util in 0..=1024u64, capacity in 1..=1024u64) {
        let mut rig = Rig::new(MACHINE, &[]);
        prop_assert_eq!(rig.call(rig.u.fits_capacity, (util, capacity)), util * 5 < capacity * 4);
    }
}

#[test]
fn nothing_is_too_big_for_the_strongest() {
    let mut rig = Rig::new(MACHINE, &[]);
    for (util, weak, all) in [(0, true, true), (343, true, true), (344, false, false), (1024, false, false)] {
        assert!(rig.call(rig.u.fits_cpu, (util, 0)), "{util}");
        assert_eq!(rig.call(rig.u.fits_cpu, (util, 4)), weak, "{util}");
        assert_eq!(rig.call(rig.u.fits_all, (util,)), all, "{util}");
    }
    assert!(!rig.call(rig.u.is_weak, (3,)) && rig.call(rig.u.is_weak, (4,)));
}

#[test]
fn a_cpu_is_as_strong_as_its_clamp_lets_it_be() {
    let mut rig = Rig::new(MACHINE, &[]);
    rig.kernel.set_reachable(|cpu, capacity| if cpu == 0 { capacity / 4 } else { capacity });
    assert!(rig.call(rig.u.is_weak, (0,)));
    assert!(!rig.call(rig.u.fits_cpu, (300, 0)) && rig.call(rig.u.fits_cpu, (300, 4)));
    assert!(!rig.call(rig.u.fits_all, (300,)));
}

#[test]
fn no_cpu_is_weak_where_all_are_of_one_kind() {
    for (machine, flags) in [("1x1x8x1", &[][..]), (MACHINE, &["--no-capacity"])] {
        let mut rig = Rig::new(machine, flags);
        assert!((0..8).all(|cpu| !rig.call(rig.u.is_weak, (cpu,)) && rig.call(rig.u.fits_cpu, (1000, cpu))));
    }
}

/// A task is big if it does not fit the weakest CPUs.
#[test]
fn big_tasks() {
    for (flags, util, big) in [(&[][..], 343, false), (&[], 344, true), (&["--no-capacity"], 1024, false)] {
        let mut rig = Rig::new(MACHINE, flags);
        let task = rig.task();
        rig.remembered(task, |tctx| tctx.task_util = util);
        assert_eq!(rig.call(rig.u.is_big, (rig.tctx(task).cast_const(),)), big, "{flags:?} {util}");
    }
}

/// What is less than 5 % apart is alike.
#[test]
fn a_few_percent_make_no_cpu_weak() {
    let mut rig = Rig::new("1x1x4x1:1024,980,970,430", &[]);
    for (cpu, weak) in [(0, false), (1, false), (2, true), (3, true)] {
        assert_eq!(rig.call(rig.u.is_weak, (cpu,)), weak, "CPU {cpu}");
        assert_eq!(rig.call(rig.u.fits_cpu, (1000, cpu)), !weak, "CPU {cpu}");
    }
}

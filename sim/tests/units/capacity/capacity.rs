// SPDX-License-Identifier: GPL-2.0-only
//! `capacity/capacity.bpf.h`: which CPU is strong enough for which task.

use proptest::prelude::*;

use crate::rig::Rig;

/// CPUs 0 to 3 are big, 4 to 7 little.
const MACHINE: &str = "1x1x8x1:1024*4,430*4";

proptest! {
    /// The kernel's margin: a task fits if it leaves a fifth of the CPU unused.
    #[test]
    fn a_fifth_stays_unused(util in 0..=1024u64, capacity in 1..=1024u64) {
        let mut rig = Rig::new(MACHINE, &[]);
        prop_assert_eq!(rig.call(rig.u.fits_capacity, (util, capacity)), util * 5 < capacity * 4);
    }
}

#[test]
fn nothing_is_too_big_for_the_strongest() {
    let mut rig = Rig::new(MACHINE, &[]);
    for (util, little, all) in [(0, true, true), (343, true, true), (344, false, false), (1024, false, false)] {
        assert!(rig.call(rig.u.fits_cpu, (util, 0)), "{util}");
        assert_eq!(rig.call(rig.u.fits_cpu, (util, 4)), little, "{util}");
        assert_eq!(rig.call(rig.u.fits_all, (util,)), all, "{util}");
    }
    assert!(!rig.call(rig.u.is_weak, (3,)) && rig.call(rig.u.is_weak, (4,)));
}

/// A clamped CPU is as strong as it can be now.
#[test]
fn clamps_count() {
    let mut rig = Rig::new(MACHINE, &[]);
    rig.kernel.set_reachable(|cpu, capacity| if cpu == 0 { capacity / 4 } else { capacity });
    assert!(rig.call(rig.u.is_weak, (0,)));
    assert!(!rig.call(rig.u.fits_cpu, (300, 0)) && rig.call(rig.u.fits_cpu, (300, 4)));
    assert!(!rig.call(rig.u.fits_all, (300,)));
}

#[test]
fn cpus_of_one_kind_are_none_of_them_weak() {
    for (machine, flags) in [("1x1x8x1", &[][..]), (MACHINE, &["--no-capacity"])] {
        let mut rig = Rig::new(machine, flags);
        assert!((0..8).all(|cpu| !rig.call(rig.u.is_weak, (cpu,)) && rig.call(rig.u.fits_cpu, (1000, cpu))));
    }
}

// SPDX-License-Identifier: GPL-2.0-only
//! `core/topology.bpf.h`: CPUs and slots lead to each other, LLCs to their neighbours.

use std::collections::BTreeSet;

use proptest::prelude::*;

use crate::rig::Rig;

proptest! {
    #[test]
    fn cpus_and_slots_lead_to_each_other(
        shape in prop::sample::select(&["1x1x1x1", "1x1x9x2", "2x3x5x4", "4x4x3x2"]),
        offline in prop::collection::btree_set(0..80usize, 0..30),
    ) {
        // Not the boot CPU.
        let nr = Rig::new(shape, &[]).nr_cpus();
        let online: BTreeSet<_> = (0..nr).filter(|cpu| *cpu == 0 || !offline.contains(cpu)).collect();
        let mut rig = Rig::with_online(shape, online.iter().copied());
        let mut slots = BTreeSet::new();
        for cpu in 0..nr {
            // SAFETY: an entry of the program's table.
            let layout = unsafe { *rig.call(rig.u.cpu_layout, (cpu as i32,)) };
            prop_assert_eq!(rig.call(rig.u.is_usable, (cpu as i32,)), online.contains(&cpu));
            if !online.contains(&cpu) {
                continue;
            }
            prop_assert!(slots.insert(layout.slot), "slot {} twice", layout.slot);
            prop_assert_eq!(rig.call(rig.u.slot_cpu, (layout.slot,)), cpu as i32);
            // SAFETY: as above.
            let llc = unsafe { *rig.call(rig.u.llc_layout, (layout.llc,)) };
            prop_assert!((llc.first_line..llc.first_line + llc.nr_lines).contains(&(layout.slot / 16)));
            for &other in &online {
                let share = rig.kernel.machine.places[cpu].llc == rig.kernel.machine.places[other].llc;
                prop_assert_eq!(rig.call(rig.u.share_llc, (cpu as i32, other as i32)), share);
            }
        }
    }
}

#[test]
fn neighbours_are_all_other_llcs_nearest_first() {
    let mut rig = Rig::new("2x3x2x1", &[]);
    for llc in 0..6u32 {
        let layout = rig.call(rig.u.llc_layout, (llc,));
        let others: Vec<_> = (0..5).map(|i| rig.call(rig.u.other_llc, (layout, i))).collect();
        let all: BTreeSet<_> = others.iter().copied().chain([llc]).collect();
        assert_eq!(all, (0..6).collect());
        // SAFETY: an entry of the program's table.
        assert_eq!(unsafe { (*layout).nr_near }, 2);
        assert!(others[..2].iter().all(|other| other / 3 == llc / 3), "{llc}: {others:?}");
    }
}

/// Each CPU's state is its own, and the executing CPU finds its own.
#[test]
fn each_cpu_has_a_context() {
    let mut rig = Rig::new("1x1x4x1", &[]);
    for cpu in 0..4 {
        rig.kernel.cpu = cpu;
        assert_eq!(rig.call(rig.u.cpu_ctx, (cpu as i32,)), rig.cctx(cpu));
        assert_eq!(rig.call(rig.u.this_cpu_ctx, ()), rig.cctx(cpu));
    }
}

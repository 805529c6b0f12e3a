// SPDX-License-Identifier: GPL-2.0-only
//! `core/idle.bpf.h`: a CPU is claimed once, until it marks itself idle again.

use std::collections::BTreeSet;

use proptest::prelude::*;

use crate::rig::Rig;

proptest! {
    /// Whatever CPUs do to themselves and others to them, in any order, against a set.
    #[test]
    fn an_idle_cpu_is_claimed_once(ops in prop::collection::vec((0..3u8, 0..40usize), 0..100)) {
        let mut rig = Rig::new("1x2x10x2", &[]);
        let (mut idle, mut free) = (BTreeSet::new(), BTreeSet::new());
        rig.only_idle(&[]);
        for (op, cpu) in ops {
            let args = (cpu as i32, rig.cctx(cpu));
            match op {
                0 => {
                    rig.call(rig.u.mark_idle, args);
                    idle.insert(cpu);
                    free.insert(cpu);
                }
                1 => {
                    rig.call(rig.u.mark_busy, args);
                    idle.remove(&cpu);
                    free.remove(&cpu);
                }
                _ => prop_assert_eq!(rig.call(rig.u.claim_idle, (cpu as i32,)), free.remove(&cpu)),
            }
            prop_assert_eq!(rig.cpu(cpu, |cctx| cctx.idle != 0), idle.contains(&cpu));
        }
        prop_assert_eq!(rig.idle(), free);
    }
}

/// Only a CPU that leaves the idle loop clears its bit: one that was busy leaves the map alone.
#[test]
fn busy_again_changes_nothing() {
    let mut rig = Rig::new("1x1x4x1", &[]);
    rig.cpu(2, |cctx| cctx.idle = 0);
    rig.call(rig.u.mark_busy, (2, rig.cctx(2)));
    assert!(rig.idle().contains(&2));
}

/// It has no slot: that in its layout is another CPU's.
#[test]
fn a_cpu_that_came_online_later_is_not_claimed() {
    let mut rig = Rig::with_online("1x1x4x1", [0, 1, 3]);
    rig.only_idle(&[]);
    rig.call(rig.u.mark_idle, (2, rig.cctx(2)));
    assert!(!rig.call(rig.u.claim_idle, (2,)));
    let bits: Vec<u64> = rig.kernel.native.map_lines(0)[0].iter().map(|line| line.bits).collect();
    assert_eq!((rig.idle(), bits), (BTreeSet::new(), vec![0]));
    rig.only_idle(&[0]);
    assert!(!rig.call(rig.u.claim_idle, (2,)));
    rig.call(rig.u.mark_busy, (2, rig.cctx(2)));
    assert_eq!(rig.idle(), [0].into());
}

#[test]
fn the_hint_of_an_idle_core_is_set_by_its_last_cpu() {
    let mut rig = Rig::new("1x2x4x2", &[]);
    rig.only_idle(&[]);
    let hint = |rig: &mut Rig, llc: u32| {
        let llc = rig.call(rig.u.llc_ctx, (llc,));
        // SAFETY: the program does not run.
        unsafe { std::mem::take(&mut (*llc).has_idle_core) != 0 }
    };
    hint(&mut rig, 0);
    hint(&mut rig, 1);
    let idle = |rig: &mut Rig, cpu: i32| rig.call(rig.u.mark_idle, (cpu, rig.cctx(cpu as usize)));
    for (cpu, whole) in [(8, false), (11, false), (9, true), (12, false), (13, true), (10, true)] {
        idle(&mut rig, cpu);
        assert_eq!((hint(&mut rig, 0), hint(&mut rig, 1)), (false, whole), "CPU {cpu}");
    }
}

/// Whatever the affinity of tasks: it serves a thief that leaves a task behind.
#[test]
fn any_idle_cpu_of_one_llc_is_claimed() {
    let mut rig = Rig::new("1x2x4x1", &[]);
    rig.only_idle(&[2, 5, 7]);
    let claim = |rig: &mut Rig, llc: u32, slot: u32| rig.call(rig.u.any_idle, (llc, slot));
    let slot = rig.kernel.layout.cpus[&6].slot as u32;
    assert_eq!([claim(&mut rig, 1, slot), claim(&mut rig, 1, slot), claim(&mut rig, 1, slot)], [7, 5, -1]);
    assert_eq!(rig.idle(), [2].into());
}

// SPDX-License-Identifier: GPL-2.0-only
//! `core/bitmap.bpf.h`, against sets of slots.

use std::collections::BTreeSet;

use proptest::prelude::*;
use scx_magpie::bpf_intf::sparse_map;

use crate::rig::Rig;
use magpie_sim::native::ALL_SLOTS;

const LINE: usize = 16;

/// A map of the test's own.
fn empty() -> Box<sparse_map> {
    // SAFETY: plain integers.
    Box::new(unsafe { std::mem::zeroed() })
}

/// With these slots set.
fn filled(slots: &BTreeSet<usize>) -> Box<sparse_map> {
    let mut map = empty();
    slots.iter().for_each(|slot| map.lines[slot / LINE].bits |= 1 << (slot % LINE));
    map
}

/// The slots of an LLC.
fn slots_of(rig: &Rig, llc: usize) -> std::ops::Range<usize> {
    let llc = &rig.kernel.layout.llcs[llc];
    llc.first_line * LINE..llc.first_line * LINE + llc.nr_slots
}

/// All that a walk visits, in order.
fn walk(rig: &mut Rig, map: &mut sparse_map, llc: usize, slot: usize, window: usize, whole_cores: bool) -> Vec<usize> {
    let mut walk = rig.call(rig.u.map_walk_from, (llc as u32, slot as u32, window as u32));
    walk.whole_cores = whole_cores;
    let mut visited = Vec::new();
    while rig.call(rig.u.map_walk_next, (&raw mut *map, &raw mut walk)) {
        visited.push(walk.slot as usize);
    }
    visited
}

/// What it should visit: those of `window` slots after `slot` that are set, wrapping. From a slot of another LLC, as from
/// one of the first line.
fn expected(set: &BTreeSet<usize>, own: std::ops::Range<usize>, slot: usize, window: usize) -> Vec<usize> {
    let from = if own.contains(&slot) { slot - own.start } else { slot % LINE };
    let start = if from + 1 < own.len() { from + 1 } else { 0 };
    let slots = (0..window.min(own.len())).map(|i| own.start + (start + i) % own.len());
    slots.filter(|slot| set.contains(slot)).collect()
}

const ALL: usize = ALL_SLOTS as usize;
const MACHINES: [&str; 6] = ["1x1x1x1", "1x1x16x1", "1x1x17x1", "1x2x9x2", "2x2x5x4", "1x3x20x2"];

proptest! {
    #[test]
    fn bits_are_those_of_a_set(ops in prop::collection::vec((0..3u8, 0..80usize), 0..100)) {
        let mut rig = Rig::new("1x2x20x2", &[]);
        let (mut map, mut model) = (empty(), BTreeSet::new());
        let slot_cpus = rig.kernel.layout.slot_cpus.clone();
        for (op, slot) in ops {
            if slot_cpus[slot].is_none() {
                continue;
            }
            let args = (&raw mut *map, slot as u32);
            match op {
                0 => {
                    rig.call(rig.u.map_set, args);
                    model.insert(slot);
                }
                1 => prop_assert_eq!(rig.call(rig.u.map_test_and_clear, args), model.remove(&slot)),
                _ => prop_assert_eq!(rig.call(rig.u.map_test, args), model.contains(&slot)),
            }
            for llc in 0..2 {
                let any = model.range(slots_of(&rig, llc)).next().is_some();
                prop_assert_eq!(rig.call(rig.u.map_any, (&raw mut *map, llc as u32)), any, "LLC {}", llc);
            }
        }
        let bits = |map: &sparse_map| map.lines.iter().map(|line| line.bits).collect::<Vec<_>>();
        prop_assert_eq!(bits(&map), bits(&filled(&model)));
    }

    #[test]
    fn a_walk_visits_each_set_slot_of_its_llc_once_from_after_the_start(
        machine in prop::sample::select(&MACHINES),
        set in prop::collection::btree_set(0..200usize, 0..60),
        slot in 0..250usize,
        llc in 0..4usize,
        window in prop_oneof![1 => Just(ALL), 3 => 1..70usize],
    ) {
        let mut rig = Rig::new(machine, &[]);
        let llc = llc % rig.kernel.layout.llcs.len();
        let own = slots_of(&rig, llc);
        let inside: BTreeSet<_> = set.range(own.clone()).copied().collect();
        let mut map = filled(&inside);
        let visited = walk(&mut rig, &mut map, llc, slot, window, false);
        prop_assert_eq!(visited, expected(&inside, own, slot, window));
    }

    #[test]
    fn a_walk_over_whole_cores_visits_a_slot_of_each(
        smt in prop::sample::select(&[1usize, 2, 4, 8, 16]),
        cores in 1..20usize,
        offline in prop::collection::btree_set(0..100usize, 0..40),
        set in prop::collection::vec(prop::bool::weighted(0.8), 320),
        slot in 0..320usize,
    ) {
        // Some CPUs, of odd ids, were offline at the start; others have gone since, the first of a core like any.
        let nr = cores * smt;
        let online: Vec<_> = (0..nr).filter(|cpu| cpu % 2 == 0 || !offline.contains(cpu)).collect();
        let mut rig = Rig::with_online(&format!("1x1x{cores}x{smt}"), online);
        let gone: Vec<_> = (1..nr).filter(|cpu| cpu % 2 == 0 && offline.contains(cpu)).collect();
        gone.iter().for_each(|&cpu| rig.kernel.offline(cpu));
        let own = slots_of(&rig, 0);
        let mut slot_cpus = rig.kernel.layout.slot_cpus.clone();
        slot_cpus.iter_mut().for_each(|slot| *slot = slot.filter(|cpu| !gone.contains(cpu)));
        let set: BTreeSet<_> = own.clone().filter(|&slot| slot_cpus[slot].is_some() && set[slot]).collect();
        let width = rig.kernel.layout.smt_width;
        let whole = |first: usize| {
            let mut cpus = (first..first + width).filter(|&slot| slot_cpus[slot].is_some()).peekable();
            cpus.peek().is_some() && cpus.all(|slot| set.contains(&slot))
        };
        // Its first slot, or its last one if the first is offline.
        let ends = |first: usize| [first, first + width - 1].into_iter().find(|&slot| slot_cpus[slot].is_some());
        let firsts: BTreeSet<_> = own.clone().step_by(width).filter(|&first| whole(first)).filter_map(ends).collect();
        let mut map = filled(&set);
        let visited = walk(&mut rig, &mut map, 0, slot, ALL, true);
        prop_assert_eq!(visited, expected(&firsts, own, slot, ALL));
    }
}

/// Lines are read as the walk comes to them: what another CPU does to those that it has passed does not make it longer.
#[test]
fn a_walk_ends_while_others_set_bits() {
    let mut rig = Rig::new("1x1x48x1", &[]);
    let mut map = filled(&(0..48).collect());
    let mut walk = rig.call(rig.u.map_walk_from, (0, 20, ALL_SLOTS));
    let mut visited = Vec::new();
    while rig.call(rig.u.map_walk_next, (&raw mut *map, &raw mut walk)) {
        visited.push(walk.slot);
        map.lines[..3].iter_mut().for_each(|line| line.bits = 0xffff);
    }
    assert_eq!(visited, (21..48).chain(0..21).collect::<Vec<_>>());
}

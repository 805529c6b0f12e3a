// SPDX-License-Identifier: GPL-2.0-only
//! The layouts that the loader makes of simulated machines, as CPUs come and go.

use std::collections::{BTreeMap, BTreeSet};

use magpie_sim::machine::Machine;

#[test]
fn layouts_follow_hotplug_and_capacity() {
    let machine = Machine::new(&"2x2x2x2:1024*2,430*2".parse().unwrap());
    let mut online: BTreeSet<_> = (0..16).collect();
    let layout = machine.layout(&online).unwrap();
    assert_eq!((layout.cpus.len(), layout.llcs.len(), layout.smt_width), (16, 4, 2));
    assert_eq!((layout.cpus[&0].capacity, layout.cpus[&4].capacity), (1024, 430));
    assert_eq!(layout.llcs[0].nr_near, 1);
    online.retain(|cpu| !(4..8).contains(cpu));
    let layout = machine.layout(&online).unwrap();
    assert_eq!((layout.cpus.len(), layout.llcs.len()), (12, 3));
    assert_eq!(layout.cpus[&8].node, 1);
}

/// Two nodes with an LLC of two cores each.
#[test]
fn cpus_that_come_get_a_place() {
    let machine = Machine::new(&"2x1x2x2".parse().unwrap());
    let machine_of = |ids: &[usize]| machine.layout(&ids.iter().copied().collect()).unwrap();
    let whole = machine_of(&[0, 1, 2, 3, 4, 5, 6, 7]);
    let mut layout = machine_of(&[0, 1, 4, 5]);
    let known = layout.cpus.clone();
    let all = |_| true;
    assert_eq!(layout.follow(&whole, all), Some(vec![2, 3, 6, 7]));
    assert!(known.iter().all(|(id, place)| layout.cpus[id] == *place));
    for (id, cpu) in &layout.cpus {
        assert_eq!((layout.slot_cpus[cpu.slot], cpu.llc, cpu.node), (Some(*id), id / 4, id / 4));
        assert_eq!(cpu.slot / 2, layout.cpus[&(id & !1)].slot / 2, "CPU {id} is beside its sibling");
    }
    assert_eq!((layout.llcs[1].nr_cpus, layout.llcs[1].nr_slots, layout.llcs[1].capacity), (4, 4, 4096));
    // They go, and come: nothing new.
    assert_eq!(layout.follow(&machine_of(&[0, 5]), all), Some(vec![]));
    assert_eq!(layout.follow(&whole, all), Some(vec![]));

    assert_eq!(machine_of(&[0, 1, 2, 3]).follow(&whole, |id| id < 4), Some(vec![]), "not there yet");
    assert_eq!(machine_of(&[0, 1, 2, 3]).follow(&whole, all), None, "an LLC that is new");
    assert_eq!(machine_of(&[0, 2, 4, 6]).follow(&whole, all), None, "a second CPU in a core");
    assert_eq!(machine_of(&[0, 1, 4]).follow(&whole, all), Some(vec![2, 3, 5, 6, 7]));
    let mut tight = machine_of(&[0, 1, 4, 5]);
    tight.llcs[0].nr_lines = 0;
    assert_eq!(tight.follow(&whole, all), None, "no room");
    let mut half = machine_of(&[0, 1, 4, 5]);
    half.llcs[1].nr_lines = 0;
    assert_eq!(half.follow(&whole, all), None, "no room in the second LLC");
    assert_eq!(half.cpus.len(), 4, "nor half of them");
    let mut moved = whole.clone();
    moved.cpus.get_mut(&0).unwrap().llc = 1;
    assert_eq!(layout.follow(&moved, all), None, "a CPU that stands elsewhere");
    let mut weak = machine_of(&[0, 1, 4, 5]);
    weak.set_capacities(&BTreeMap::from([(0, 400)]));
    assert_eq!(weak.follow(&whole, all), None, "CPUs differ");
}

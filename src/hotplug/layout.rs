// SPDX-License-Identifier: GPL-2.0-only
//! Add new CPUs to a layout: they get free places, and all other CPUs keep theirs.

use std::collections::BTreeMap;

use crate::bpf_intf::magpie_limits_SLOTS_PER_LINE as SLOTS_PER_LINE;
use crate::topology::{CpuPlace, Layout};

impl Layout {
    /// Add the new CPUs of `fresh`, the machine's current layout, and return them. `None`: they fit
    /// no free place, or known CPUs have moved. CPUs that are not `online` are skipped, because
    /// sysfs shows only a part of them.
    pub fn follow(&mut self, fresh: &Self, online: impl Fn(usize) -> bool) -> Option<Vec<usize>> {
        // Work on a copy: if one CPU does not fit, none is added.
        let mut grown = self.clone();
        let came = grown.grow(fresh, online)?;
        *self = grown;
        Some(came)
    }

    fn grow(&mut self, fresh: &Self, online: impl Fn(usize) -> bool) -> Option<Vec<usize>> {
        let cpus: BTreeMap<usize, &CpuPlace> =
            fresh.cpus.iter().filter(|(id, _)| online(**id)).map(|(id, cpu)| (*id, cpu)).collect();
        let known: Vec<_> = cpus.iter().filter_map(|(id, cpu)| Some((*cpu, self.cpus.get(id)?))).collect();
        let llcs = one_to_one(known.iter().map(|(fresh, own)| (fresh.llc, own.llc)))?;
        let mut cores = one_to_one(known.iter().map(|(fresh, own)| (fresh.core, own.core)))?;
        let moved = known.iter().any(|(fresh, own)| fresh.node != own.node);
        let came: Vec<_> = cpus.keys().copied().filter(|id| !self.cpus.contains_key(id)).collect();
        if moved || (!came.is_empty() && (self.nr_stronger() > 0 || fresh.is_ranked())) {
            return None;
        }
        for &id in &came {
            let cpu = cpus[&id];
            let index = *llcs.get(&cpu.llc)?;
            let core =
                *cores.entry(cpu.core).or_insert_with(|| self.cpus.values().map(|cpu| cpu.core + 1).max().unwrap_or(0));
            let slot = self.free_slot(index, core)?;
            let llc = &mut self.llcs[index];
            if llc.node != cpu.node || self.cpus.values().any(|other| other.capacity != cpu.capacity) {
                return None;
            }
            llc.nr_cpus += 1;
            llc.capacity += cpu.capacity;
            llc.nr_slots = llc.nr_slots.max(slot + 1 - llc.first_line * SLOTS_PER_LINE as usize);
            self.slot_cpus[slot] = Some(id);
            self.cpus.insert(id, CpuPlace { llc: index, core, slot, scan_from: slot, ..cpu.clone() });
        }
        Some(came)
    }

    /// Return a free slot next to the CPUs of the core, or where the next core begins.
    fn free_slot(&self, llc: usize, core: usize) -> Option<usize> {
        let (llc, width) = (&self.llcs[llc], self.smt_width);
        let (first, end) =
            (llc.first_line * SLOTS_PER_LINE as usize, (llc.first_line + llc.nr_lines) * SLOTS_PER_LINE as usize);
        let sibling = self.cpus.values().find(|cpu| cpu.core == core);
        let start = sibling.map_or((first + llc.nr_slots).next_multiple_of(width), |cpu| cpu.slot - cpu.slot % width);
        (start..start + width).find(|&slot| slot < end && self.slot_cpus[slot].is_none())
    }
}

/// Map each index of theirs to ours. `None` if the mapping is not one to one.
fn one_to_one(pairs: impl Iterator<Item = (usize, usize)>) -> Option<BTreeMap<usize, usize>> {
    let (mut ours, mut theirs) = (BTreeMap::new(), BTreeMap::new());
    for (their, our) in pairs {
        if *ours.entry(their).or_insert(our) != our || *theirs.entry(our).or_insert(their) != their {
            return None;
        }
    }
    Some(ours)
}

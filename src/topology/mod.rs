// SPDX-License-Identifier: GPL-2.0-only
//! The machine as the BPF program sees it: LLC, node, slot and capacity of each CPU; lines and
//! order of neighbours of each LLC. `bpf/intf.h` draws slots and lines.
//!
//! ```text
//! sysfs --check.rs: plausible?--> scx_utils::Topology --llcs.rs: CPUs without L3--lay_out.rs--> Layout
//!                                 kinds.rs: capacities, preferred cores----------^               ^
//!                                               new CPUs --hotplug: free places------------------+
//! ```

mod check;
pub mod cpulist;
pub mod kinds;
mod lay_out;
pub mod llcs;
mod print;

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;
use std::{fs, thread};

use anyhow::Result;
use scx_utils::{Core, NR_CPUS_POSSIBLE, ROOT_PREFIX, Topology, read_cpulist};

use crate::bpf_intf::{
    magpie_limits_SLOTS_PER_LINE as SLOTS_PER_LINE, pelt_consts_CAPACITY_SCALE as CAPACITY_SCALE, pelt_consts_STRONGER,
};
use crate::exit::Refusal;
use kinds::Kinds;
use lay_out::first_cpu;
use llcs::LlcKind;

/// How often an implausible topology is read, and the pause between reads.
const READS: usize = 5;
const READ_AGAIN: Duration = Duration::from_millis(100);

/// Place of a CPU in the layout.
#[derive(Clone, Debug, PartialEq)]
pub struct CpuPlace {
    /// Index into [`Layout::llcs`].
    pub llc: usize,
    /// The kernel's node id.
    pub node: usize,
    /// Index of the CPU's core among all cores.
    pub core: usize,
    /// The CPU's bit in the sparse bitmaps.
    pub slot: usize,
    /// The kernel's CPU capacity, or [`Kinds`]' value: 1..=1024.
    pub capacity: usize,
    /// Higher ranks are preferred among CPUs of one kind; 0 if unknown.
    pub rank: usize,
    /// Scans for an idle CPU begin after this slot: the CPU's, or the last of a ranked LLC.
    pub scan_from: usize,
    /// The kernel can stop the tick of this CPU.
    pub nohz_full: bool,
}

/// An LLC and its neighbours.
#[derive(Clone, Debug, PartialEq)]
pub struct LlcPlace {
    /// What the CPUs of the LLC have in common.
    pub kind: LlcKind,
    pub node: usize,
    pub nr_cpus: usize,
    /// Sum of the CPUs' capacities.
    pub capacity: usize,
    pub first_line: usize,
    pub nr_lines: usize,
    /// Slots from the first CPU's to the last CPU's, both included.
    pub nr_slots: usize,
    /// Indices of all other LLCs, nearest first: first LLCs of this node, then by node distance.
    pub others: Vec<usize>,
    /// How many of `others` are on the same node.
    pub nr_near: usize,
}

/// The machine.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Layout {
    /// CPUs by the kernel's id: online at the start, or [added](Layout::follow) later.
    pub cpus: BTreeMap<usize, CpuPlace>,
    pub llcs: Vec<LlcPlace>,
    /// Maximum number of CPUs per core, rounded up to a power of two.
    pub smt_width: usize,
    /// CPU id of each slot; `None` for a free slot.
    pub slot_cpus: Vec<Option<usize>>,
    /// Sources of capacities and ranks.
    pub capacities_from: &'static str,
    pub ranks_from: &'static str,
}

impl Layout {
    /// Return the number of NUMA nodes with CPUs.
    pub fn nr_nodes(&self) -> usize {
        self.cpus.values().map(|cpu| cpu.node).collect::<BTreeSet<_>>().len()
    }

    /// Return the CPUs of each node that has any.
    pub fn node_cpus(&self) -> BTreeMap<i32, Vec<usize>> {
        let mut nodes: BTreeMap<i32, Vec<usize>> = BTreeMap::new();
        for (&id, cpu) in &self.cpus {
            nodes.entry(cpu.node as i32).or_default().push(id);
        }
        nodes
    }

    /// Return true if CPUs of one LLC differ in rank.
    pub fn is_ranked(&self) -> bool {
        let ranks = |llc| self.cpus.values().filter(move |cpu| cpu.llc == llc).map(|cpu| cpu.rank);
        (0..self.llcs.len()).any(|llc| ranks(llc).min() != ranks(llc).max())
    }

    /// Lay out this machine, with room for CPUs that may appear. Fails with [`Refusal::Topology`]
    /// if sysfs is implausible. For `weak_first` see [`Kinds::weak_first`].
    pub fn of_this_machine(weak_first: bool) -> Result<Self> {
        let mut problem = String::new();
        // Hotplug between two reads looks like a problem, but not repeatedly.
        for _ in 0..READS {
            problem = match Self::read(weak_first)? {
                Ok(layout) => return Ok(layout),
                Err(problem) => problem,
            };
            thread::sleep(READ_AGAIN);
        }
        Err(Refusal::Topology { problem }.into())
    }

    /// Read this machine's topology once. The inner error says what is implausible.
    pub fn read(weak_first: bool) -> Result<Result<Self, String>> {
        if let Some(problem) = check::missing_in_sysfs() {
            return Ok(Err(problem));
        }
        let mut topo = match Topology::new() {
            Ok(topo) => topo,
            Err(err) => return Ok(Err(format!("sysfs cannot be read: {err:#}"))),
        };
        let first_of = |core: &Core, id| first_sibling(id).unwrap_or_else(|| first_cpu(core));
        let llc_kinds = llcs::regroup(&mut topo, first_of);
        let may_come = NR_CPUS_POSSIBLE.saturating_sub(topo.all_cpus.len());
        let cpus: Vec<_> = topo.all_cpus.keys().copied().collect();
        let devices = format!("{}/sys/devices", *ROOT_PREFIX);
        let kinds = Kinds { weak_first, ..Kinds::read(devices.as_ref(), &cpus) };
        let lay_out = |room| Self::with_cores(&topo, room, &kinds, first_of);
        // If an LLC has no room for all possible CPUs, no LLC gets room: new CPUs need a reload.
        let mut layout = lay_out(may_come).or_else(|_| lay_out(0))?;
        for (llc, kind) in layout.llcs.iter_mut().zip(llc_kinds) {
            llc.kind = kind;
        }
        let problem = check::problem(&layout.cpus.keys().copied().collect(), &topo.span.iter().collect());
        Ok(problem.map_or(Ok(layout), Err))
    }

    /// The ids of the CPUs, strongest first.
    pub fn capacity_order(&self) -> Vec<usize> {
        let mut order: Vec<usize> = self.cpus.keys().copied().collect();
        order.sort_by_key(|id| Reverse(self.cpus[id].capacity));
        order
    }

    /// Return the number of CPUs stronger than the weakest; 0 if all are of one kind.
    pub fn nr_stronger(&self) -> usize {
        let weakest = self.cpus.values().map(|cpu| cpu.capacity).min().unwrap_or(0);
        self.cpus.values().filter(|cpu| is_stronger(cpu.capacity, weakest)).count()
    }

    /// Set the kernel's capacities of CPUs. CPUs that are not in the map keep theirs.
    pub fn set_capacities(&mut self, capacities: &BTreeMap<usize, usize>) {
        if !capacities.is_empty() {
            self.capacities_from = "the kernel";
        }
        for (id, &capacity) in capacities {
            if let Some(cpu) = self.cpus.get_mut(id) {
                let llc = &mut self.llcs[cpu.llc];
                llc.capacity = llc.capacity - cpu.capacity + capacity;
                cpu.capacity = capacity;
            }
        }
    }

    /// Return the first and the last slots of all cores as bits of a line.
    pub fn core_ends(&self) -> (u32, u32) {
        let first = (0..SLOTS_PER_LINE).step_by(self.smt_width).fold(0, |bits, slot| bits | 1 << slot);
        (first, first << (self.smt_width - 1))
    }
}

/// Return true if `capacity` exceeds `other` by 5 %, as the kernel's capacity_greater(). With a
/// smaller threshold every busy task would move to the one core that is slightly faster.
pub fn is_stronger(capacity: usize, other: usize) -> bool {
    capacity * CAPACITY_SCALE as usize > other * pelt_consts_STRONGER as usize
}

/// Return the first CPU of a CPU's core, by `core_cpus_list` of sysfs.
fn first_sibling(id: usize) -> Option<usize> {
    let list = format!("{}/sys/devices/system/cpu/cpu{id}/topology/core_cpus_list", *ROOT_PREFIX);
    read_cpulist(&fs::read_to_string(list).ok()?).ok()?.first().copied()
}

#[cfg(test)]
mod tests {
    use super::*;
    use scx_utils::testutils::make_test_topo;

    #[test]
    fn capacities_that_sysfs_does_not_show() {
        let (topo, _) = make_test_topo(1, 2, 2, 1);
        let mut layout = Layout::new(&topo, 0).unwrap();
        assert_eq!((layout.nr_stronger(), layout.llcs[0].capacity), (0, 2048));
        layout.set_capacities(&BTreeMap::from([(1, 400), (2, 800), (9, 5)]));
        assert_eq!((layout.nr_stronger(), layout.capacity_order()), (3, vec![0, 3, 2, 1]));
        assert_eq!((layout.llcs[0].capacity, layout.llcs[1].capacity), (1424, 1824));
    }
}

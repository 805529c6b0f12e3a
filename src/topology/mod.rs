// SPDX-License-Identifier: GPL-2.0-only
//! The machine as the BPF program is told of it: each CPU's LLC, node, slot and capacity; each LLC's lines in
//! the sparse bitmaps and the order of its neighbours. `bpf/intf.h` draws what slots and lines are.
//!
//! ```text
//! sysfs --check.rs: can it be right?--> scx_utils::Topology --llcs.rs: where there is no L3--lay_out.rs--> Layout
//!                                     kinds.rs: how CPUs differ, which are preferred-------------^         ^
//!                                                   CPUs that come --hotplug: free places------------------+
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

/// How often sysfs is read, if it cannot be right, and how long it has in between.
const READS: usize = 5;
const READ_AGAIN: Duration = Duration::from_millis(100);

/// Where a CPU stands.
#[derive(Clone, Debug, PartialEq)]
pub struct CpuPlace {
    /// Index into [`Layout::llcs`].
    pub llc: usize,
    /// The kernel's node id.
    pub node: usize,
    /// Index of its core among all cores.
    pub core: usize,
    /// Its bit in the sparse bitmaps.
    pub slot: usize,
    /// The kernel's CPU capacity, or what [`Kinds`] knows: 1..=1024.
    pub capacity: usize,
    /// The higher, the more preferred among CPUs of one kind; 0 where none is known.
    pub rank: usize,
    /// The slot after which scans for an idle CPU begin: its own, or the last of the LLC where its first cores are preferred.
    pub scan_from: usize,
    /// The kernel can stop its tick.
    pub nohz_full: bool,
}

/// An LLC and its neighbours.
#[derive(Clone, Debug, PartialEq)]
pub struct LlcPlace {
    /// What its CPUs share.
    pub kind: LlcKind,
    pub node: usize,
    pub nr_cpus: usize,
    /// Sum of its CPUs' capacities.
    pub capacity: usize,
    pub first_line: usize,
    pub nr_lines: usize,
    /// From its first CPU's slot to its last's.
    pub nr_slots: usize,
    /// Indices of all other LLCs, nearest first: those of the node, then by the distance of the nodes.
    pub others: Vec<usize>,
    /// How many of `others` are on the same node.
    pub nr_near: usize,
}

/// The machine.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Layout {
    /// CPUs by the kernel's id: those that were online, and [came](Layout::follow) since.
    pub cpus: BTreeMap<usize, CpuPlace>,
    pub llcs: Vec<LlcPlace>,
    /// CPUs a core at most, rounded up to a power of two.
    pub smt_width: usize,
    /// CPU id of each slot; `None` where there is no CPU.
    pub slot_cpus: Vec<Option<usize>>,
    /// Where capacities and ranks are known from.
    pub capacities_from: &'static str,
    pub ranks_from: &'static str,
}

impl Layout {
    /// NUMA nodes that have CPUs online.
    pub fn nr_nodes(&self) -> usize {
        self.cpus.values().map(|cpu| cpu.node).collect::<BTreeSet<_>>().len()
    }

    /// CPUs online of each node that has any.
    pub fn node_cpus(&self) -> BTreeMap<i32, Vec<usize>> {
        let mut nodes: BTreeMap<i32, Vec<usize>> = BTreeMap::new();
        for (&id, cpu) in &self.cpus {
            nodes.entry(cpu.node as i32).or_default().push(id);
        }
        nodes
    }

    /// Are some CPUs of an LLC preferred to others?
    pub fn is_ranked(&self) -> bool {
        let ranks = |llc| self.cpus.values().filter(move |cpu| cpu.llc == llc).map(|cpu| cpu.rank);
        (0..self.llcs.len()).any(|llc| ranks(llc).min() != ranks(llc).max())
    }

    /// Lays this machine out, with room for CPUs that may come. Fails with [`Refusal::Topology`] when what sysfs says cannot be
    /// right. With `weak_first` slots of weak CPUs come first: see [`Kinds::weak_first`].
    pub fn of_this_machine(weak_first: bool) -> Result<Self> {
        let mut problem = String::new();
        // A CPU that comes or goes meanwhile looks like a problem, but not twice.
        for _ in 0..READS {
            problem = match Self::read(weak_first)? {
                Ok(layout) => return Ok(layout),
                Err(problem) => problem,
            };
            thread::sleep(READ_AGAIN);
        }
        Err(Refusal::Topology { problem }.into())
    }

    /// The same, once: the inner error is what cannot be right.
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
        // Where each LLC has no room for all of them, none has: then they make the loader start anew.
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

    /// CPUs that are stronger than the weakest; 0 where all are of one kind.
    pub fn nr_stronger(&self) -> usize {
        let weakest = self.cpus.values().map(|cpu| cpu.capacity).min().unwrap_or(0);
        self.cpus.values().filter(|cpu| is_stronger(cpu.capacity, weakest)).count()
    }

    /// CPUs have other capacities than sysfs says, which the kernel knows; those that are not named keep theirs.
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

    /// In a line's bits, the first slot of each core and the last.
    pub fn core_ends(&self) -> (u32, u32) {
        let first = (0..SLOTS_PER_LINE).step_by(self.smt_width).fold(0, |bits, slot| bits | 1 << slot);
        (first, first << (self.smt_width - 1))
    }
}

/// Does one CPU's capacity exceed the other's by 5 %, as the kernel's capacity_greater() has it? What is less apart is alike: else
/// any busy task would hunt the one core that is a little faster.
pub fn is_stronger(capacity: usize, other: usize) -> bool {
    capacity * CAPACITY_SCALE as usize > other * pelt_consts_STRONGER as usize
}

/// The first CPU of a CPU's core, as the kernel itself has it.
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

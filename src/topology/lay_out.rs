// SPDX-License-Identifier: GPL-2.0-only
//! Lay out a machine: assign slots to CPUs, and lines and an order of neighbours to LLCs.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use anyhow::{Result, ensure};
use scx_utils::{Core, Cpu, Llc, Topology};

use super::kinds::Kinds;
use super::llcs::LlcKind;
use super::{CpuPlace, Layout, LlcPlace};
use crate::bpf_intf::{
    magpie_limits_LINES_PER_LLC as LINES_PER_LLC, magpie_limits_MAX_CPUS as MAX_CPUS,
    magpie_limits_MAX_LINES as MAX_LINES, magpie_limits_MAX_LLCS as MAX_LLCS,
    magpie_limits_MAX_NODE_IDS as MAX_NODE_IDS, magpie_limits_SLOTS_PER_LINE as SLOTS_PER_LINE,
    pelt_consts_CAPACITY_SCALE as CAPACITY_SCALE,
};
use crate::exit::Refusal;

impl Layout {
    /// Lay out a machine with CPUs of one kind and right core ids, with `room` for more CPUs in
    /// each LLC. Fails with [`Refusal::TooLarge`] if it exceeds a limit of `bpf/intf.h`.
    pub fn new(topo: &Topology, room: usize) -> Result<Self> {
        Self::with_kinds(topo, room, &Kinds::default())
    }

    /// Lay out a machine whose CPUs differ.
    pub fn with_kinds(topo: &Topology, room: usize, kinds: &Kinds) -> Result<Self> {
        Self::with_cores(topo, room, kinds, |core, _| first_cpu(core))
    }

    /// Lay out a machine where `first_of` returns the first CPU of a CPU's core.
    pub(super) fn with_cores(
        topo: &Topology,
        room: usize,
        kinds: &Kinds,
        first_of: impl Fn(&Core, usize) -> usize,
    ) -> Result<Self> {
        let max_id = topo.all_cpus.keys().max().copied().unwrap_or(0);
        ensure_fits(max_id < MAX_CPUS as usize, || format!("CPU id {max_id}, at most {MAX_CPUS} CPUs"))?;
        let llc_cores: Vec<Cores> = topo.all_llcs.values().map(|llc| split_cores(llc, &first_of)).collect();
        let smt_width =
            llc_cores.iter().flat_map(BTreeMap::values).map(Vec::len).max().unwrap_or(1).next_power_of_two();
        ensure_fits(smt_width <= SLOTS_PER_LINE as usize, || {
            format!("{smt_width} CPUs in a core, at most {SLOTS_PER_LINE}")
        })?;
        let llcs: Vec<&Llc> = topo.all_llcs.values().map(|llc| llc.as_ref()).collect();
        ensure_fits(llcs.len() <= MAX_LLCS as usize, || format!("{} LLCs, at most {MAX_LLCS}", llcs.len()))?;

        let exports = topo.all_cpus.values().any(|cpu| cpu.kernel_cpu_capacity.is_some());
        let capacities_from = if exports { "cpu_capacity" } else { kinds.capacities_from };
        let mut layout = Self { smt_width, capacities_from, ranks_from: kinds.ranks_from, ..Self::default() };
        let rank_of = |id: usize| kinds.ranks.get(&id).copied().unwrap_or(0);
        let capacity_of = |cpu: &Cpu| {
            let known = cpu.kernel_cpu_capacity.or(kinds.capacities.get(&cpu.id).copied());
            known.unwrap_or(CAPACITY_SCALE as usize)
        };
        let mut nr_cores = 0;
        for (index, llc) in llcs.iter().enumerate() {
            let node = llc.node_id;
            ensure_fits(node < MAX_NODE_IDS as usize, || format!("node {node}, at most {MAX_NODE_IDS} nodes"))?;
            let first_line = layout.slot_cpus.len() / SLOTS_PER_LINE as usize;
            let mut capacity = 0;
            let mut cores: Vec<_> = llc_cores[index].values().collect();
            cores.sort_by_key(|core| {
                let capacity = core.iter().map(|cpu| capacity_of(cpu)).max().filter(|_| kinds.weak_first);
                (capacity, Reverse(core.iter().map(|cpu| rank_of(cpu.id)).max()))
            });
            for core in cores {
                for cpu in core {
                    let place = CpuPlace {
                        llc: index,
                        node: llc.node_id,
                        core: nr_cores,
                        slot: layout.slot_cpus.len(),
                        capacity: capacity_of(cpu),
                        rank: rank_of(cpu.id),
                        scan_from: layout.slot_cpus.len(),
                        nohz_full: kinds.nohz_full.contains(&cpu.id),
                    };
                    capacity += place.capacity;
                    layout.cpus.insert(cpu.id, place);
                    layout.slot_cpus.push(Some(cpu.id));
                }
                layout.slot_cpus.resize(layout.slot_cpus.len().next_multiple_of(smt_width), None);
                nr_cores += 1;
            }
            let nr_slots = layout.slot_cpus.len() - first_line * SLOTS_PER_LINE as usize;
            layout.slot_cpus.resize(layout.slot_cpus.len() + room * smt_width, None);
            layout.slot_cpus.resize(layout.slot_cpus.len().next_multiple_of(SLOTS_PER_LINE as usize), None);

            let nr_lines = layout.slot_cpus.len() / SLOTS_PER_LINE as usize - first_line;
            ensure_fits(nr_lines <= LINES_PER_LLC as usize, || {
                format!(
                    "LLC {index} with {nr_slots} CPUs, or places for CPUs, at most {}",
                    LINES_PER_LLC * SLOTS_PER_LINE
                )
            })?;

            let others = neighbours(topo, &llcs, index);
            layout.llcs.push(LlcPlace {
                kind: LlcKind::Cache(3),
                node: llc.node_id,
                nr_cpus: llc_cores[index].values().map(Vec::len).sum(),
                capacity,
                first_line,
                nr_lines,
                nr_slots,
                nr_near: others.iter().filter(|&&other| llcs[other].node_id == llc.node_id).count(),
                others,
            });
        }
        let nr_lines = layout.slot_cpus.len() / SLOTS_PER_LINE as usize;
        ensure_fits(nr_lines <= MAX_LINES as usize, || format!("{nr_lines} bitmap lines, at most {MAX_LINES}"))?;
        if kinds.weak_first || layout.is_ranked() {
            for cpu in layout.cpus.values_mut() {
                let llc = &layout.llcs[cpu.llc];
                cpu.scan_from = llc.first_line * SLOTS_PER_LINE as usize + llc.nr_slots - 1;
            }
        }
        Ok(layout)
    }
}

/// Fail if the machine exceeds a limit. `problem` returns the actual value and the limit.
fn ensure_fits(fits: bool, problem: impl FnOnce() -> String) -> Result<()> {
    ensure!(fits, Refusal::TooLarge { problem: problem() });
    Ok(())
}

/// CPUs of each core of an LLC, by the core's first CPU.
type Cores<'a> = BTreeMap<usize, Vec<&'a Cpu>>;

pub(super) fn first_cpu(core: &Core) -> usize {
    core.cpus.keys().next().copied().unwrap_or(0)
}

/// Return the cores of an LLC. `Topology` identifies cores by package and core_id, but core_id
/// restarts in each cluster of many Arm machines: its core then has CPUs of all clusters.
fn split_cores<'a>(llc: &'a Llc, first_of: impl Fn(&Core, usize) -> usize) -> Cores<'a> {
    let mut cores = Cores::new();
    for core in llc.cores.values() {
        for (&id, cpu) in &core.cpus {
            cores.entry(first_of(core, id)).or_default().push(cpu);
        }
    }
    cores
}

/// Return the other LLCs, nearest first; equal ones from `index` on, so that orders differ.
fn neighbours(topo: &Topology, llcs: &[&Llc], index: usize) -> Vec<usize> {
    let node = llcs[index].node_id;
    // `distance` has an entry for each online node, in order. Node ids may have holes.
    let position = |node| topo.nodes.keys().position(|id| *id == node);
    let distance = |other: usize| match llcs[other].node_id {
        id if id == node => Some(0),
        id => topo.nodes.get(&node).and_then(|n| n.distance.get(position(id)?).copied()),
    };
    let mut others: Vec<usize> = (1..llcs.len()).map(|step| (index + step) % llcs.len()).collect();
    others.sort_by_key(|&other| distance(other).unwrap_or(usize::MAX));
    others
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    use proptest::prelude::*;
    use scx_utils::testutils::{make_het_test_topo, make_test_topo};

    #[test]
    fn siblings_are_neighbours_and_llcs_start_lines() {
        let (topo, _) = make_test_topo(2, 1, 9, 2);
        let layout = Layout::new(&topo, 0).unwrap();
        assert_eq!(layout.smt_width, 2);
        assert_eq!(layout.core_ends(), (0x5555, 0xaaaa));
        assert_eq!(layout.llcs[0].nr_lines, 2); // 18 CPUs
        assert_eq!(layout.llcs[1].first_line, 2);
        assert_eq!(layout.cpus[&0].slot, 0);
        assert_eq!(layout.cpus[&1].slot, 1);
        assert_eq!(layout.cpus[&18].slot, 32);
        assert_eq!(layout.llcs[0].others, [1]);
        assert_eq!(layout.llcs[0].nr_near, 0);
    }

    /// Many Arm machines number core_id from 0 in each cluster.
    #[test]
    fn cores_of_two_clusters_stay_apart() {
        let (topo, _) = make_test_topo(1, 1, 4, 2);
        assert_eq!(Layout::new(&topo, 0).unwrap().smt_width, 2);
        let layout = Layout::with_cores(&topo, 0, &Kinds::default(), |_, id| id).unwrap();
        assert_eq!(layout.smt_width, 1);
        assert_eq!(layout.llcs[0].nr_cpus, 8);
        assert_eq!(layout.cpus.values().map(|cpu| cpu.core).collect::<Vec<_>>(), (0..8).collect::<Vec<_>>());
        assert_eq!(layout.slot_cpus[..8], (0..8).map(Some).collect::<Vec<_>>());
    }

    #[test]
    fn near_llcs_come_first_and_thieves_spread() {
        let (topo, _) = make_test_topo(2, 3, 1, 1);
        let layout = Layout::new(&topo, 0).unwrap();
        assert_eq!(layout.llcs[0].others, [1, 2, 3, 4, 5]);
        assert_eq!(layout.llcs[1].others[..2], [2, 0]);
        assert_eq!(layout.llcs[4].others[..2], [5, 3]);
        assert_eq!(layout.llcs[0].nr_near, 2);
    }

    #[test]
    fn distances_go_by_the_order_of_nodes() {
        let (mut topo, _) = make_test_topo(3, 1, 1, 1);
        for (old, new) in [(2, 7), (1, 3)] {
            Arc::make_mut(topo.all_llcs.get_mut(&old).unwrap()).node_id = new;
            let node = topo.nodes.remove(&old).unwrap();
            topo.nodes.insert(new, node);
        }
        topo.nodes.get_mut(&0).unwrap().distance = vec![10, 30, 20];
        topo.nodes.get_mut(&3).unwrap().distance = vec![30, 10, 40];
        let layout = Layout::new(&topo, 0).unwrap();
        assert_eq!(layout.llcs[0].others, [2, 1]);
        assert_eq!(layout.llcs[1].others, [0, 2]);
    }

    #[test]
    fn too_large_a_machine_is_refused() {
        let (topo, _) = make_test_topo(1, 257, 1, 1);
        let err = Layout::new(&topo, 0).unwrap_err();
        assert_eq!(err.downcast_ref(), Some(&Refusal::TooLarge { problem: "257 LLCs, at most 256".into() }));
    }

    proptest! {
        /// Each CPU has a unique slot on a line of its LLC; orders contain all other LLCs once.
        #[test]
        fn layouts_are_consistent(nodes in prop::collection::vec(prop::collection::vec(1..20usize, 1..4), 1..4), smt in 0..3u32) {
            let shape: Vec<&[usize]> = nodes.iter().map(Vec::as_slice).collect();
            let (topo, nr_cpus) = make_het_test_topo(&shape, 1 << smt);
            let layout = Layout::new(&topo, 0).unwrap();
            prop_assert_eq!(layout.cpus.len(), nr_cpus);
            for (id, cpu) in &layout.cpus {
                prop_assert_eq!(layout.slot_cpus[cpu.slot], Some(*id));
                let llc = &layout.llcs[cpu.llc];
                prop_assert!((llc.first_line..llc.first_line + llc.nr_lines).contains(&(cpu.slot / SLOTS_PER_LINE as usize)));
            }
            for (index, llc) in layout.llcs.iter().enumerate() {
                let mut all = llc.others.clone();
                all.push(index);
                all.sort();
                prop_assert!(all.into_iter().eq(0..layout.llcs.len()));
                let near = llc.others[..llc.nr_near].iter().all(|&other| layout.llcs[other].node == llc.node);
                prop_assert!(near);
            }
        }
    }
}

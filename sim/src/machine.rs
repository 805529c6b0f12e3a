// SPDX-License-Identifier: GPL-2.0-only
//! The simulated machine: its shape, by preset or description, and the layout that the loader's
//! code computes for it.
//!
//! ```text
//! "2x8x8x2" or "2s8l16" --Shape--> scx_utils::Topology --scx_magpie::topology::Layout--> the BPF program's tables
//! ```

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use anyhow::{Context, Result, bail, ensure};
use scx_magpie::topology::Layout;
use scx_magpie::topology::kinds::Kinds;
use scx_utils::testutils::{make_test_topo, test_core, test_cpu, test_llc, test_node};
use scx_utils::{Topology, set_cpumask_test_width};
use serde_with::{DeserializeFromStr, SerializeDisplay};

use crate::native::MAX_CPUS;

pub const PRESETS: [(&str, &str, &str); 6] = [
    ("vm", "2x1x4x1", "the test VM: 2 nodes of 1 LLC of 4 CPUs"),
    ("112", "1x1x56x2", "one LLC of 112 CPUs (56 cores, SMT 2)"),
    ("2s8l16", "2x8x8x2", "2 sockets of 8 LLCs of 16 CPUs (8 cores, SMT 2)"),
    ("2x48x2", "2x1x48x2", "2 sockets of 48 cores, SMT 2"),
    ("biglittle", "1x1x8x1:1024*4,430*4", "4 big and 4 little CPUs, one LLC"),
    ("1024", "4x16x8x2", "4 sockets of 16 LLCs of 16 CPUs"),
];

/// NODES x LLCS per node x CORES per LLC x CPUS per core; optional capacities (and ranks after @)
/// of cores in order, repeated over the machine; /nohz: all CPUs except the first are nohz_full.
#[derive(Clone, Debug, PartialEq, Eq, SerializeDisplay, DeserializeFromStr)]
pub struct Shape {
    pub nodes: usize,
    pub llcs: usize,
    pub cores: usize,
    pub smt: usize,
    /// Capacities of cores in order, 1..1024; repeated if there are more cores.
    pub capacities: Vec<usize>,
    /// Ranks of the same cores: higher ones are preferred.
    pub ranks: Vec<usize>,
    /// All CPUs except the first are nohz_full.
    pub nohz_full: bool,
}

/// The test VM.
impl Default for Shape {
    fn default() -> Self {
        let (capacities, ranks) = (vec![1024], vec![0]);
        Self { nodes: 2, llcs: 1, cores: 4, smt: 1, capacities, ranks, nohz_full: false }
    }
}

impl Shape {
    pub fn nr_cpus(&self) -> usize {
        self.nodes * self.llcs * self.cores * self.smt
    }
}

impl FromStr for Shape {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> Result<Self> {
        let text = PRESETS.iter().find(|(name, ..)| *name == text).map_or(text, |(_, shape, _)| shape);
        let (shape, nohz_full) = text.strip_suffix("/nohz").map_or((text, false), |shape| (shape, true));
        let (counts, capacities) = shape.split_once(':').unwrap_or((shape, "1024"));
        let counts: Vec<usize> = (counts.split('x').map(str::parse).collect::<Result<_, _>>()).with_context(|| {
            let presets: Vec<_> = PRESETS.iter().map(|(name, ..)| *name).collect();
            format!(
                "'{text}' is neither NODESxLLCSxCORESxSMT[:CAPACITY[@RANK][*CORES],...][/nohz] nor one of {}",
                presets.join(", ")
            )
        })?;
        let [nodes, llcs, cores, smt] = counts[..] else { bail!("'{text}' does not have four counts") };
        ensure!(counts.iter().all(|&count| count > 0), "'{text}' has a count of 0");

        let mut shape = Self { nodes, llcs, cores, smt, capacities: Vec::new(), ranks: Vec::new(), nohz_full };
        for part in capacities.split(',') {
            let (capacity, times) = part.split_once('*').unwrap_or((part, "1"));
            let (capacity, rank) = capacity.split_once('@').unwrap_or((capacity, "0"));
            let capacity: usize = capacity.parse().with_context(|| format!("capacity '{part}'"))?;
            let rank: usize = rank.parse().with_context(|| format!("rank '{part}'"))?;
            ensure!((1..=1024).contains(&capacity), "capacity {capacity} is not in 1..1024");
            let times: usize = times.parse().with_context(|| format!("capacity '{part}'"))?;
            shape.capacities.extend(std::iter::repeat_n(capacity, times));
            shape.ranks.extend(std::iter::repeat_n(rank, times));
        }
        ensure!(shape.nr_cpus() <= MAX_CPUS, "{} CPUs: at most {MAX_CPUS} are supported", shape.nr_cpus());
        ensure!(shape.capacities.contains(&1024), "no core of capacity 1024");
        Ok(shape)
    }
}

impl fmt::Display for Shape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}x{}x{}x{}", self.nodes, self.llcs, self.cores, self.smt)?;
        let cores: Vec<_> = self.capacities.iter().zip(&self.ranks).collect();
        if cores != [(&1024, &0)] {
            let text = |chunk: &[(&usize, &usize)]| match chunk[0] {
                (capacity, 0) => format!("{capacity}*{}", chunk.len()),
                (capacity, rank) => format!("{capacity}@{rank}*{}", chunk.len()),
            };
            let parts: Vec<_> = cores.chunk_by(|a, b| a == b).map(text).collect();
            write!(f, ":{}", parts.join(","))?;
        }
        if self.nohz_full {
            write!(f, "/nohz")?;
        }
        Ok(())
    }
}

/// Place of a CPU. Ids are unique in the machine.
#[derive(Clone, Copy, Debug)]
pub struct Place {
    pub core: usize,
    pub llc: usize,
    pub node: usize,
    pub capacity: u64,
    pub rank: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Distance {
    Same,
    Core,
    Llc,
    Node,
    Far,
}

pub struct Machine {
    pub shape: Shape,
    pub places: Vec<Place>,
}

impl Machine {
    pub fn new(shape: &Shape) -> Self {
        let places = (0..shape.nr_cpus())
            .map(|cpu| {
                let core = cpu / shape.smt;
                let llc = core / shape.cores;
                let capacity = shape.capacities[core % shape.capacities.len()] as u64;
                let rank = shape.ranks[core % shape.ranks.len()];
                Place { core, llc, node: llc / shape.llcs, capacity, rank }
            })
            .collect();
        Self { shape: shape.clone(), places }
    }

    pub fn nr_cpus(&self) -> usize {
        self.places.len()
    }

    pub fn is_nohz_full(&self, cpu: usize) -> bool {
        self.shape.nohz_full && cpu > 0
    }

    pub fn distance(&self, a: usize, b: usize) -> Distance {
        let (pa, pb) = (&self.places[a], &self.places[b]);
        match () {
            () if a == b => Distance::Same,
            () if pa.core == pb.core => Distance::Core,
            () if pa.llc == pb.llc => Distance::Llc,
            () if pa.node == pb.node => Distance::Node,
            () => Distance::Far,
        }
    }

    pub fn siblings(&self, cpu: usize) -> std::ops::Range<usize> {
        let first = cpu - cpu % self.shape.smt;
        first..first + self.shape.smt
    }

    /// Return the layout that the loader computes while the CPUs `online` are.
    pub fn layout(&self, online: &BTreeSet<usize>) -> Result<Layout> {
        self.layout_for(online, false)
    }

    /// Return that layout; with `weak_first` for packing tasks on weak CPUs.
    pub fn layout_for(&self, online: &BTreeSet<usize>, weak_first: bool) -> Result<Layout> {
        let ranks = online.iter().map(|&id| (id, self.places[id].rank)).collect();
        let nohz_full = online.iter().copied().filter(|&id| self.is_nohz_full(id)).collect();
        let kinds = Kinds { ranks, weak_first, nohz_full, ..Kinds::default() };
        Layout::with_kinds(&self.topology(online), self.nr_cpus() - online.len(), &kinds)
    }

    fn topology(&self, online: &BTreeSet<usize>) -> Topology {
        let mut cores: BTreeMap<(usize, usize, usize), BTreeMap<usize, Arc<scx_utils::Cpu>>> = BTreeMap::new();
        for &id in online {
            let place = &self.places[id];
            let mut cpu = test_cpu(id, place.core, place.llc, place.node);
            cpu.kernel_cpu_capacity = Some(place.capacity as usize);
            cores.entry((place.node, place.llc, place.core)).or_default().insert(id, Arc::new(cpu));
        }
        // scx_utils creates only regular machines: start with the smallest, and replace its parts.
        let mut topo = make_test_topo(1, 1, 1, 1).0;
        set_cpumask_test_width(self.nr_cpus());
        topo.all_cpus = cores.values().flatten().map(|(&id, cpu)| (id, cpu.clone())).collect();
        topo.all_cores = (cores.into_iter())
            .map(|((node, llc, core), cpus)| (core, Arc::new(test_core(core, cpus, llc, node))))
            .collect();
        let mut llcs: BTreeMap<(usize, usize), BTreeMap<usize, Arc<scx_utils::Core>>> = BTreeMap::new();
        for (&id, core) in &topo.all_cores {
            llcs.entry((core.node_id, core.llc_id)).or_default().insert(id, core.clone());
        }
        topo.all_llcs =
            llcs.into_iter().map(|((node, llc), cores)| (llc, Arc::new(test_llc(llc, cores, node)))).collect();
        topo.nodes.clear();
        for id in 0..self.shape.nodes {
            let own = topo.all_llcs.iter().filter(|(_, llc)| llc.node_id == id);
            let mut node = test_node(id, own.map(|(&id, llc)| (id, llc.clone())).collect(), self.shape.nodes);
            // Distances of the kernel's numa_emulation and of most two-socket boards.
            node.distance = (0..self.shape.nodes).map(|other| if other == id { 10 } else { 20 }).collect();
            topo.nodes.insert(id, node);
        }
        topo
    }
}

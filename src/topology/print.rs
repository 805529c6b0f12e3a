// SPDX-License-Identifier: GPL-2.0-only
//! Format a layout and its classes of CPUs for `scx_magpie topology`.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use super::cpulist::list;
use super::{CpuPlace, Layout, is_stronger};

impl Layout {
    /// Return CPUs by class of similar capacity, weakest first. The key is the least capacity.
    pub fn capacity_classes(&self) -> BTreeMap<usize, Vec<usize>> {
        let mut classes: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
        for &id in self.capacity_order().iter().rev() {
            let capacity = self.cpus[&id].capacity;
            let class = classes.keys().last().copied().filter(|&least| !is_stronger(capacity, least));
            classes.entry(class.unwrap_or(capacity)).or_default().push(id);
        }
        classes.values_mut().for_each(|cpus| cpus.sort_unstable());
        classes
    }

    /// Return CPUs by rank, the most preferred first; a single class if CPUs are not ranked.
    fn rank_classes(&self) -> Vec<Vec<usize>> {
        let mut classes: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
        for (&id, cpu) in &self.cpus {
            classes.entry(cpu.rank).or_default().push(id);
        }
        classes.into_values().rev().collect()
    }
}

impl fmt::Display for Layout {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let nodes: BTreeSet<_> = self.llcs.iter().map(|llc| llc.node).collect();
        writeln!(
            f,
            "{} CPUs, {} LLCs, {} nodes, {} CPUs a core",
            self.cpus.len(),
            self.llcs.len(),
            nodes.len(),
            self.smt_width
        )?;
        let classes = self.capacity_classes();
        if classes.len() > 1 {
            let text = |(least, cpus): (&usize, &Vec<usize>)| {
                let most = cpus.iter().map(|id| self.cpus[id].capacity).max().unwrap_or(*least);
                let range = if most > *least { format!("{least}-{most}") } else { least.to_string() };
                format!("capacity {range}: CPUs {}", list(cpus))
            };
            let texts: Vec<_> = classes.iter().map(text).collect();
            writeln!(f, "{} ({})", texts.join("; "), self.capacities_from)?;
        }
        let ranked = self.is_ranked();
        if ranked {
            let texts: Vec<_> = self.rank_classes().iter().map(|cpus| list(cpus)).collect();
            writeln!(f, "preferred first: CPUs {} ({})", texts.join(", "), self.ranks_from)?;
        }
        for node in nodes {
            writeln!(f, "node {node}")?;
            for (index, llc) in self.llcs.iter().enumerate().filter(|(_, llc)| llc.node == node) {
                let order: Vec<_> = llc.others.iter().map(usize::to_string).collect();
                let order = if order.is_empty() { "none".into() } else { order.join(" ") };
                writeln!(f, "  LLC {index} ({}): {} CPUs; other LLCs, nearest first: {order}", llc.kind, llc.nr_cpus)?;
                let mut cores: BTreeMap<usize, Vec<(usize, &CpuPlace)>> = BTreeMap::new();
                for (id, cpu) in self.cpus.iter().filter(|(_, cpu)| cpu.llc == index) {
                    cores.entry(cpu.core).or_default().push((*id, cpu));
                }
                for (core, cpus) in cores {
                    let ids: Vec<_> = cpus.iter().map(|(id, _)| id.to_string()).collect();
                    let (_, first) = cpus[0];
                    let rank = if ranked { format!("rank {:<4} ", first.rank) } else { String::new() };
                    writeln!(f, "    core {core:<4} capacity {:<5} {rank}CPU {}", first.capacity, ids.join(" "))?;
                }
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::topology::kinds::Kinds;
    use scx_utils::testutils::make_test_topo;

    /// CPUs 0-3 are little, 4-7 big. Cores have two CPUs, whose ids differ by two.
    #[test]
    fn capacity_classes_are_told() {
        let (topo, _) = make_test_topo(1, 1, 8, 1);
        let mut layout = Layout::with_cores(&topo, 0, &Kinds::default(), |_, id| id & !2).unwrap();
        assert_eq!(layout.smt_width, 2);
        assert_eq!(layout.slot_cpus[..4], [Some(0), Some(2), Some(1), Some(3)]);
        assert!(!layout.to_string().contains("capacity 1024: "));
        for id in 0..4 {
            layout.cpus.get_mut(&id).unwrap().capacity = 430;
        }
        assert_eq!(layout.capacity_classes()[&430], [0, 1, 2, 3]);
        assert!(layout.to_string().contains("\ncapacity 430: CPUs 0-3; capacity 1024: CPUs 4-7 (cpu_capacity)\n"));
    }

    #[test]
    fn a_few_percent_are_no_difference() {
        let (topo, _) = make_test_topo(1, 1, 4, 1);
        let mut layout = Layout::new(&topo, 0).unwrap();
        layout.set_capacities(&BTreeMap::from([(0, 973), (1, 1000)]));
        assert_eq!((layout.nr_stronger(), layout.capacity_classes().len()), (0, 1));
        layout.set_capacities(&BTreeMap::from([(0, 972)]));
        assert_eq!((layout.nr_stronger(), layout.capacity_classes().len()), (2, 2));
        assert!(layout.to_string().contains("\ncapacity 972-1000: CPUs 0-1; capacity 1024: CPUs 2-3 (the kernel)\n"));
    }
}

// SPDX-License-Identifier: GPL-2.0-only
//! Statistics of NUMA nodes in an interval, and of the memory sampler (src/numa).

use std::collections::BTreeMap;
use std::time::Duration;

use scx_stats_derive::{Stats, stat_doc};
use serde::{Deserialize, Serialize};

use super::snapshot::{LlcSnapshot, SamplerSnapshot, Snapshot};
use super::{percent, rise};
use crate::bpf_intf::*;

/// Statistics of a NUMA node in an interval.
#[stat_doc]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, Stats)]
#[stat(_om_prefix = "n_", _om_label = "node")]
#[serde(default)]
pub struct Node {
    #[stat(desc = "run time on this node of tasks that prefer it, in %, sampled by ticks")]
    pub on_preferred: f64,
    #[stat(desc = "ticks that found a task with a preferred node running on this node")]
    pub checks: u64,
    #[stat(desc = "of checks, ticks that found a task that prefers this node")]
    pub checks_preferred: u64,
    #[stat(desc = "CPUs online")]
    pub nr_cpus: u64,
    #[stat(desc = "utilization (PELT) in % of the capacity of the CPUs of this node")]
    pub util: f64,
    #[stat(desc = "tasks that wait in queues of this node now")]
    pub nr_queued: u64,
    #[stat(desc = "wakeups that wake-affine moved from other nodes to this node")]
    pub affine_far: u64,
    #[stat(desc = "tasks that CPUs of this node stole from other nodes")]
    pub steal_far: u64,
    #[stat(desc = "tasks that returned to this node, which they prefer: on wakeup, by stealing, or while they ran")]
    pub preferred_back: u64,
    #[stat(
        desc = "ticks on this node that found a task off its preferred node and left it there because of --numa-backoff"
    )]
    pub preferred_held: u64,
}

impl Snapshot {
    /// Return the increase since `prev` by node; empty if the machine has one node.
    pub fn nodes_since(&self, prev: &Self, interval: Duration) -> BTreeMap<usize, Node> {
        let mut nodes: BTreeMap<usize, LlcSnapshot> = BTreeMap::new();
        let mut before: BTreeMap<usize, LlcSnapshot> = BTreeMap::new();
        for (llcs, nodes) in [(&self.llcs, &mut nodes), (&prev.llcs, &mut before)] {
            for llc in llcs {
                nodes.entry(llc.node).and_modify(|sum| *sum += llc).or_insert_with(|| llc.clone());
            }
        }
        if nodes.len() < 2 {
            return BTreeMap::new();
        }
        let of = |(id, node): (&usize, &LlcSnapshot)| {
            let before = before.get(id);
            let since = |stat: magpie_stat| {
                let count = |node: &LlcSnapshot| node.counters[stat as usize];
                rise(count(node), before.map_or(0, count))
            };
            let checks_preferred = since(magpie_stat_STAT_ON_PREFERRED);
            let of = node.since(before, interval);
            let node = Node {
                on_preferred: of.on_preferred,
                checks: checks_preferred + since(magpie_stat_STAT_OFF_PREFERRED),
                checks_preferred,
                nr_cpus: of.nr_cpus,
                util: of.util,
                nr_queued: of.nr_queued,
                affine_far: of.affine_far,
                steal_far: of.steal_far,
                preferred_back: of.preferred_wake + of.preferred_steal + of.preferred_move,
                preferred_held: of.preferred_held,
            };
            (*id, node)
        };
        nodes.iter().map(of).collect()
    }
}

/// Statistics of the memory sampler in an interval; all 0 on machines with one node.
#[stat_doc]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, Stats)]
#[serde(default)]
pub struct Memory {
    #[stat(desc = "processes whose memory was sampled completely")]
    pub samples: u64,
    #[stat(desc = "samplings interrupted after --numa-sample-ms, to be continued later")]
    pub cut: u64,
    #[stat(desc = "CPU time of memory sampling, in % of one CPU")]
    pub cost: f64,
    #[stat(desc = "CPU time of memory sampling, in nanoseconds")]
    pub cpu_ns: u64,
    #[stat(desc = "longest sampling without a pause since the start, in microseconds of CPU time")]
    pub longest_us: u64,
    #[stat(desc = "processes known now to have most of their memory on one node")]
    pub known: u64,
}

impl SamplerSnapshot {
    /// Return the increase since `prev`, `interval` ago.
    pub fn since(&self, prev: &Self, interval: Duration) -> Memory {
        Memory {
            samples: rise(self.samples, prev.samples),
            cut: rise(self.cut, prev.cut),
            cost: percent(rise(self.cpu_ns, prev.cpu_ns), interval.as_nanos() as u64),
            cpu_ns: rise(self.cpu_ns, prev.cpu_ns),
            longest_us: self.longest_ns / 1000,
            known: self.known,
        }
    }
}

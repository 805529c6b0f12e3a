// SPDX-License-Identifier: GPL-2.0-only
//! What an interval added by NUMA node: how local its tasks are.

use std::collections::BTreeMap;
use std::time::Duration;

use scx_stats_derive::{Stats, stat_doc};
use serde::{Deserialize, Serialize};

use super::rise;
use super::snapshot::{LlcSnapshot, NO_COUNTERS, Snapshot};
use crate::bpf_intf::*;

/// What an interval added, of a NUMA node.
#[stat_doc]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, Stats)]
#[stat(_om_prefix = "n_", _om_label = "node")]
pub struct Node {
    #[stat(desc = "run time there of tasks whose home it is %, by ticks")]
    pub at_home: f64,
    #[stat(desc = "tasks seen to run there by ticks")]
    pub looks: u64,
}

impl Snapshot {
    /// By node, of machines with several.
    pub fn nodes_since(&self, prev: &Self, interval: Duration) -> BTreeMap<usize, Node> {
        let mut nodes: BTreeMap<usize, LlcSnapshot> = BTreeMap::new();
        let mut before = BTreeMap::new();
        for (llcs, nodes) in [(&self.llcs, &mut nodes), (&prev.llcs, &mut before)] {
            for llc in llcs {
                let sum = nodes.entry(llc.node).or_insert_with(|| LlcSnapshot { counters: NO_COUNTERS, ..llc.clone() });
                for (total, count) in sum.counters.iter_mut().zip(llc.counters) {
                    *total += count;
                }
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
            let looks = since(magpie_stat_STAT_HOME) + since(magpie_stat_STAT_AWAY);
            (*id, Node { at_home: node.since(before, interval).at_home, looks })
        };
        nodes.iter().map(of).collect()
    }
}

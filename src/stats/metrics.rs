// SPDX-License-Identifier: GPL-2.0-only
//! What an interval added, all of it: what the socket sends, and what prints.

use std::collections::BTreeMap;
use std::time::Duration;

use scx_stats_derive::{Stats, stat_doc};
use serde::{Deserialize, Serialize};

use super::cgroups;
use super::group::Group;
use super::memory::Memory;
use super::nodes::Node;
use super::snapshot::Snapshot;
use super::wake_cases::WakeCase;

/// What an interval added: the machine's total and each LLC's share.
#[stat_doc]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, Stats)]
#[stat(top)]
pub struct Metrics {
    #[stat(desc = "milliseconds for which events were counted")]
    pub interval_ms: u64,
    #[stat(desc = "version of the scheduler")]
    #[serde(default)]
    pub version: String,
    #[stat(desc = "release of the kernel that it runs on")]
    #[serde(default)]
    pub kernel: String,
    #[stat(desc = "seconds since it was attached")]
    #[serde(default)]
    pub uptime_s: u64,
    #[stat(desc = "what of it counts on this machine: cgroups, NUMA, SMT, capacity")]
    #[serde(default)]
    pub mode: String,
    #[stat(desc = "its flags that are not the default, as on a command line")]
    #[serde(default)]
    pub flags: String,
    #[stat(desc = "the whole machine")]
    pub total: Group,
    #[stat(desc = "cgroups")]
    pub cgroups: cgroups::Cgroups,
    #[stat(desc = "where processes have their memory")]
    pub memory: Memory,
    #[stat(desc = "where wakeups went, by the size of the task and of its CPUs")]
    pub wake_cases: BTreeMap<usize, WakeCase>,
    #[stat(desc = "by NUMA node")]
    pub nodes: BTreeMap<usize, Node>,
    #[stat(desc = "by LLC")]
    pub llcs: BTreeMap<usize, Group>,
}

impl Snapshot {
    /// What came in the `interval` since `prev`.
    pub fn since(&self, prev: &Self, interval: Duration) -> Metrics {
        Metrics {
            interval_ms: interval.as_millis() as u64,
            version: self.about.version.clone(),
            kernel: self.about.kernel.clone(),
            uptime_s: self.at.saturating_sub(self.about.attached_at).as_secs(),
            mode: self.about.mode.clone(),
            flags: self.about.flags.clone(),
            cgroups: self.cgroups.since(&prev.cgroups, interval),
            memory: self.sampler.since(&prev.sampler, interval),
            wake_cases: self.wake_cases.since(&prev.wake_cases),
            nodes: self.nodes_since(prev, interval),
            total: self.whole().map(|whole| whole.since(prev.whole().as_ref(), interval)).unwrap_or_default(),
            llcs: self.llcs.iter().enumerate().map(|(id, llc)| (id, llc.since(prev.llcs.get(id), interval))).collect(),
        }
    }
}

#[cfg(test)]
pub mod tests {
    use super::*;
    use crate::bpf_intf::*;
    use crate::stats::snapshot::LlcSnapshot;

    pub const SECOND: Duration = Duration::from_secs(1);

    /// Two LLCs, whose counters are as many times as high.
    pub fn snapshot(counts: [u64; 2]) -> Snapshot {
        let llc = |count| LlcSnapshot {
            nr_cpus: 4,
            capacity: 4096,
            sum_util: 2048,
            nr_queued: 3,
            max_queued: count,
            node: 0,
            nr_scan: 2,
            latencies: std::array::from_fn(|_| count),
            counters: std::array::from_fn(|stat| count * (stat as u64 + 1)),
            stolen_from: std::array::from_fn(|llc| count * llc as u64),
        };
        Snapshot { llcs: counts.map(llc).into(), ..Snapshot::default() }
    }

    #[test]
    fn intervals_add_up() {
        let metrics = snapshot([5, 9]).since(&snapshot([1, 2]), SECOND);
        assert_eq!(metrics.llcs[&0].search, 4);
        assert_eq!(metrics.llcs[&1].target, 7 * 2);
        assert_eq!(metrics.total.search, 4 + 7);
        assert_eq!(metrics.total.stolen_from[..3], [0, 4 + 7, 2 * (4 + 7)]);
        assert_eq!(metrics.total.util, 50.0);
        assert_eq!((metrics.total.nr_queued, metrics.total.max_queued), (6, 9));
        assert_eq!(metrics.total.reenqueue, (4 + 7) * u64::from(magpie_stat_STAT_REENQUEUE + 1));
    }

    #[test]
    fn a_restart_counts_from_zero() {
        assert_eq!(snapshot([2, 2]).since(&snapshot([7, 7]), SECOND).llcs[&0].search, 2);
        assert_eq!(snapshot([2, 2]).since(&Snapshot::default(), SECOND).total.search, 4);
    }

    #[test]
    fn metrics_survive_the_socket() {
        let metrics = snapshot([5, 9]).since(&snapshot([1, 2]), SECOND);
        let json = serde_json::to_string(&metrics).unwrap();
        assert_eq!(serde_json::from_str::<Metrics>(&json).unwrap(), metrics);
    }
}

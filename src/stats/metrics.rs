// SPDX-License-Identifier: GPL-2.0-only
//! All statistics of an interval, or since the start, as the socket sends and tables print them.
//!
//! On the socket and in JSON they are flat, as tools of the scx project expect: figures of the
//! machine, and dictionaries of structs. Only members of `cgroups` and `memory` have a prefix.

use std::collections::BTreeMap;
use std::time::Duration;

use scx_stats::prelude::*;
use scx_stats_derive::{Stats, stat_doc};
use serde::{Deserialize, Serialize};
use serde_with::with_prefix;

use super::cgroups::Cgroups;
use super::group::Group;
use super::numa::{Memory, Node};
use super::snapshot::Snapshot;
use super::wake_cases::WakeCase;

with_prefix!(prefix_cgroups "cgroups_");
with_prefix!(prefix_memory "memory_");

/// Statistics of an interval: totals of the machine, and a group for each LLC.
#[stat_doc]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, Stats)]
#[stat(top)]
pub struct Metrics {
    #[stat(desc = "length of the interval, in milliseconds")]
    pub interval_ms: u64,
    #[stat(desc = "version of the scheduler")]
    #[serde(default)]
    pub version: String,
    #[stat(desc = "release of the kernel")]
    #[serde(default)]
    pub kernel: String,
    #[stat(desc = "time since the scheduler was attached, in seconds")]
    #[serde(default)]
    pub uptime_s: u64,
    #[stat(desc = "features that are active on this machine: cgroups, NUMA, SMT, capacity")]
    #[serde(default)]
    pub mode: String,
    #[stat(desc = "flags of the scheduler that differ from the default, as on a command line")]
    #[serde(default)]
    pub flags: String,
    #[stat(desc = "limit of cgroups with a weight of their own (--max-cgroups)")]
    #[serde(default)]
    pub max_cgroups: u32,
    #[stat(desc = "figures of the whole machine")]
    #[serde(flatten)]
    pub total: Group,
    #[stat(desc = "figures of cgroups")]
    #[serde(flatten, with = "prefix_cgroups")]
    pub cgroups: Cgroups,
    #[stat(desc = "figures of memory sampling")]
    #[serde(flatten, with = "prefix_memory")]
    pub memory: Memory,
    #[stat(desc = "placement of wakeups by the size of the task and of its CPUs; where CPUs differ in capacity")]
    pub wake_cases: BTreeMap<usize, WakeCase>,
    #[stat(desc = "figures of each NUMA node")]
    pub nodes: BTreeMap<usize, Node>,
    #[stat(desc = "figures of each LLC")]
    pub llcs: BTreeMap<usize, Group>,
}

/// Return the metadata of [`Metrics`] in the flat form of the socket.
pub fn flat_meta() -> StatsMeta {
    let mut meta = Metrics::meta();
    for (field, prefix, part) in
        [("total", "", Group::meta()), ("cgroups", "cgroups_", Cgroups::meta()), ("memory", "memory_", Memory::meta())]
    {
        meta.fields.remove(field);
        meta.fields.extend(part.fields.into_iter().map(|(name, field)| (format!("{prefix}{name}"), field)));
    }
    meta
}

impl Snapshot {
    /// Return the increase since `prev`, `interval` ago.
    pub fn since(&self, prev: &Self, interval: Duration) -> Metrics {
        Metrics {
            interval_ms: interval.as_millis() as u64,
            version: self.about.version.clone(),
            kernel: self.about.kernel.clone(),
            uptime_s: self.at.saturating_sub(self.about.attached_at).as_secs(),
            mode: self.about.mode.clone(),
            flags: self.about.flags.clone(),
            max_cgroups: self.about.max_cgroups,
            cgroups: self.cgroups.since(&prev.cgroups, interval),
            memory: self.sampler.since(&prev.sampler, interval),
            wake_cases: self.wake_cases.since(&prev.wake_cases),
            nodes: self.nodes_since(prev, interval),
            total: self.whole().map(|whole| whole.since(prev.whole().as_ref(), interval)).unwrap_or_default(),
            llcs: self.llcs.iter().enumerate().map(|(id, llc)| (id, llc.since(prev.llcs.get(id), interval))).collect(),
        }
    }

    /// Return the totals since the scheduler was attached, with up to `nr_cgroups` cgroups.
    pub fn totals(&self, nr_cgroups: usize) -> Metrics {
        let metrics = self.since(&Self::default(), self.at.saturating_sub(self.about.attached_at));
        Metrics { cgroups: Cgroups { top: self.cgroups.totals(nr_cgroups), ..metrics.cgroups }, ..metrics }
    }
}

#[cfg(test)]
pub mod tests {
    use super::*;
    use crate::bpf_intf::*;
    use crate::stats::cgroups::Cgroup;
    use crate::stats::snapshot::LlcSnapshot;

    pub const SECOND: Duration = Duration::from_secs(1);

    /// Return a snapshot of two LLCs whose counters are multiples of `counts`.
    pub fn snapshot(counts: [u64; 2]) -> Snapshot {
        let llc = |count| LlcSnapshot {
            nr_cpus: 4,
            capacity: 4096,
            sum_util: 2048,
            sum_target: 1024,
            nr_queued: 3,
            max_queued: count,
            node: 0,
            nr_scan: 2,
            busy_ns: 0,
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
        assert_eq!((metrics.total.util, metrics.total.cpuperf_target), (50.0, 25.0));
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

    /// Each sent field is described with its type, and each description has a field.
    #[test]
    fn what_is_sent_is_what_is_described() {
        let mut metrics = snapshot([5, 9]).since(&snapshot([1, 2]), SECOND);
        metrics.cgroups.top.insert("a".into(), Cgroup::default());
        let sent = serde_json::to_value(metrics).unwrap();
        let sent = sent.as_object().unwrap();
        let meta = flat_meta();
        assert!(sent.keys().eq(meta.fields.keys()), "{:?}\n{:?}", sent.keys(), meta.fields.keys());
        for (name, field) in meta.fields {
            let is_dict = matches!(field.data, StatsData::Dict { datum: StatsKind::Struct(_), .. });
            assert_eq!(sent[&name].is_object(), is_dict, "{name}");
        }
    }

    #[test]
    fn totals_count_from_the_start() {
        let mut now = snapshot([5, 9]);
        now.at = 7 * SECOND;
        now.about = crate::stats::About { attached_at: 3 * SECOND, ..Default::default() }.into();
        let totals = now.totals(0);
        assert_eq!((totals.interval_ms, totals.total.search), (4000, 5 + 9));
    }
}

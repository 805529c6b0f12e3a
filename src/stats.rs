// SPDX-License-Identifier: GPL-2.0-only
//! Statistics: what the counters mean, and how they get from the BPF program to whoever asks.
//!
//! ```text
//! cpu_ctxs[].stats --Snapshot::new()--> Snapshot (totals since start, by LLC)
//!                                         --since(), one reader a client--> Metrics (what the interval added)
//!                                             --scx_stats socket--> monitor(): a table (table.rs) or JSON lines
//! ```

use std::cell::UnsafeCell;
use std::collections::BTreeMap;
use std::io::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use anyhow::Result;
use scx_stats::prelude::*;
use scx_stats_derive::{Stats, stat_doc};
use serde::{Deserialize, Serialize};

use crate::bpf_intf::*;
use crate::cgroups;
use crate::numa;
use crate::preflight::Refusal;
use crate::topology::Layout;
use crate::wake_cases::{self, WakeCase};

pub type Counters = [u64; magpie_stat_MAGPIE_NR_STATS as usize];

const NO_COUNTERS: Counters = [0; magpie_stat_MAGPIE_NR_STATS as usize];

/// Of `struct latency_hist`.
pub type Latencies = [u64; magpie_limits_LATENCY_BUCKETS as usize];

/// Memory that the BPF program writes while we read it.
pub struct Shared<'a> {
    pub cpu_ctxs: &'a [UnsafeCell<cpu_ctx>],
    pub llc_publisheds: &'a [UnsafeCell<llc_published>],
    pub latency_hists: &'a [UnsafeCell<latency_hist>],
    pub groups: &'a [UnsafeCell<group>],
    pub capacities: &'a UnsafeCell<capacities>,
    pub wake_cases: &'a [UnsafeCell<crate::bpf_intf::wake_cases>],
}

/// State of one LLC at one time.
#[derive(Clone, Debug)]
pub struct LlcSnapshot {
    pub nr_cpus: usize,
    /// Sum of its CPUs' capacities, each 0..1024.
    pub capacity: usize,
    /// Sum of `util_avg` of its CPUs, 0..capacity.
    pub sum_util: u32,
    /// CPUs that a search may go over now.
    pub nr_scan: u32,
    /// Tasks waiting in the queues of its CPUs.
    pub nr_queued: u64,
    /// The longest of these queues.
    pub max_queued: u64,
    pub node: usize,
    /// Counted since the start.
    pub counters: Counters,
    /// Searches since the start by the time that they took, in powers of two of ns; with --latency-hist.
    pub latencies: Latencies,
}

/// State of the machine at one time.
#[derive(Clone, Debug, Default)]
pub struct Snapshot {
    pub llcs: Vec<LlcSnapshot>,
    pub cgroups: cgroups::Snapshot,
    /// When it was taken, CLOCK_MONOTONIC: intervals are measured by that, for it may be on its way for long.
    pub at: Duration,
    pub sampler: SamplerSnapshot,
    pub wake_cases: wake_cases::Snapshot,
}

/// What the sampler of memory has done since the start; nothing where it does not run.
#[derive(Clone, Copy, Debug, Default)]
pub struct SamplerSnapshot {
    pub cpu_ns: u64,
    pub samples: u64,
    pub cut: u64,
    pub longest_ns: u64,
    pub homes: u64,
}

impl From<&numa::Costs> for SamplerSnapshot {
    fn from(costs: &numa::Costs) -> Self {
        let of = |count: &AtomicU64| count.load(Ordering::Relaxed);
        Self {
            cpu_ns: of(&costs.cpu_ns),
            samples: of(&costs.samples),
            cut: of(&costs.cut),
            longest_ns: of(&costs.longest_ns),
            homes: of(&costs.homes),
        }
    }
}

/// What an interval added, of an LLC or the machine. Events count where the CPU was that did them: a wakeup at
/// the waker's, a steal at the thief's.
#[stat_doc]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, Stats)]
#[stat(_om_prefix = "l_", _om_label = "llc")]
pub struct Group {
    #[stat(desc = "CPUs")]
    pub nr_cpus: u64,
    #[stat(desc = "utilization % of the capacity (100% means all CPUs busy at full speed)")]
    pub util: f64,
    #[stat(desc = "tasks waiting in line now")]
    pub nr_queued: u64,
    #[stat(desc = "tasks waiting in the longest queue now")]
    pub max_queued: u64,
    #[stat(desc = "CPUs that a search may go over now, of all in nr_cpus")]
    pub nr_scan: u64,
    #[stat(desc = "searches for an idle CPU, one a wakeup")]
    pub search: u64,
    #[stat(desc = "searches that went past the fast candidates: target, previous and recently used CPU")]
    pub domain_search: u64,
    #[stat(desc = "CPUs that searches went over: 1 for a fast hit, all up to the one found in the LLC and beyond")]
    pub scanned: u64,
    #[stat(desc = "searches that found no idle CPU")]
    pub failed: u64,
    #[stat(desc = "search efficiency, CPUs found per CPU scanned %: (search - failed) / scanned")]
    pub se_eff: f64,
    #[stat(desc = "the same past the fast candidates %: (domain_search - failed) / CPUs scanned there")]
    pub dom_eff: f64,
    #[stat(desc = "searches that ended at a fast candidate %: (search - domain_search) / search")]
    pub fast_rate: f64,
    #[stat(desc = "searches that found a CPU %: (search - failed) / search")]
    pub success_rate: f64,
    #[stat(desc = "searches by time, with --latency-hist: item i took 2^i .. 2^(i+1) ns")]
    pub latencies: Vec<u64>,
    #[stat(desc = "times that the BPF program began to estimate nr_scan itself, for the loader was late")]
    pub stale: u64,
    #[stat(desc = "wakeups placed on an idle target: the previous or the waking CPU")]
    pub target: u64,
    #[stat(desc = "wakeups placed on the idle previous CPU, when it was not the target")]
    pub prev: u64,
    #[stat(desc = "wakeups placed on the idle CPU used before the previous one")]
    pub recent: u64,
    #[stat(desc = "wakeups placed on another idle CPU of the target's LLC")]
    pub scan: u64,
    #[stat(desc = "wakeups placed on an idle CPU of another LLC")]
    pub beyond: u64,
    #[stat(desc = "wakeups not searched for: the waker was about to sleep, and handed its CPU off")]
    pub handoff: u64,
    #[stat(desc = "tasks enqueued on a CPU that turned out idle, pinned tasks mostly")]
    pub local: u64,
    #[stat(desc = "per-CPU kernel threads and the loader, run at once")]
    pub kthread: u64,
    #[stat(desc = "woken tasks that preempted, for their deadline was clearly before the running one's")]
    pub preempt: u64,
    #[stat(desc = "tasks that had their first turn after they woke, and made way for others that had none yet")]
    pub turn: u64,
    #[stat(desc = "woken tasks that may not move and are next on their CPU: not put in line")]
    pub next: u64,
    #[stat(desc = "tasks put in line")]
    pub queued: u64,
    #[stat(desc = "tasks made to wait, for their cgroup had used up its cpu.max")]
    pub throttled: u64,
    #[stat(desc = "tasks that waited so, and were taken by a CPU")]
    pub released: u64,
    #[stat(desc = "idle CPUs woken to take a task that waits in line")]
    pub kick: u64,
    #[stat(desc = "tasks taken from the CPU's own queue")]
    pub own: u64,
    #[stat(desc = "slices prolonged: nobody ahead was waiting")]
    pub keep: u64,
    #[stat(desc = "times that a CPU without work looked for some at others")]
    pub steal: u64,
    #[stat(desc = "tasks stolen from a CPU of the same LLC")]
    pub steal_llc: u64,
    #[stat(desc = "tasks stolen from another LLC of the node")]
    pub steal_node: u64,
    #[stat(desc = "tasks stolen from another node")]
    pub steal_far: u64,
    #[stat(desc = "microseconds that a task taken by another CPU had been in line, on average")]
    pub stolen_wait_us: f64,
    #[stat(desc = "time that CPUs were not idle %")]
    pub busy: f64,
    #[stat(desc = "time that CPUs spent looking for idle CPUs and for tasks to steal %, from samples")]
    pub find: f64,
    #[stat(desc = "tasks that a busy CPU took from one where they are owed more, or waited longer")]
    pub balance: u64,
    #[stat(desc = "tasks run out of turn because they waited far too long")]
    pub starved: u64,
    #[stat(desc = "victims with no task to steal")]
    pub steal_miss: u64,
    #[stat(desc = "times a CPU went idle, for now, because what it might steal was hot in its caches")]
    pub steal_hot: u64,
    #[stat(desc = "times a CPU found nothing to run")]
    pub empty: u64,
    #[stat(desc = "tasks that fled a CPU taken by a higher scheduling class")]
    pub reenqueue: u64,
    #[stat(desc = "wakeups that wake-affine pulled to the waking CPU, away from the previous one")]
    pub affine: u64,
    #[stat(desc = "the same, from another node")]
    pub affine_far: u64,
    #[stat(desc = "wakeups not pulled, for waker and woken task wake many (wake_wide)")]
    pub wide: u64,
    #[stat(desc = "tasks that returned to their home node when they woke")]
    pub home_wake: u64,
    #[stat(desc = "waiting tasks that a CPU of their home node took")]
    pub home_steal: u64,
    #[stat(desc = "running tasks moved to their home node")]
    pub home_move: u64,
    #[stat(desc = "times that a tick found a task away from home, held back by --numa-backoff")]
    pub home_held: u64,
    #[stat(desc = "run time of tasks on their home nodes %, by ticks; 0 on machines with one node")]
    pub at_home: f64,
    #[stat(desc = "running tasks that outgrew their CPU; 0, as the next three, where CPUs are of one kind")]
    pub misfit: u64,
    #[stat(desc = "milliseconds for which such tasks ran there")]
    pub misfit_ms: u64,
    #[stat(desc = "such tasks that were moved to a stronger CPU")]
    pub misfit_move: u64,
    #[stat(desc = "... which a task had to leave that fits elsewhere")]
    pub misfit_swap: u64,
}

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

/// What an interval added of looking at where processes have their memory; nothing on machines with one node.
#[stat_doc]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, Stats)]
pub struct Memory {
    #[stat(desc = "processes looked at, whole")]
    pub samples: u64,
    #[stat(desc = "times that a look was left for later, after --numa-sample-ms")]
    pub cut: u64,
    #[stat(desc = "CPU time for that, % of a CPU")]
    pub cost: f64,
    #[stat(desc = "the longest look at a time since the start, microseconds of CPU time")]
    pub longest_us: u64,
    #[stat(desc = "processes known now to have most of their memory on one node")]
    pub homes: u64,
}

/// What an interval added: the machine's total and each LLC's share.
#[stat_doc]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, Stats)]
#[stat(top)]
pub struct Metrics {
    #[stat(desc = "milliseconds for which events were counted")]
    pub interval_ms: u64,
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

/// What an interval's searches came to. SIS_UTIL's author defines the rates, and gives tables of them (seed
/// 000_01329a4e9aec875b).
#[derive(Clone, Copy, Debug)]
pub struct SearchCounts {
    pub search: u64,
    /// Those that went past the fast candidates.
    pub domain_search: u64,
    /// CPUs that these went over.
    pub domain_scanned: u64,
    pub failed: u64,
}

impl SearchCounts {
    fn of(count: impl Fn(magpie_stat) -> u64) -> Self {
        let search = count(magpie_stat_STAT_SEARCH);
        let fast = count(magpie_stat_STAT_TARGET) + count(magpie_stat_STAT_PREV) + count(magpie_stat_STAT_RECENT);
        Self {
            search,
            // CPUs count on while they are read.
            domain_search: search.saturating_sub(fast),
            domain_scanned: count(magpie_stat_STAT_SCANNED),
            failed: count(magpie_stat_STAT_FAILED),
        }
    }

    /// CPUs gone over: one for each fast hit, and those past them.
    pub fn scanned(&self) -> u64 {
        self.search - self.domain_search + self.domain_scanned
    }

    pub fn se_eff(&self) -> f64 {
        percent(self.search.saturating_sub(self.failed), self.scanned())
    }

    pub fn dom_eff(&self) -> f64 {
        percent(self.domain_search.saturating_sub(self.failed), self.domain_scanned)
    }

    pub fn fast_rate(&self) -> f64 {
        percent(self.search - self.domain_search, self.search)
    }

    pub fn success_rate(&self) -> f64 {
        percent(self.search.saturating_sub(self.failed), self.search)
    }
}

/// 0 of nothing is 0 %.
fn percent(part: u64, whole: u64) -> f64 {
    100.0 * part as f64 / whole.max(1) as f64
}

impl LlcSnapshot {
    /// What came since `prev`. Counters that went back (the scheduler restarted) count from 0.
    fn since(&self, prev: Option<&Self>, interval: Duration) -> Group {
        let of = |stat: magpie_stat| {
            let now = self.counters[stat as usize];
            now.checked_sub(prev.map_or(0, |prev| prev.counters[stat as usize])).unwrap_or(now)
        };
        // Read by another clock than counted, it may go back by a little.
        let busy_ns = |llc: &Self| llc.counters[magpie_stat_STAT_BUSY_NS as usize];
        let busy = busy_ns(self).saturating_sub(prev.map_or(0, busy_ns));
        let counts = SearchCounts::of(of);
        let cpu_time = interval.as_nanos() as u64 * self.nr_cpus as u64;
        let stolen = of(magpie_stat_STAT_STEAL_LLC)
            + of(magpie_stat_STAT_STEAL_NODE)
            + of(magpie_stat_STAT_STEAL_FAR)
            + of(magpie_stat_STAT_BALANCE);
        let since = |i: usize| {
            let now = self.latencies[i];
            now.checked_sub(prev.map_or(0, |prev| prev.latencies[i])).unwrap_or(now)
        };
        Group {
            nr_cpus: self.nr_cpus as u64,
            util: 100.0 * f64::from(self.sum_util) / self.capacity as f64,
            nr_queued: self.nr_queued,
            max_queued: self.max_queued,
            nr_scan: u64::from(self.nr_scan),
            search: counts.search,
            domain_search: counts.domain_search,
            scanned: counts.scanned(),
            failed: counts.failed,
            se_eff: counts.se_eff(),
            dom_eff: counts.dom_eff(),
            fast_rate: counts.fast_rate(),
            success_rate: counts.success_rate(),
            latencies: (0..self.latencies.len()).map(since).collect(),
            stale: of(magpie_stat_STAT_STALE),
            target: of(magpie_stat_STAT_TARGET),
            prev: of(magpie_stat_STAT_PREV),
            recent: of(magpie_stat_STAT_RECENT),
            scan: of(magpie_stat_STAT_SCAN),
            beyond: of(magpie_stat_STAT_BEYOND),
            handoff: of(magpie_stat_STAT_HANDOFF),
            local: of(magpie_stat_STAT_LOCAL),
            kthread: of(magpie_stat_STAT_KTHREAD),
            preempt: of(magpie_stat_STAT_PREEMPT),
            turn: of(magpie_stat_STAT_TURN),
            next: of(magpie_stat_STAT_NEXT),
            queued: of(magpie_stat_STAT_QUEUED),
            throttled: of(magpie_stat_STAT_THROTTLED),
            released: of(magpie_stat_STAT_RELEASED),
            kick: of(magpie_stat_STAT_KICK),
            own: of(magpie_stat_STAT_OWN),
            keep: of(magpie_stat_STAT_KEEP),
            steal: of(magpie_stat_STAT_STEAL),
            stolen_wait_us: of(magpie_stat_STAT_STOLEN_NS) as f64 / 1000.0 / stolen.max(1) as f64,
            busy: percent(busy, cpu_time),
            find: percent(of(magpie_stat_STAT_FIND_NS), cpu_time),
            steal_llc: of(magpie_stat_STAT_STEAL_LLC),
            steal_node: of(magpie_stat_STAT_STEAL_NODE),
            steal_far: of(magpie_stat_STAT_STEAL_FAR),
            balance: of(magpie_stat_STAT_BALANCE),
            starved: of(magpie_stat_STAT_STARVED),
            steal_miss: of(magpie_stat_STAT_STEAL_MISS),
            steal_hot: of(magpie_stat_STAT_STEAL_HOT),
            empty: of(magpie_stat_STAT_EMPTY),
            reenqueue: of(magpie_stat_STAT_REENQUEUE),
            affine: of(magpie_stat_STAT_AFFINE),
            affine_far: of(magpie_stat_STAT_AFFINE_FAR),
            wide: of(magpie_stat_STAT_WIDE),
            home_wake: of(magpie_stat_STAT_HOME_WAKE),
            home_steal: of(magpie_stat_STAT_HOME_STEAL),
            home_move: of(magpie_stat_STAT_HOME_MOVE),
            home_held: of(magpie_stat_STAT_HOME_HELD),
            misfit: of(magpie_stat_STAT_MISFIT),
            misfit_ms: of(magpie_stat_STAT_MISFIT_NS) / 1_000_000,
            misfit_move: of(magpie_stat_STAT_MISFIT_MOVE),
            misfit_swap: of(magpie_stat_STAT_MISFIT_SWAP),
            at_home: percent(of(magpie_stat_STAT_HOME), of(magpie_stat_STAT_HOME) + of(magpie_stat_STAT_AWAY)),
        }
    }
}

/// For how long a CPU has been busy that is not yet in its counter: since its last tick, or since it went busy. ns.
fn busy_since(pelt: pelt, mono_offset: u64, now: Duration) -> u64 {
    let counted = pelt.updated_at.wrapping_add(mono_offset);
    if pelt.running == 0 { 0 } else { (now.as_nanos() as u64).saturating_sub(counted) }
}

impl Snapshot {
    /// What is in the shared memory `now` (CLOCK_MONOTONIC), by LLC, with the publisher's `sum_util` of each. The BPF program
    /// may write them meanwhile; how many tasks wait is as old as its last sample.
    pub fn new(
        layout: &Layout,
        shared: &Shared<'_>,
        sum_util: &[u32],
        sampler: Option<&numa::Costs>,
        now: Duration,
    ) -> Self {
        let mut llcs: Vec<LlcSnapshot> = (layout.llcs.iter().zip(sum_util).zip(shared.llc_publisheds))
            .map(|((llc, &sum_util), published)| LlcSnapshot {
                nr_cpus: llc.nr_cpus,
                capacity: llc.capacity,
                sum_util,
                // SAFETY: valid; a plain word.
                nr_scan: unsafe { (&raw const (*published.get()).nr_scan).read_volatile() },
                nr_queued: 0,
                max_queued: 0,
                node: llc.node,
                counters: NO_COUNTERS,
                latencies: Latencies::default(),
            })
            .collect();
        for (&id, cpu) in &layout.cpus {
            let (cctx, hist) = (shared.cpu_ctxs[id].get(), shared.latency_hists[id].get());
            let llc = &mut llcs[cpu.llc];
            // SAFETY: valid; plain words, the counters among them incremented by their CPU.
            let (nr_queued, counters) = unsafe {
                let mut stats: Counters = std::array::from_fn(|stat| (&raw const (*cctx).stats[stat]).read_volatile());
                let mono_offset = (&raw const (*cctx).mono_offset).read_volatile();
                let pelt = (&raw const (*cctx).pelt).read_volatile();
                stats[magpie_stat_STAT_BUSY_NS as usize] += busy_since(pelt, mono_offset, now);
                ((&raw const (*cctx).nr_queued).read_volatile().max(0) as u64, stats)
            };
            llc.nr_queued += nr_queued;
            llc.max_queued = llc.max_queued.max(nr_queued);
            for (total, count) in llc.counters.iter_mut().zip(counters) {
                *total += count;
            }
            for (bucket, total) in llc.latencies.iter_mut().enumerate() {
                // SAFETY: as above.
                *total += unsafe { (&raw const (*hist).buckets[bucket]).read_volatile() };
            }
        }
        let cgroups = cgroups::Snapshot::new(shared.groups, cgroups::SYS_CGROUP.as_ref());
        let sampler = sampler.map(SamplerSnapshot::from).unwrap_or_default();
        let ids = layout.cpus.keys().copied();
        let wake_cases = wake_cases::Snapshot::new(layout.nr_stronger() > 0, shared.wake_cases, ids);
        Self { llcs, cgroups, sampler, wake_cases, at: now }
    }

    /// The LLCs taken together.
    fn whole(&self) -> Option<LlcSnapshot> {
        self.llcs.iter().cloned().reduce(|mut sum, llc| {
            sum.nr_cpus += llc.nr_cpus;
            sum.capacity += llc.capacity;
            sum.sum_util += llc.sum_util;
            sum.nr_scan += llc.nr_scan;
            for (total, count) in sum.latencies.iter_mut().zip(llc.latencies) {
                *total += count;
            }
            sum.nr_queued += llc.nr_queued;
            sum.max_queued = sum.max_queued.max(llc.max_queued);
            for (total, count) in sum.counters.iter_mut().zip(llc.counters) {
                *total += count;
            }
            sum
        })
    }

    /// By node, of machines with several.
    fn nodes_since(&self, prev: &Self, interval: Duration) -> BTreeMap<usize, Node> {
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
                let now = node.counters[stat as usize];
                now.checked_sub(before.map_or(0, |before| before.counters[stat as usize])).unwrap_or(now)
            };
            let looks = since(magpie_stat_STAT_HOME) + since(magpie_stat_STAT_AWAY);
            (*id, Node { at_home: node.since(before, interval).at_home, looks })
        };
        nodes.iter().map(of).collect()
    }

    fn memory_since(&self, prev: &Self, interval: Duration) -> Memory {
        let (now, prev) = (&self.sampler, &prev.sampler);
        let since = |now: u64, prev: u64| now.checked_sub(prev).unwrap_or(now);
        Memory {
            samples: since(now.samples, prev.samples),
            cut: since(now.cut, prev.cut),
            cost: percent(since(now.cpu_ns, prev.cpu_ns), interval.as_nanos() as u64),
            longest_us: now.longest_ns / 1000,
            homes: now.homes,
        }
    }

    /// What came in the `interval` since `prev`.
    pub fn since(&self, prev: &Self, interval: Duration) -> Metrics {
        Metrics {
            interval_ms: interval.as_millis() as u64,
            cgroups: self.cgroups.since(&prev.cgroups, interval),
            memory: self.memory_since(prev, interval),
            wake_cases: self.wake_cases.since(&prev.wake_cases),
            nodes: self.nodes_since(prev, interval),
            total: self.whole().map(|whole| whole.since(prev.whole().as_ref(), interval)).unwrap_or_default(),
            llcs: self.llcs.iter().enumerate().map(|(id, llc)| (id, llc.since(prev.llcs.get(id), interval))).collect(),
        }
    }
}

/// The statistics server's data: each client that connects gets intervals of its own.
pub fn server_data() -> StatsServerData<(), Snapshot> {
    let open: Box<dyn StatsOpener<(), Snapshot>> = Box::new(|(req, res)| {
        req.send(())?;
        let mut prev = res.recv()?;
        let read: Box<dyn StatsReader<(), Snapshot>> = Box::new(move |_args, (req, res)| {
            req.send(())?;
            let now = res.recv()?;
            let metrics = now.since(&prev, now.at.saturating_sub(prev.at));
            prev = now;
            metrics.to_json()
        });
        Ok(read)
    });
    StatsServerData::new()
        .add_meta(Metrics::meta())
        .add_meta(Group::meta())
        .add_meta(cgroups::Cgroups::meta())
        .add_meta(cgroups::Cgroup::meta())
        .add_meta(Memory::meta())
        .add_meta(Node::meta())
        .add_meta(WakeCase::meta())
        .add_ops("top", StatsOps { open, close: None })
}

/// Prints the statistics of the scheduler that runs, each `interval`, until `shutdown`.
pub fn monitor(interval: Duration, json: bool, shutdown: Arc<AtomicBool>) -> Result<()> {
    scx_utils::monitor_stats::<Metrics>(
        &[],
        interval,
        || shutdown.load(Ordering::Relaxed),
        |metrics| {
            let mut out = std::io::stdout().lock();
            if json {
                writeln!(out, "{}", serde_json::to_string(&metrics)?)?;
            } else {
                metrics.format(&mut out)?;
            }
            Ok(out.flush()?)
        },
    )
    .map_err(|err| match err.downcast_ref::<std::io::Error>().map(std::io::Error::kind) {
        Some(std::io::ErrorKind::PermissionDenied) => Refusal::NotRoot.into(),
        _ => err,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn snapshot(counts: [u64; 2]) -> Snapshot {
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
        };
        Snapshot { llcs: counts.map(llc).into(), ..Snapshot::default() }
    }

    #[test]
    fn cpus_add_up_by_llc() {
        let (topo, nr_cpus) = scx_utils::testutils::make_test_topo(1, 2, 2, 1);
        let layout = Layout::new(&topo).unwrap();
        // SAFETY: plain integers.
        let mut cpu_ctxs: Vec<UnsafeCell<cpu_ctx>> = (0..nr_cpus).map(|_| unsafe { std::mem::zeroed() }).collect();
        for (id, cctx) in cpu_ctxs.iter_mut().enumerate() {
            let cctx = cctx.get_mut();
            cctx.nr_queued = id as i32;
            cctx.stats = std::array::from_fn(|stat| (id * 100 + stat) as u64);
            // CPU 3 has been busy for 40 ns at 1000.
            cctx.pelt = pelt { updated_at: 460, running: u8::from(id == 3), ..cctx.pelt };
            cctx.mono_offset = 500;
        }
        cpu_ctxs[0].get_mut().nr_queued = -1; // an error: counts as none

        // SAFETY: as above.
        let zeroed = || unsafe { (std::mem::zeroed(), std::mem::zeroed()) };
        let (llc_publisheds, latency_hists): (Vec<_>, Vec<_>) = (0..nr_cpus).map(|_| zeroed()).unzip();
        // SAFETY: as above.
        let capacities = unsafe { std::mem::zeroed() };
        let shared = Shared {
            cpu_ctxs: &cpu_ctxs,
            llc_publisheds: &llc_publisheds,
            latency_hists: &latency_hists,
            groups: &[],
            capacities: &capacities,
            wake_cases: &[],
        };
        let llcs = Snapshot::new(&layout, &shared, &[7, 8], None, Duration::from_nanos(1000)).llcs;
        assert_eq!((llcs[0].nr_cpus, llcs[0].capacity, llcs[0].sum_util, llcs[1].sum_util), (2, 2048, 7, 8));
        assert_eq!((llcs[0].nr_queued, llcs[0].max_queued), (1, 1)); // CPUs 0 and 1
        assert_eq!((llcs[1].nr_queued, llcs[1].max_queued), (2 + 3, 3));
        assert_eq!(llcs[1].counters[3], 200 + 300 + 2 * 3);
        let busy = |llc: usize| llcs[llc].counters[magpie_stat_STAT_BUSY_NS as usize];
        let counted = 2 * u64::from(magpie_stat_STAT_BUSY_NS);
        assert_eq!((busy(0), busy(1)), (100 + counted, 200 + 300 + counted + 40));
    }

    #[test]
    fn intervals_add_up() {
        let metrics = snapshot([5, 9]).since(&snapshot([1, 2]), SECOND);
        assert_eq!(metrics.llcs[&0].search, 4);
        assert_eq!(metrics.llcs[&1].target, 7 * 2);
        assert_eq!(metrics.total.search, 4 + 7);
        assert_eq!(metrics.total.util, 50.0);
        assert_eq!((metrics.total.nr_queued, metrics.total.max_queued), (6, 9));
        assert_eq!(metrics.total.reenqueue, (4 + 7) * u64::from(magpie_stat_STAT_REENQUEUE + 1));
    }

    #[test]
    fn times_are_shares_of_cpu_time_and_waits_an_average() {
        let mut now = snapshot([0, 0]);
        let mut count = |stat: magpie_stat, count| now.llcs[0].counters[stat as usize] = count;
        count(magpie_stat_STAT_BUSY_NS, 1_500_000_000);
        count(magpie_stat_STAT_FIND_NS, 3_000_000);
        count(magpie_stat_STAT_STEAL_LLC, 2);
        count(magpie_stat_STAT_BALANCE, 1);
        count(magpie_stat_STAT_STOLEN_NS, 60_000);
        let llc = &now.since(&snapshot([0, 0]), SECOND).llcs[&0];
        let cpus = llc.nr_cpus as f64;
        assert_eq!((llc.busy * cpus, llc.find * cpus), (150.0, 0.3));
        assert_eq!(llc.stolen_wait_us, 20.0);
    }

    /// The definitions of the four rates give the seed's tables: each row's se_eff follows from the other three.
    #[test]
    fn search_rates_are_those_of_the_seed() {
        const SEARCHES: f64 = 1e12;
        let mut rows = 0;
        for line in include_str!("../tests/data/search_efficiency.tsv").lines().filter(|line| !line.starts_with('#')) {
            let rates: Vec<f64> = line.split('\t').skip(2).map(|rate| rate.parse().unwrap()).collect();
            let [se_eff, dom_eff, fast_rate, success_rate] = rates[..] else { panic!("{line}") };
            // Nothing was measured, or nothing to three digits.
            if se_eff == 0.0 || dom_eff == 0.0 {
                continue;
            }
            rows += 1;
            let domain_search = SEARCHES * (1.0 - fast_rate / 100.0);
            let failed = SEARCHES * (1.0 - success_rate / 100.0);
            let counts = SearchCounts {
                search: SEARCHES as u64,
                domain_search: domain_search as u64,
                domain_scanned: ((domain_search - failed) * 100.0 / dom_eff) as u64,
                failed: failed as u64,
            };
            let close = |a: f64, b: f64| (a - b).abs() < 0.02;
            assert!(close(counts.se_eff(), se_eff), "{line}: {counts:?}, {}", counts.se_eff());
            assert!(close(counts.dom_eff(), dom_eff), "{line}: {}", counts.dom_eff());
            assert!(close(counts.fast_rate(), fast_rate) && close(counts.success_rate(), success_rate), "{line}");
        }
        assert_eq!(rows, 59);
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

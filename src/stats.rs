// SPDX-License-Identifier: GPL-2.0-only
//! Statistics: what the counters mean, how they get from the BPF program to whoever asks, and how they print.
//!
//! ```text
//! cpu_ctxs[].stats --Snapshot::new()--> Snapshot (totals since start, by LLC)
//!                                         --since(), one reader a client--> Metrics (what the interval added)
//!                                             --scx_stats socket--> monitor(): a table or JSON lines
//! ```

use std::cell::UnsafeCell;
use std::collections::BTreeMap;
use std::io::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::Result;
use scx_stats::prelude::*;
use scx_stats_derive::{Stats, stat_doc};
use serde::{Deserialize, Serialize};

use crate::bpf_intf::*;
use crate::preflight::Refusal;
use crate::topology::Layout;

pub type Counters = [u64; magpie_stat_MAGPIE_NR_STATS as usize];

/// State of one LLC at one time.
#[derive(Clone, Debug)]
pub struct LlcSnapshot {
    pub nr_cpus: usize,
    /// Sum of its CPUs' capacities, each 0..1024.
    pub capacity: usize,
    /// Sum of `util_avg` of its CPUs, 0..capacity.
    pub sum_util: u32,
    /// Tasks waiting in the queues of its CPUs.
    pub nr_queued: u64,
    /// The longest of these queues.
    pub max_queued: u64,
    /// Counted since the start.
    pub counters: Counters,
}

/// State of the machine at one time.
#[derive(Clone, Debug, Default)]
pub struct Snapshot {
    pub llcs: Vec<LlcSnapshot>,
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
    #[stat(desc = "wakeups for which a CPU was searched")]
    pub wakeups: u64,
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
    #[stat(desc = "wakeups that found no idle CPU")]
    pub none: u64,
    #[stat(desc = "tasks enqueued on a CPU that turned out idle, pinned tasks mostly")]
    pub local: u64,
    #[stat(desc = "per-CPU kernel threads and the loader, run at once")]
    pub kthread: u64,
    #[stat(desc = "woken tasks that preempted because they were owed time")]
    pub preempt: u64,
    #[stat(desc = "tasks put in line")]
    pub queued: u64,
    #[stat(desc = "idle CPUs woken to take a task that waits in line")]
    pub kick: u64,
    #[stat(desc = "tasks taken from the CPU's own queue")]
    pub own: u64,
    #[stat(desc = "slices prolonged: nobody ahead was waiting")]
    pub keep: u64,
    #[stat(desc = "tasks stolen from a CPU of the same LLC")]
    pub steal_llc: u64,
    #[stat(desc = "tasks stolen from another LLC of the node")]
    pub steal_node: u64,
    #[stat(desc = "tasks stolen from another node")]
    pub steal_far: u64,
    #[stat(desc = "tasks that a busy CPU took from one where they waited longer")]
    pub balance: u64,
    #[stat(desc = "tasks run out of turn because they waited far too long")]
    pub starved: u64,
    #[stat(desc = "victims with no task to steal")]
    pub steal_miss: u64,
    #[stat(desc = "times a CPU found nothing to run")]
    pub empty: u64,
    #[stat(desc = "tasks that fled a CPU taken by a higher scheduling class")]
    pub reenqueue: u64,
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
    #[stat(desc = "by LLC")]
    pub llcs: BTreeMap<usize, Group>,
}

impl LlcSnapshot {
    /// What came since `prev`. Counters that went back (the scheduler restarted) count from 0.
    fn since(&self, prev: Option<&Self>) -> Group {
        let of = |stat: magpie_stat| {
            let now = self.counters[stat as usize];
            now.checked_sub(prev.map_or(0, |prev| prev.counters[stat as usize])).unwrap_or(now)
        };
        Group {
            nr_cpus: self.nr_cpus as u64,
            util: 100.0 * f64::from(self.sum_util) / self.capacity as f64,
            nr_queued: self.nr_queued,
            max_queued: self.max_queued,
            wakeups: of(magpie_stat_STAT_WAKEUPS),
            target: of(magpie_stat_STAT_TARGET),
            prev: of(magpie_stat_STAT_PREV),
            recent: of(magpie_stat_STAT_RECENT),
            scan: of(magpie_stat_STAT_SCAN),
            beyond: of(magpie_stat_STAT_BEYOND),
            none: of(magpie_stat_STAT_NONE),
            local: of(magpie_stat_STAT_LOCAL),
            kthread: of(magpie_stat_STAT_KTHREAD),
            preempt: of(magpie_stat_STAT_PREEMPT),
            queued: of(magpie_stat_STAT_QUEUED),
            kick: of(magpie_stat_STAT_KICK),
            own: of(magpie_stat_STAT_OWN),
            keep: of(magpie_stat_STAT_KEEP),
            steal_llc: of(magpie_stat_STAT_STEAL_LLC),
            steal_node: of(magpie_stat_STAT_STEAL_NODE),
            steal_far: of(magpie_stat_STAT_STEAL_FAR),
            balance: of(magpie_stat_STAT_BALANCE),
            starved: of(magpie_stat_STAT_STARVED),
            steal_miss: of(magpie_stat_STAT_STEAL_MISS),
            empty: of(magpie_stat_STAT_EMPTY),
            reenqueue: of(magpie_stat_STAT_REENQUEUE),
        }
    }
}

impl Snapshot {
    /// What `cpu_ctxs` hold now, by LLC, with the publisher's `sum_util` of each. The BPF program may write them
    /// meanwhile; how many tasks wait is as old as its last sample.
    pub fn new(layout: &Layout, cpu_ctxs: &[UnsafeCell<cpu_ctx>], sum_util: &[u32]) -> Self {
        let mut llcs: Vec<LlcSnapshot> = (layout.llcs.iter().zip(sum_util))
            .map(|(llc, &sum_util)| LlcSnapshot {
                nr_cpus: llc.nr_cpus,
                capacity: llc.capacity,
                sum_util,
                nr_queued: 0,
                max_queued: 0,
                counters: Counters::default(),
            })
            .collect();
        for (&id, cpu) in &layout.cpus {
            let cctx = cpu_ctxs[id].get();
            let llc = &mut llcs[cpu.llc];
            // SAFETY: valid; plain words, the counters among them incremented by their CPU.
            let (nr_queued, counters) = unsafe {
                let stats: Counters = std::array::from_fn(|stat| (&raw const (*cctx).stats[stat]).read_volatile());
                ((&raw const (*cctx).nr_queued).read_volatile().max(0) as u64, stats)
            };
            llc.nr_queued += nr_queued;
            llc.max_queued = llc.max_queued.max(nr_queued);
            for (total, count) in llc.counters.iter_mut().zip(counters) {
                *total += count;
            }
        }
        Self { llcs }
    }

    /// The LLCs taken together.
    fn whole(&self) -> Option<LlcSnapshot> {
        self.llcs.iter().cloned().reduce(|mut sum, llc| {
            sum.nr_cpus += llc.nr_cpus;
            sum.capacity += llc.capacity;
            sum.sum_util += llc.sum_util;
            sum.nr_queued += llc.nr_queued;
            sum.max_queued = sum.max_queued.max(llc.max_queued);
            for (total, count) in sum.counters.iter_mut().zip(llc.counters) {
                *total += count;
            }
            sum
        })
    }

    /// What came in the `interval` since `prev`.
    pub fn since(&self, prev: &Self, interval: Duration) -> Metrics {
        Metrics {
            interval_ms: interval.as_millis() as u64,
            total: self.whole().map(|whole| whole.since(prev.whole().as_ref())).unwrap_or_default(),
            llcs: self.llcs.iter().enumerate().map(|(id, llc)| (id, llc.since(prev.llcs.get(id)))).collect(),
        }
    }
}

impl Group {
    /// The table's columns: those figures that tell how it goes. JSON has them all.
    pub fn columns(&self) -> [(&'static str, String); 15] {
        [
            ("cpus", self.nr_cpus.to_string()),
            ("util%", format!("{:.1}", self.util)),
            ("wakeups", self.wakeups.to_string()),
            ("fast", (self.target + self.prev + self.recent).to_string()),
            ("scan", self.scan.to_string()),
            ("beyond", self.beyond.to_string()),
            ("none", self.none.to_string()),
            ("preempt", self.preempt.to_string()),
            ("queued", self.queued.to_string()),
            ("own", self.own.to_string()),
            ("st_llc", self.steal_llc.to_string()),
            ("st_node", self.steal_node.to_string()),
            ("st_far", self.steal_far.to_string()),
            ("balance", self.balance.to_string()),
            ("in_line", self.nr_queued.to_string()),
        ]
    }
}

/// Room for a million events an interval.
const COLUMN_WIDTH: usize = 7;

fn line<W: Write>(w: &mut W, name: &str, cells: impl Iterator<Item = impl AsRef<str>>) -> Result<()> {
    write!(w, "{name:<7}")?;
    for cell in cells {
        write!(w, " {:>COLUMN_WIDTH$}", cell.as_ref())?;
    }
    Ok(writeln!(w)?)
}

impl Metrics {
    /// A row for each LLC and one for all; the head comes with every interval, for intervals scroll by.
    pub fn format<W: Write>(&self, w: &mut W) -> Result<()> {
        writeln!(w)?;
        line(w, "", self.total.columns().iter().map(|(head, _)| head))?;
        for (id, llc) in &self.llcs {
            line(w, &format!("LLC {id}"), llc.columns().iter().map(|(_, value)| value))?;
        }
        line(w, "total", self.total.columns().iter().map(|(_, value)| value))
    }
}

/// The statistics server's data: each client that connects gets intervals of its own.
pub fn server_data() -> StatsServerData<(), Snapshot> {
    let open: Box<dyn StatsOpener<(), Snapshot>> = Box::new(|(req, res)| {
        req.send(())?;
        let (mut prev, mut prev_at) = (res.recv()?, Instant::now());
        let read: Box<dyn StatsReader<(), Snapshot>> = Box::new(move |_args, (req, res)| {
            req.send(())?;
            let (now, now_at) = (res.recv()?, Instant::now());
            let metrics = now.since(&prev, now_at - prev_at);
            (prev, prev_at) = (now, now_at);
            metrics.to_json()
        });
        Ok(read)
    });
    StatsServerData::new()
        .add_meta(Metrics::meta())
        .add_meta(Group::meta())
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
            counters: std::array::from_fn(|stat| count * (stat as u64 + 1)),
        };
        Snapshot { llcs: counts.map(llc).into() }
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
        }
        cpu_ctxs[0].get_mut().nr_queued = -1; // an error: counts as none

        let llcs = Snapshot::new(&layout, &cpu_ctxs, &[7, 8]).llcs;
        assert_eq!((llcs[0].nr_cpus, llcs[0].capacity, llcs[0].sum_util, llcs[1].sum_util), (2, 2048, 7, 8));
        assert_eq!((llcs[0].nr_queued, llcs[0].max_queued), (1, 1)); // CPUs 0 and 1
        assert_eq!((llcs[1].nr_queued, llcs[1].max_queued), (2 + 3, 3));
        assert_eq!(llcs[1].counters[3], 200 + 300 + 2 * 3);
    }

    #[test]
    fn intervals_add_up() {
        let metrics = snapshot([5, 9]).since(&snapshot([1, 2]), SECOND);
        assert_eq!(metrics.llcs[&0].wakeups, 4);
        assert_eq!(metrics.llcs[&1].target, 7 * 2);
        assert_eq!(metrics.total.wakeups, 4 + 7);
        assert_eq!(metrics.total.util, 50.0);
        assert_eq!((metrics.total.nr_queued, metrics.total.max_queued), (6, 9));
        assert_eq!(metrics.total.reenqueue, (4 + 7) * u64::from(magpie_stat_MAGPIE_NR_STATS));
    }

    #[test]
    fn a_restart_counts_from_zero() {
        assert_eq!(snapshot([2, 2]).since(&snapshot([7, 7]), SECOND).llcs[&0].wakeups, 2);
        assert_eq!(snapshot([2, 2]).since(&Snapshot::default(), SECOND).total.wakeups, 4);
    }

    #[test]
    fn metrics_survive_the_socket_and_rows_line_up() {
        let metrics = snapshot([5, 9]).since(&snapshot([1, 2]), SECOND);
        let json = serde_json::to_string(&metrics).unwrap();
        assert_eq!(serde_json::from_str::<Metrics>(&json).unwrap(), metrics);

        let mut text = Vec::new();
        metrics.format(&mut text).unwrap();
        let lens: Vec<_> = String::from_utf8(text).unwrap().lines().skip(1).map(str::len).collect();
        assert!(lens.windows(2).all(|pair| pair[0] == pair[1]), "{lens:?}");
    }
}

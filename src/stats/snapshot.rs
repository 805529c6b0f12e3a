// SPDX-License-Identifier: GPL-2.0-only
//! Counters of the BPF program since the start. The program may write while they are read.
//!
//! ```text
//! cpu_ctxs[].stats --sum by LLC--> LlcSnapshot --whole()--> the machine
//! ```

use std::cell::UnsafeCell;
use std::ops::AddAssign;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use super::{cgroups, wake_cases};
use crate::bpf_intf::*;
use crate::numa;
use crate::preflight;
use crate::publisher::is_usable;
use crate::shared::{Access, part};
use crate::topology::Layout;
use crate::tunables::{self, Steal, Tunables};
use crate::version;

pub type Counters = [u64; magpie_stat_MAGPIE_NR_STATS as usize];

/// Buckets of `struct latency_hist`.
pub type Latencies = [u64; magpie_limits_LATENCY_BUCKETS as usize];

/// `stolen_from` of `struct cpu_ctx`.
pub type StolenFrom = [u64; magpie_limits_MATRIX_LLCS as usize];

/// Memory that the BPF program may write while it is read.
pub struct Shared<'a> {
    pub cpu_ctxs: &'a [UnsafeCell<cpu_ctx>],
    pub cpu_layouts: &'a [UnsafeCell<cpu_layout>],
    pub llc_publisheds: &'a [UnsafeCell<llc_published>],
    pub latency_hists: &'a [UnsafeCell<latency_hist>],
    pub groups: &'a [UnsafeCell<group>],
    /// Number of cgroups without a group.
    pub lost_groups: u32,
    pub capacities: &'a UnsafeCell<capacities>,
    /// None if wake cases are not counted, because CPUs are, or count as, of one kind.
    pub wake_cases: Option<&'a [UnsafeCell<crate::bpf_intf::wake_cases>]>,
}

/// State of one LLC at one time.
#[derive(Clone, Debug)]
pub struct LlcSnapshot {
    pub nr_cpus: usize,
    /// Sum of the CPUs' capacities, each 0..1024.
    pub capacity: usize,
    /// Sum of the CPUs' `util_avg`, 0..capacity.
    pub sum_util: u32,
    /// Sum of the CPUs' targets for the governor, each 0..1024.
    pub sum_target: u64,
    /// Number of CPUs that a search may scan now.
    pub nr_scan: u32,
    /// Number of tasks waiting in the queues of the CPUs.
    pub nr_queued: u64,
    /// Length of the longest of these queues.
    pub max_queued: u64,
    pub node: usize,
    /// Busy time of the CPUs since the start, up to now. It may decrease slightly, because the time
    /// since the last count is read from another clock. The counter does not decrease.
    pub busy_ns: u64,
    /// Counters since the start.
    pub counters: Counters,
    /// Searches since the start by duration, in powers of two of ns; with --latency-hist.
    pub latencies: Latencies,
    /// Tasks stolen from other LLCs since the start, by victim LLC.
    pub stolen_from: StolenFrom,
}

/// Counters of the memory sampler since the start; all 0 if it does not run.
#[derive(Clone, Copy, Debug, Default)]
pub struct SamplerSnapshot {
    pub cpu_ns: u64,
    pub samples: u64,
    pub cut: u64,
    pub longest_ns: u64,
    pub known: u64,
}

impl From<&numa::Costs> for SamplerSnapshot {
    fn from(costs: &numa::Costs) -> Self {
        let of = |count: &AtomicU64| count.load(Ordering::Relaxed);
        Self {
            cpu_ns: of(&costs.cpu_ns),
            samples: of(&costs.samples),
            cut: of(&costs.cut),
            longest_ns: of(&costs.longest_ns),
            known: of(&costs.known),
        }
    }
}

/// State of the machine at one time.
#[derive(Clone, Debug, Default)]
pub struct Snapshot {
    pub llcs: Vec<LlcSnapshot>,
    pub cgroups: cgroups::Snapshot,
    /// CLOCK_MONOTONIC of the snapshot. Intervals use it, because a snapshot may be delivered late.
    pub at: Duration,
    pub sampler: SamplerSnapshot,
    pub wake_cases: wake_cases::Snapshot,
    pub about: Arc<About>,
}

/// Version, machine and flags of the scheduler: constant while it runs.
#[derive(Clone, Debug, Default)]
pub struct About {
    pub version: String,
    /// Release of the kernel.
    pub kernel: String,
    /// When the scheduler was attached, CLOCK_MONOTONIC.
    pub attached_at: Duration,
    /// Modes in force on this machine.
    pub mode: String,
    /// Flags that differ from their defaults, in the syntax of a command line.
    pub flags: String,
    pub max_cgroups: u32,
}

impl About {
    /// `asked` has the flags as requested, `tunables` as resolved for this machine.
    pub fn new(layout: &Layout, asked: &Tunables, tunables: &Tunables, attached_at: Duration) -> Self {
        let flags = tunables::changed(asked).join(" ");
        let max_cgroups = tunables.max_cgroups;
        let (version, kernel, mode) = (version(), preflight::release(), mode(layout, tunables));
        Self { version, kernel, attached_at, mode, flags, max_cgroups }
    }
}

fn mode(layout: &Layout, tunables: &Tunables) -> String {
    let cgroups = format!("cgroups ({})", tunables.cgroup_mode.name());
    let parts = [
        ("SMT", layout.smt_width > 1),
        ("capacity", !tunables.no_capacity && layout.nr_stronger() > 0),
        ("NUMA", layout.nr_nodes() > 1),
        (&cgroups, !tunables.no_cgroups),
        ("stealing", tunables.steal != Steal::Off),
    ];
    let counts: Vec<_> = parts.iter().filter(|(_, counts)| *counts).map(|&(name, _)| name).collect();
    counts.join(", ")
}

/// Return the busy time not yet in a CPU's counter: since its last tick or since it left idle, ns.
fn busy_since(cctx: &UnsafeCell<cpu_ctx>, now: Duration) -> u64 {
    let counted = part!(cctx, pelt.since).load().wrapping_add(part!(cctx, mono_offset).load());
    if part!(cctx, pelt.running).load() == 0 { 0 } else { (now.as_nanos() as u64).saturating_sub(counted) }
}

impl Snapshot {
    /// Take a snapshot of the shared memory at `now` (CLOCK_MONOTONIC), by LLC, with the
    /// publisher's `sum_util`. The program may write meanwhile. Queue lengths are of its last
    /// sample.
    pub fn new(
        layout: &Layout,
        shared: &Shared<'_>,
        sum_util: &[u32],
        sampler: Option<&numa::Costs>,
        now: Duration,
    ) -> Self {
        let mut llcs: Vec<LlcSnapshot> = (layout.llcs.iter().zip(sum_util).zip(shared.llc_publisheds))
            .map(|((llc, &sum_util), published)| LlcSnapshot {
                nr_cpus: 0,
                capacity: 0,
                sum_util,
                sum_target: 0,
                nr_scan: part!(published, nr_scan).load(),
                nr_queued: 0,
                max_queued: 0,
                node: llc.node,
                busy_ns: 0,
                counters: [0; magpie_stat_MAGPIE_NR_STATS as usize],
                latencies: Latencies::default(),
                stolen_from: StolenFrom::default(),
            })
            .collect();
        for (&id, cpu) in &layout.cpus {
            let (cctx, hist) = (&shared.cpu_ctxs[id], &shared.latency_hists[id]);
            let llc = &mut llcs[cpu.llc];
            let present = is_usable(shared.cpu_layouts, id);
            if present {
                llc.nr_cpus += 1;
                llc.capacity += cpu.capacity;
            }
            let counters: Counters = std::array::from_fn(|stat| part!(cctx, stats[stat]).load());
            let stolen_from: StolenFrom = std::array::from_fn(|from| part!(cctx, stolen_from[from]).load());
            let nr_queued = part!(cctx, nr_queued).load().max(0) as u64;
            llc.busy_ns += counters[magpie_stat_STAT_BUSY_NS as usize] + busy_since(cctx, now);
            llc.sum_target += if present { part!(cctx, cpuperf_target).load().into() } else { 0 };
            llc.nr_queued += nr_queued;
            llc.max_queued = llc.max_queued.max(nr_queued);
            add(&mut llc.counters, &counters);
            add(&mut llc.stolen_from, &stolen_from);
            for (bucket, total) in llc.latencies.iter_mut().enumerate() {
                *total += part!(hist, buckets[bucket]).load();
            }
        }
        let cgroups = cgroups::Snapshot::new(shared.groups, shared.lost_groups);
        let sampler = sampler.map(SamplerSnapshot::from).unwrap_or_default();
        let ids = layout.cpus.keys().copied();
        let wake_cases = wake_cases::Snapshot::new(shared.wake_cases, ids);
        Self { llcs, cgroups, sampler, wake_cases, at: now, about: Arc::default() }
    }

    /// Return the sum of all LLCs.
    pub fn whole(&self) -> Option<LlcSnapshot> {
        self.llcs.iter().cloned().reduce(|mut sum, llc| {
            sum += &llc;
            sum
        })
    }
}

impl AddAssign<&Self> for LlcSnapshot {
    fn add_assign(&mut self, other: &Self) {
        self.nr_cpus += other.nr_cpus;
        self.capacity += other.capacity;
        self.sum_util += other.sum_util;
        self.busy_ns += other.busy_ns;
        self.sum_target += other.sum_target;
        self.nr_scan += other.nr_scan;
        self.nr_queued += other.nr_queued;
        self.max_queued = self.max_queued.max(other.max_queued);
        add(&mut self.counters, &other.counters);
        add(&mut self.latencies, &other.latencies);
        add(&mut self.stolen_from, &other.stolen_from);
    }
}

fn add(sums: &mut [u64], counts: &[u64]) {
    for (sum, count) in sums.iter_mut().zip(counts) {
        *sum += count;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tunables::CgroupMode;
    use bytemuck::Zeroable;
    use scx_utils::testutils::make_test_topo;

    #[test]
    fn cpus_add_up_by_llc() {
        let (topo, nr_cpus) = make_test_topo(1, 2, 2, 1);
        let layout = Layout::new(&topo, 0).unwrap();
        // SAFETY: plain integers.
        let mut cpu_ctxs: Vec<UnsafeCell<cpu_ctx>> = (0..nr_cpus).map(|_| unsafe { std::mem::zeroed() }).collect();
        for (id, cctx) in cpu_ctxs.iter_mut().enumerate() {
            let cctx = cctx.get_mut();
            cctx.nr_queued = id as i32;
            cctx.cpuperf_target = 100 * id as u32;
            cctx.stats = std::array::from_fn(|stat| (id * 100 + stat) as u64);
            // CPU 3 has been busy for 40 ns at time 1000.
            cctx.pelt = pelt { since: 460, running: u8::from(id == 3), ..cctx.pelt };
            cctx.mono_offset = 500;
            cctx.stolen_from[1] = id as u64;
        }
        cpu_ctxs[0].get_mut().nr_queued = -1; // an error: counts as none

        let present = || cpu_layout { state: cpu_state_CPU_USABLE, ..Zeroable::zeroed() };
        let cpu_layouts: Vec<_> = (0..nr_cpus).map(|_| UnsafeCell::new(present())).collect();
        // SAFETY: as above.
        let zeroed = || unsafe { (std::mem::zeroed(), std::mem::zeroed()) };
        let (llc_publisheds, latency_hists): (Vec<_>, Vec<_>) = (0..nr_cpus).map(|_| zeroed()).unzip();
        // SAFETY: as above.
        let capacities = unsafe { std::mem::zeroed() };
        let shared = Shared {
            cpu_ctxs: &cpu_ctxs,
            cpu_layouts: &cpu_layouts,
            llc_publisheds: &llc_publisheds,
            latency_hists: &latency_hists,
            groups: &[],
            lost_groups: 0,
            capacities: &capacities,
            wake_cases: None,
        };
        let llcs = Snapshot::new(&layout, &shared, &[7, 8], None, Duration::from_nanos(1000)).llcs;
        assert_eq!((llcs[0].nr_cpus, llcs[0].capacity, llcs[0].sum_util, llcs[1].sum_util), (2, 2048, 7, 8));
        assert_eq!((llcs[0].nr_queued, llcs[0].max_queued), (1, 1)); // CPUs 0 and 1
        assert_eq!((llcs[0].sum_target, llcs[1].sum_target), (100, 500));
        assert_eq!((llcs[1].nr_queued, llcs[1].max_queued), (2 + 3, 3));
        assert_eq!((llcs[0].stolen_from[1], llcs[1].stolen_from[1]), (1, 2 + 3));
        assert_eq!(llcs[1].counters[3], 200 + 300 + 2 * 3);
        let counted = 2 * u64::from(magpie_stat_STAT_BUSY_NS);
        assert_eq!((llcs[0].busy_ns, llcs[1].busy_ns), (100 + counted, 200 + 300 + counted + 40));
        assert_eq!(llcs[1].counters[magpie_stat_STAT_BUSY_NS as usize], 200 + 300 + counted);
    }

    #[test]
    fn what_counts_depends_on_machine_and_flags() {
        let (topo, _) = make_test_topo(2, 1, 2, 2);
        let layout = Layout::new(&topo, 0).unwrap();
        let about = |flags: &[&str]| {
            let asked = Tunables::parse(flags).unwrap();
            let resolved = Tunables { cgroup_mode: CgroupMode::Smp, ..asked.clone() };
            About::new(&layout, &asked, &resolved, Duration::ZERO)
        };
        let (plain, bare) = (about(&[]), about(&["--no-cgroups", "--steal", "off", "--slice-us=4000"]));
        assert_eq!((plain.mode.as_str(), plain.flags.as_str()), ("SMT, NUMA, cgroups (smp), stealing", ""));
        assert_eq!(bare.mode, "SMT, NUMA");
        assert_eq!(bare.flags, "--slice-us 4000 --steal off --no-cgroups");
        assert!(!plain.kernel.is_empty() && !plain.version.is_empty());
    }
}

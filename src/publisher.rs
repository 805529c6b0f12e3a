// SPDX-License-Identifier: GPL-2.0-only
//! Publish `sum_util` and `nr_scan` of each LLC to the BPF program at an interval, with the time.
//!
//! ```text
//! cpu_ctxs[].pelt --read in place--> util_avg now --sum by LLC--> sum_util --+-- ScanLimit --> nr_scan
//! frequency --> what the CPUs can reach now --sum by LLC--> capacity --------+
//!                                           --each, least and most--> capacities
//! ```
//!
//! Both are in the program's memory, which is mapped here, so no system call is needed. They are
//! cells because the program writes `pelt` and reads `llc_publisheds` at the same time. A reader of
//! published values checks the time stamp before it uses them.

use std::cell::UnsafeCell;
use std::collections::BTreeMap;
use std::time::Duration;

use nix::time::{ClockId, clock_gettime};

use crate::bpf_intf::{
    capacities, cpu_ctx, cpu_layout, cpu_state_CPU_ONLINE as CPU_ONLINE, cpu_state_CPU_USABLE as CPU_USABLE,
    llc_published,
};
use crate::nr_scan::ScanLimit;
use crate::pelt::{Pelt, decay_factors};
use crate::shared::{Access, part, store_release};
use crate::topology::Layout;

/// Publisher of utilization and its limits, by LLC.
pub struct Publisher {
    layout: Layout,
    limit: ScanLimit,
    /// Capacity that each CPU can reach now, by id.
    reachable: BTreeMap<usize, u32>,
    factors: [u32; 32],
}

impl Publisher {
    /// Create a publisher for CPUs that reach their capacity.
    pub fn new(layout: Layout, limit: ScanLimit) -> Self {
        let reachable = layout.cpus.iter().map(|(&id, cpu)| (id, cpu.capacity as u32)).collect();
        Self { layout, limit, reachable, factors: decay_factors() }
    }

    /// Set the capacities that CPUs can reach now: `reachable(id, capacity)`, 1..=capacity.
    pub fn set_reachable(&mut self, reachable: impl Fn(usize, usize) -> usize) {
        let cpus = self.layout.cpus.iter();
        self.reachable = cpus.map(|(&id, cpu)| (id, reachable(id, cpu.capacity) as u32)).collect();
    }

    /// Set the limit for the next `publish()`.
    pub fn set_limit(&mut self, limit: ScanLimit) {
        self.limit = limit;
    }

    /// Add new CPUs. They reach their capacity until [`Publisher::set_reachable`] is called.
    pub fn set_layout(&mut self, layout: &Layout) {
        self.layout = layout.clone();
        for (&id, cpu) in &layout.cpus {
            self.reachable.entry(id).or_insert(cpu.capacity as u32);
        }
    }

    /// Write the reachable capacity of each CPU for the BPF program.
    pub fn publish_capacities(&self, capacities: &UnsafeCell<capacities>) {
        let cpus = &self.reachable;
        for (&id, &reachable) in cpus {
            part!(capacities, of[id]).store(reachable);
        }
        part!(capacities, max).store(cpus.values().max().copied().unwrap_or(0));
        part!(capacities, min).store(cpus.values().min().copied().unwrap_or(0));
    }

    /// Return for each LLC the number of usable CPUs and the sum of their reachable capacities.
    fn present(&self, cpu_layouts: &[UnsafeCell<cpu_layout>]) -> Vec<(u32, u32)> {
        let mut sums = vec![(0, 0); self.layout.llcs.len()];
        for (&id, cpu) in self.layout.cpus.iter().filter(|(id, _)| is_usable(cpu_layouts, **id)) {
            sums[cpu.llc].0 += 1;
            sums[cpu.llc].1 += self.reachable[&id];
        }
        sums
    }

    /// Return the sum of `util_avg` of each LLC at `now` (CLOCK_MONOTONIC). Offline CPUs are idle.
    /// Range: 0..nr_cpus * 1024.
    pub fn sum_util(&self, cpu_ctxs: &[UnsafeCell<cpu_ctx>], now: Duration) -> Vec<u32> {
        let mut sums = vec![0; self.layout.llcs.len()];
        for (&id, cpu) in &self.layout.cpus {
            let cctx = &cpu_ctxs[id];
            // The CPU may write concurrently. A torn sample decays like any other.
            let pelt = Pelt {
                updated_at: part!(cctx, pelt.updated_at).load().wrapping_add(part!(cctx, mono_offset).load()),
                util_sum: part!(cctx, pelt.util_sum).load(),
                period_contrib: part!(cctx, pelt.period_contrib).load(),
                // The frequency since updated_at is unknown: full speed is assumed.
                scale: if part!(cctx, pelt.running).load() != 0 { cpu.capacity as u32 } else { 0 },
            };
            sums[cpu.llc] += pelt.util_at(now.as_nanos() as u64, &self.factors);
        }
        sums
    }

    /// Write the values at `now` (CLOCK_MONOTONIC) for the BPF program.
    pub fn publish(
        &self,
        cpu_ctxs: &[UnsafeCell<cpu_ctx>],
        cpu_layouts: &[UnsafeCell<cpu_layout>],
        llc_publisheds: &[UnsafeCell<llc_published>],
        now: Duration,
    ) {
        let llcs = self.sum_util(cpu_ctxs, now).into_iter().zip(self.present(cpu_layouts));
        for ((sum_util, (nr_cpus, capacity)), published) in llcs.zip(llc_publisheds) {
            part!(published, sum_util).store(sum_util);
            part!(published, capacity).store(capacity);
            part!(published, nr_scan).store(self.limit.nr_scan(sum_util, capacity, nr_cpus));
            // Store the time last, so that it is never newer than the values.
            store_release(part!(published, at), now.as_nanos() as u64);
        }
    }
}

/// Return true if the CPU is online and has a place in the program's layout: it is usable.
pub fn is_usable(cpu_layouts: &[UnsafeCell<cpu_layout>], cpu: usize) -> bool {
    state(cpu_layouts, cpu) == CPU_USABLE
}

/// Return true if the CPU is online, as far as the BPF program was notified.
pub fn is_online(cpu_layouts: &[UnsafeCell<cpu_layout>], cpu: usize) -> bool {
    state(cpu_layouts, cpu) & CPU_ONLINE != 0
}

fn state(cpu_layouts: &[UnsafeCell<cpu_layout>], cpu: usize) -> u32 {
    part!(&cpu_layouts[cpu], state).load()
}

/// Return CLOCK_MONOTONIC, the clock of `bpf_ktime_get_ns()`.
pub fn monotonic() -> Duration {
    clock(ClockId::CLOCK_MONOTONIC)
}

/// Return the time of a clock that always exists; 0 on an error.
pub fn clock(id: ClockId) -> Duration {
    clock_gettime(id).map_or(Duration::ZERO, Duration::from)
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytemuck::Zeroable;
    use scx_utils::testutils::make_test_topo;

    #[test]
    fn what_is_published_is_the_sum_by_llc() {
        let (topo, nr_cpus) = make_test_topo(1, 2, 2, 1);
        let layout = Layout::new(&topo, 0).unwrap();
        let present = || cpu_layout { state: CPU_USABLE, ..Zeroable::zeroed() };
        let mut cpu_layouts: Vec<_> = (0..nr_cpus).map(|_| UnsafeCell::new(present())).collect();
        // SAFETY: plain integers.
        let zeroed: (cpu_ctx, llc_published) = unsafe { std::mem::zeroed() };
        let mut cpu_ctxs: Vec<_> = (0..nr_cpus).map(|_| UnsafeCell::new(zeroed.0)).collect();
        let mut llc_publisheds: Vec<_> = layout.llcs.iter().map(|_| UnsafeCell::new(zeroed.1)).collect();
        for (id, cpu) in &layout.cpus {
            cpu_ctxs[*id].get_mut().pelt.running = u8::from(cpu.llc == 1);
        }

        let limit = ScanLimit { unlimited: false, imbalance_pct: 117, small_llc_boost: false };
        let mut publisher = Publisher::new(layout, limit);
        let now = Duration::from_secs(1); // since when the CPUs of LLC 1 are busy
        publisher.publish(&cpu_ctxs, &cpu_layouts, &llc_publisheds, now);
        let sums: Vec<u32> = llc_publisheds.iter_mut().map(|llc| llc.get_mut().sum_util).collect();
        assert_eq!(sums, publisher.sum_util(&cpu_ctxs, now));
        assert_eq!(sums[0], 0);
        assert!(sums[1].abs_diff(2 * 1024) <= 6, "{sums:?}");
        assert!(llc_publisheds.iter_mut().all(|llc| llc.get_mut().at == 1_000_000_000));
        let nr_scans: Vec<u32> = llc_publisheds.iter_mut().map(|llc| llc.get_mut().nr_scan).collect();
        assert_eq!(nr_scans, [2, 0]);

        // With reachable capacities clamped to half, an LLC that is half utilized is full.
        cpu_ctxs[2].get_mut().pelt.running = 0;
        publisher.publish(&cpu_ctxs, &cpu_layouts, &llc_publisheds, now);
        assert_eq!(llc_publisheds[1].get_mut().nr_scan, 1);
        publisher.set_reachable(|_, capacity| capacity / 2);
        publisher.publish(&cpu_ctxs, &cpu_layouts, &llc_publisheds, now);
        assert_eq!((llc_publisheds[1].get_mut().capacity, llc_publisheds[1].get_mut().nr_scan), (1024, 0));

        // An offline CPU does not count.
        cpu_layouts[3].get_mut().state = 0;
        cpu_ctxs[3].get_mut().pelt.running = 0;
        publisher.set_reachable(|_, capacity| capacity);
        publisher.publish(&cpu_ctxs, &cpu_layouts, &llc_publisheds, now);
        assert_eq!((llc_publisheds[1].get_mut().capacity, llc_publisheds[1].get_mut().nr_scan), (1024, 1));
    }
}

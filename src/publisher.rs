// SPDX-License-Identifier: GPL-2.0-only
//! Publishes each LLC's `sum_util` and `nr_scan` to the BPF program at an interval, with the time of writing.
//!
//! ```text
//! cpu_ctxs[].pelt --read in place--> util_avg now --sum by LLC--> sum_util --+-- ScanLimit --> nr_scan
//! frequency --> what the CPUs can reach now --sum by LLC--> capacity --------+
//!                                           --each, least and most--> capacities
//! ```
//!
//! Both live in the program's memory, which is mapped here: no system call. They come as cells, for the program
//! writes the one and reads the other meanwhile. A reader of what is published judges by the time stamp whether
//! to believe it.

use std::cell::UnsafeCell;
use std::collections::BTreeMap;
use std::time::Duration;

use nix::time::{ClockId, clock_gettime};

use crate::bpf_intf::{
    capacities, cpu_ctx, cpu_layout, cpu_state_CPU_ONLINE as CPU_ONLINE, cpu_state_CPU_PRESENT as CPU_PRESENT,
    llc_published,
};
use crate::nr_scan::ScanLimit;
use crate::pelt::{Pelt, decay_factors};
use crate::shared::{Access, part, store_release};
use crate::topology::Layout;

/// Sums of utilization, by LLC, and what follows from them.
pub struct Publisher {
    layout: Layout,
    limit: ScanLimit,
    /// What each CPU can reach now, by id.
    reachable: BTreeMap<usize, u32>,
    factors: [u32; 32],
}

impl Publisher {
    /// All CPUs reach their capacity until [`Publisher::set_reachable`] says otherwise.
    pub fn new(layout: Layout, limit: ScanLimit) -> Self {
        let reachable = layout.cpus.iter().map(|(&id, cpu)| (id, cpu.capacity as u32)).collect();
        Self { layout, limit, reachable, factors: decay_factors() }
    }

    /// Notes what CPUs can reach now: `reachable(id, capacity)`, 1..=capacity.
    pub fn set_reachable(&mut self, reachable: impl Fn(usize, usize) -> usize) {
        let cpus = self.layout.cpus.iter();
        self.reachable = cpus.map(|(&id, cpu)| (id, reachable(id, cpu.capacity) as u32)).collect();
    }

    /// What is published next is bounded so.
    pub fn set_limit(&mut self, limit: ScanLimit) {
        self.limit = limit;
    }

    /// CPUs have come. They reach their capacity until [`Publisher::set_reachable`] says otherwise.
    pub fn set_layout(&mut self, layout: &Layout) {
        self.layout = layout.clone();
        for (&id, cpu) in &layout.cpus {
            self.reachable.entry(id).or_insert(cpu.capacity as u32);
        }
    }

    /// Writes what each CPU can reach where the BPF program reads it.
    pub fn publish_capacities(&self, capacities: &UnsafeCell<capacities>) {
        let cpus = &self.reachable;
        for (&id, &reachable) in cpus {
            part!(capacities, of[id]).store(reachable);
        }
        part!(capacities, max).store(cpus.values().max().copied().unwrap_or(0));
        part!(capacities, min).store(cpus.values().min().copied().unwrap_or(0));
    }

    /// Of each LLC the CPUs that are present, and what they can reach together.
    fn present(&self, cpu_layouts: &[UnsafeCell<cpu_layout>]) -> Vec<(u32, u32)> {
        let mut sums = vec![(0, 0); self.layout.llcs.len()];
        for (&id, cpu) in self.layout.cpus.iter().filter(|(id, _)| is_present(cpu_layouts, **id)) {
            sums[cpu.llc].0 += 1;
            sums[cpu.llc].1 += self.reachable[&id];
        }
        sums
    }

    /// Sum of `util_avg` of each LLC's CPUs at `now` (CLOCK_MONOTONIC), 0..nr_cpus * 1024. CPUs that went are idle.
    pub fn sum_util(&self, cpu_ctxs: &[UnsafeCell<cpu_ctx>], now: Duration) -> Vec<u32> {
        let mut sums = vec![0; self.layout.llcs.len()];
        for (&id, cpu) in &self.layout.cpus {
            let cctx = &cpu_ctxs[id];
            // The CPU may write meanwhile: a torn sample decays like any other.
            let pelt = Pelt {
                updated_at: part!(cctx, pelt.updated_at).load().wrapping_add(part!(cctx, mono_offset).load()),
                util_sum: part!(cctx, pelt.util_sum).load(),
                period_contrib: part!(cctx, pelt.period_contrib).load(),
                // The frequency since updated_at is not known here: counts as full.
                scale: if part!(cctx, pelt.running).load() != 0 { cpu.capacity as u32 } else { 0 },
            };
            sums[cpu.llc] += pelt.util_at(now.as_nanos() as u64, &self.factors);
        }
        sums
    }

    /// Writes what is known at `now` (CLOCK_MONOTONIC) where the BPF program reads them.
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
            // The time comes last, so that it is never too new.
            store_release(part!(published, at), now.as_nanos() as u64);
        }
    }
}

/// Is the CPU online, and does the BPF program know where it stands?
pub fn is_present(cpu_layouts: &[UnsafeCell<cpu_layout>], cpu: usize) -> bool {
    state(cpu_layouts, cpu) == CPU_PRESENT
}

/// Is it online, as far as the BPF program was told?
pub fn is_online(cpu_layouts: &[UnsafeCell<cpu_layout>], cpu: usize) -> bool {
    state(cpu_layouts, cpu) & CPU_ONLINE != 0
}

fn state(cpu_layouts: &[UnsafeCell<cpu_layout>], cpu: usize) -> u32 {
    part!(&cpu_layouts[cpu], state).load()
}

/// CLOCK_MONOTONIC, the clock of `bpf_ktime_get_ns()`.
pub fn monotonic() -> Duration {
    clock(ClockId::CLOCK_MONOTONIC)
}

/// A clock that always exists.
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
        let present = || cpu_layout { state: CPU_PRESENT, ..Zeroable::zeroed() };
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

        // Clamped to half, an LLC in use to half of its capacity is full.
        cpu_ctxs[2].get_mut().pelt.running = 0;
        publisher.publish(&cpu_ctxs, &cpu_layouts, &llc_publisheds, now);
        assert_eq!(llc_publisheds[1].get_mut().nr_scan, 1);
        publisher.set_reachable(|_, capacity| capacity / 2);
        publisher.publish(&cpu_ctxs, &cpu_layouts, &llc_publisheds, now);
        assert_eq!((llc_publisheds[1].get_mut().capacity, llc_publisheds[1].get_mut().nr_scan), (1024, 0));

        // A CPU that went counts for nothing.
        cpu_layouts[3].get_mut().state = 0;
        cpu_ctxs[3].get_mut().pelt.running = 0;
        publisher.set_reachable(|_, capacity| capacity);
        publisher.publish(&cpu_ctxs, &cpu_layouts, &llc_publisheds, now);
        assert_eq!((llc_publisheds[1].get_mut().capacity, llc_publisheds[1].get_mut().nr_scan), (1024, 1));
    }
}

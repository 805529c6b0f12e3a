// SPDX-License-Identifier: GPL-2.0-only
//! Publishes each LLC's `sum_util` to the BPF program at an interval, with the time of writing.
//!
//! ```text
//! cpu_ctxs[].pelt --read in place--> util_avg now --sum by LLC--> llc_publisheds[]
//! ```
//!
//! Both live in the program's memory, which is mapped here: no system call. Whoever reads what is published
//! judges by the time stamp whether to believe it.

use std::time::Duration;

use crate::bpf_skel::types;
use crate::pelt::{Pelt, decay_factors};
use crate::topology::Layout;

/// Sums of utilization, by LLC.
pub struct Publisher {
    layout: Layout,
    factors: [u32; 32],
}

impl Publisher {
    pub fn new(layout: Layout) -> Self {
        Self { layout, factors: decay_factors() }
    }

    /// Sum of `util_avg` of each LLC's CPUs at `now` (CLOCK_MONOTONIC), 0..nr_cpus * 1024.
    pub fn sum_util(&self, bss: &types::bss, now: Duration) -> Vec<u32> {
        let mut sums = vec![0; self.layout.llcs.len()];
        for (&id, cpu) in &self.layout.cpus {
            // SAFETY: in bounds; the CPU may write while we read, and a torn sample decays like any other.
            let pelt = unsafe { std::ptr::read_volatile(&bss.cpu_ctxs[id].pelt) };
            let pelt = Pelt {
                updated_at: pelt.updated_at.wrapping_add(pelt.mono_offset),
                util_sum: pelt.util_sum,
                period_contrib: pelt.period_contrib,
                // The frequency since updated_at is not known here: counts as full.
                scale: if pelt.running != 0 { cpu.capacity as u32 } else { 0 },
            };
            sums[cpu.llc] += pelt.util_at(now.as_nanos() as u64, &self.factors);
        }
        sums
    }

    /// Writes the sums where the BPF program reads them.
    pub fn publish(&self, bss: &mut types::bss) {
        let now = monotonic();
        for (llc, sum_util) in self.sum_util(bss, now).into_iter().enumerate() {
            let published = &mut bss.llc_publisheds[llc];
            // SAFETY: plain words in mapped memory; the time comes last, so that it is never too new.
            unsafe {
                std::ptr::write_volatile(&mut published.sum_util, sum_util);
                std::ptr::write_volatile(&mut published.at, now.as_nanos() as u64);
            }
        }
    }
}

/// CLOCK_MONOTONIC, the clock of `bpf_ktime_get_ns()`.
pub fn monotonic() -> Duration {
    let mut ts = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: ts is valid, and CLOCK_MONOTONIC always exists.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &mut ts) };
    Duration::new(ts.tv_sec as u64, ts.tv_nsec as u32)
}

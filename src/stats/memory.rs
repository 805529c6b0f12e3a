// SPDX-License-Identifier: GPL-2.0-only
//! What looking at where processes have their memory (src/numa) came to.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use scx_stats_derive::{Stats, stat_doc};
use serde::{Deserialize, Serialize};

use super::{percent, rise};
use crate::numa;

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

/// What an interval added of looking at where processes have their memory; nothing on machines with one node.
#[stat_doc]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, Stats)]
#[serde(default)]
pub struct Memory {
    #[stat(desc = "processes looked at, whole")]
    pub samples: u64,
    #[stat(desc = "times that a look was left for later, after --numa-sample-ms")]
    pub cut: u64,
    #[stat(desc = "CPU time for that, % of a CPU")]
    pub cost: f64,
    #[stat(desc = "the same in nanoseconds")]
    pub cpu_ns: u64,
    #[stat(desc = "the longest look at a time since the start, microseconds of CPU time")]
    pub longest_us: u64,
    #[stat(desc = "processes known now to have most of their memory on one node")]
    pub homes: u64,
}

impl SamplerSnapshot {
    /// What came in the `interval` since `prev`.
    pub fn since(&self, prev: &Self, interval: Duration) -> Memory {
        Memory {
            samples: rise(self.samples, prev.samples),
            cut: rise(self.cut, prev.cut),
            cost: percent(rise(self.cpu_ns, prev.cpu_ns), interval.as_nanos() as u64),
            cpu_ns: rise(self.cpu_ns, prev.cpu_ns),
            longest_us: self.longest_ns / 1000,
            homes: self.homes,
        }
    }
}

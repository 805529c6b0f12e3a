// SPDX-License-Identifier: GPL-2.0-only
//! What can befall a running system; `kernel/faults.rs` has it happen.

use serde::{Deserialize, Serialize};

use crate::cgroup::{CgroupId, Spec};
use crate::mask::Mask;

/// What happens. `pick` chooses among the tasks alive then, kernel threads and the loader excepted; `cpu` among the
/// CPUs online then, or offline for `Online`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Fault {
    /// A real-time task takes the CPU for so many ns.
    HigherClass {
        cpu: usize,
        ns: u64,
    },
    Affinity {
        pick: usize,
        allowed: Mask,
    },
    Nice {
        pick: usize,
        nice: i32,
    },
    /// Moves to a cgroup; `to` and `cgroup` are modulo the number there ever were.
    Move {
        pick: usize,
        to: CgroupId,
    },
    Weight {
        cgroup: CgroupId,
        weight: u32,
    },
    Idle {
        cgroup: CgroupId,
        idle: bool,
    },
    /// cpu.max; none without a quota.
    Limit {
        cgroup: CgroupId,
        quota_us: Option<u64>,
        period_us: u64,
        burst_us: u64,
    },
    Make(Spec),
    /// Nothing happens if there is something in it.
    Remove {
        cgroup: CgroupId,
    },
    /// The loader finds its process's memory on this node, modulo; None: spread.
    Memory {
        pick: usize,
        node: Option<usize>,
    },
    Offline {
        cpu: usize,
    },
    Online {
        cpu: usize,
    },
}

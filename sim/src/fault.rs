// SPDX-License-Identifier: GPL-2.0-only
//! Changes to a running system that the scheduler must survive. See `kernel/faults.rs`.

use serde::{Deserialize, Serialize};

use crate::cgroup::{CgroupId, Spec};
use crate::mask::Mask;

/// - `pick` selects among the tasks that are alive then, except kernel threads and the loader.
/// - `cpu` selects among the CPUs that are online then; for `Online`, offline.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Fault {
    /// A real-time task takes the CPU for `ns`.
    HigherClass { cpu: usize, ns: u64 },
    /// sched_setaffinity()
    Affinity { pick: usize, allowed: Mask },
    /// setpriority()
    Nice { pick: usize, nice: i32 },
    /// sched_setattr(): a slice of its own; 0: none.
    OwnSlice { pick: usize, us: u64 },
    /// The task moves to a cgroup. `to` and `cgroup` are modulo the number ever created.
    Move { pick: usize, to: CgroupId },
    /// setsid(): the task moves to one of a few sessions, modulo.
    Session { pick: usize, to: usize },
    /// cpu.weight
    Weight { cgroup: CgroupId, weight: u32 },
    /// cpu.idle
    Idle { cgroup: CgroupId, idle: bool },
    /// cpu.max; no limit without a quota.
    Limit { cgroup: CgroupId, quota_us: Option<u64>, period_us: u64, burst_us: u64 },
    /// mkdir
    Make(Spec),
    /// rmdir; does nothing if the cgroup has tasks or children.
    Remove { cgroup: CgroupId },
    /// The loader finds the memory of the task's process on this node, modulo; None: spread.
    Memory { pick: usize, node: Option<usize> },
    /// The CPU goes offline.
    Offline { cpu: usize },
    /// The CPU comes online.
    Online { cpu: usize },
}

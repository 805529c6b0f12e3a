// SPDX-License-Identifier: GPL-2.0-only
//! Moments that the kernel reports to its observer, and the observer's notes in it. Plain data.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::dsq::TaskId;
use crate::fluid::{Fluid, PROMISED};
use crate::kernel::Curr;
use crate::task::Insert;
use crate::time::USEC;
use crate::trace::Op;

/// An action that the kernel is about to take or has taken.
#[derive(Clone, Copy, Debug)]
pub enum Moment {
    /// The program is freshly loaded.
    Loaded,
    /// select_cpu() is about to be called.
    Selects,
    /// select_cpu() returned `cpu`.
    Selected { task: TaskId, cpu: usize },
    /// dispatch() is about to be called.
    Dispatches { cpu: usize },
    /// dispatch() has returned.
    Dispatched { cpu: usize },
    /// Any callback has returned.
    Called,
    /// cpu_release() has returned.
    Released { cpu: usize },
    /// The program was notified that the CPU is busy (`running`) or idle from now on.
    Notified { cpu: usize, running: bool },
    /// select_cpu() or enqueue() names the queue.
    Sent { task: TaskId, dsq_id: u64 },
    /// The task is about to be inserted at `to`.
    Inserts { task: TaskId, to: Insert },
    /// The task is in its queue.
    Enqueued { task: TaskId, cpu: usize, enq_flags: u64 },
    /// enqueue() is about to be called for a CPU that the program does not know.
    Absent,
    /// The task starts to run.
    Starts { task: TaskId, cpu: usize },
    /// The CPU has switched from `prev` to another task, to idle, or to a higher class.
    Switched { cpu: usize, prev: Curr },
    /// dispatch() has moved the task to a local DSQ.
    Moved { task: TaskId },
    /// dispatch() has found no task in another CPU's queue.
    Missed,
    /// The program kicks an idle CPU.
    Kicked,
    /// A task leaves a CPU that a higher class has taken.
    Reenqueued,
    /// [`Event::Check`](crate::kernel::Event::Check).
    Period,
}

/// A violated invariant.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Violation {
    pub kind: String,
    /// Simulated ns.
    pub at: u64,
    pub what: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {} (at {} us)", self.kind, self.what, self.at / USEC)
    }
}

/// Notes of the observer since the program was loaded.
#[derive(Default)]
pub struct Notes {
    /// Since when a CPU's overload bit is set without a reason, or its idle bit is missing.
    pub stale_since: Vec<Option<u64>>,
    /// Since when tasks wait on the CPU while its current has no tick.
    pub stuck_since: Vec<Option<u64>>,
    pub unknown_since: Vec<Option<u64>>,
    /// When each CPU's queue was last longer than the part that walks check.
    pub deep_at: Vec<u64>,
    /// Victims without a task: the program's count before this dispatch(), and those seen in it.
    pub steal_misses: u64,
    pub missed: u64,
    /// The program's counts before this search: scanned CPUs, and searches ended by a scan.
    pub scanned: u64,
    pub scans: u64,
    pub utils: Vec<Util>,
    /// Calls of callbacks before the program was loaded, by Op.
    pub counts: [u64; Op::COUNT],
    /// Tasks that dispatch() moved to a local DSQ; tasks enqueued on a CPU unknown to the program.
    pub moved: u64,
    pub uncounted: u64,
    /// Kicks of idle CPUs; tasks enqueued again because a higher class took the CPU.
    pub kicked: u64,
    pub reenqueued: u64,
    /// The service that tasks should have had.
    pub fluid: Fluid,
}

/// A CPU with utilization this close to its capacity has no idle time left, and PELT drops the lag
/// of its time. Rounding decides, so the program is right if it agrees with any of these margins.
pub const FULL_MARGINS: [f64; 3] = [0.1, 1.0, 8.0];

/// Utilization of a CPU: PELT in real numbers.
#[derive(Clone, Copy, Default)]
pub struct Util {
    /// For each of `FULL_MARGINS`: utilization, and the lag of PELT's time in ns.
    pub avgs: [(f64, f64); FULL_MARGINS.len()],
    pub at: u64,
    pub running: bool,
    /// 0..1
    pub freq: f64,
    /// Time up to which the program's sum is current.
    pub summed: u64,
}

impl Notes {
    pub fn new(nr_cpus: usize, now: u64) -> Self {
        Self {
            stale_since: vec![None; nr_cpus],
            stuck_since: vec![None; nr_cpus],
            unknown_since: vec![None; nr_cpus],
            deep_at: vec![0; nr_cpus],
            fluid: Fluid::new(nr_cpus, PROMISED, now),
            utils: vec![Util { at: now, freq: 1.0, ..Util::default() }; nr_cpus],
            ..Self::default()
        }
    }
}

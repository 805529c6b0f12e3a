// SPDX-License-Identifier: GPL-2.0-only
//! Record events in order: to compare runs, for the conformance test, and for `timeline.rs`.
//!
//! ```text
//! record() --> a hash of all records, always
//!          \-> the records, if kept
//! ```

use strum::IntoStaticStr;

use crate::dsq::TaskId;

/// A callback of the program, named as in `sched_ext_ops`, or another recorded event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, IntoStaticStr)]
#[strum(serialize_all = "snake_case")]
pub enum Op {
    SelectCpu,
    Enqueue,
    Dispatch,
    Tick,
    Running,
    Stopping,
    Yield,
    UpdateIdle,
    CpuRelease,
    /// `arg` is the CPU.
    CpuOnline,
    CpuOffline,
    InitTask,
    Init,
    /// `arg` is the cgroup.
    CgroupInit,
    CgroupExit,
    CgroupMove,
    CgroupSetWeight,
    CgroupSetBandwidth,
    CgroupSetIdle,
    /// A BPF timer fires; `arg` is its key.
    Timer,
    /// A task work runs at the return to user space.
    TaskWork,
    /// No callback: a context switch to `arg`: 0 idle, 1 a sched_ext task, 2 a higher class.
    Switch,
}

impl Op {
    pub const COUNT: usize = Op::Switch as usize + 1;

    pub fn is_of_cgroups(self) -> bool {
        (Self::CgroupInit..=Self::CgroupSetIdle).contains(&self)
    }

    pub fn name(self) -> &'static str {
        self.into()
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Record {
    pub at: u64,
    pub cpu: usize,
    pub task: Option<TaskId>,
    pub op: Op,
    /// Flags, or another argument of the callback.
    pub arg: u64,
}

#[derive(Default)]
pub struct Trace {
    pub keep: bool,
    pub records: Vec<Record>,
    /// FNV-1a over all records.
    pub hash: u64,
    pub counts: [u64; Op::COUNT],
}

impl Trace {
    pub fn record(&mut self, record: Record) {
        let task = record.task.map_or(u64::MAX, |task| task as u64);
        for word in [record.at, (record.cpu as u64) << 8 | record.op as u64, task, record.arg] {
            self.hash = (self.hash ^ word).wrapping_mul(0x100_0000_01b3);
        }
        self.counts[record.op as usize] += 1;
        if self.keep {
            self.records.push(record);
        }
    }
}

// SPDX-License-Identifier: GPL-2.0-only
//! Dispatch queues in the kernel's order: FIFO, or by virtual time with ties in order of arrival.

use std::collections::VecDeque;

use crate::native::{MAX_CPUS, SCX_DSQ_LOCAL_ON};

/// Index of a task among the simulator's tasks.
pub type TaskId = usize;

/// Number of queues that the program creates. Each CPU has one for tasks that may migrate, one for
/// tasks that may not, and one for throttled tasks.
pub const MAX_DSQS: usize = 3 * MAX_CPUS;

pub fn queue_cpu(id: usize) -> usize {
    id % MAX_CPUS
}

pub fn is_throttled_queue(id: usize) -> bool {
    id >= 2 * MAX_CPUS
}

pub fn pinned_queue(cpu: usize) -> usize {
    MAX_CPUS + cpu
}

pub fn is_pinned_queue(id: usize) -> bool {
    (MAX_CPUS..2 * MAX_CPUS).contains(&id)
}

/// Return the CPU if the id names the local DSQ of a CPU.
pub fn local_on(dsq_id: u64) -> Option<usize> {
    (dsq_id & SCX_DSQ_LOCAL_ON == SCX_DSQ_LOCAL_ON).then_some((dsq_id & u64::from(u32::MAX)) as usize)
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    /// 0 in a FIFO. Signed, so that the order survives 0.
    vtime: i64,
    task: TaskId,
    seq: u64,
}

#[derive(Clone, Debug, Default)]
pub struct Dsq {
    tasks: VecDeque<Entry>,
    pub seq: u64,
    /// A CPU holds the lock until then: no task is inserted or removed.
    pub locked_until: u64,
}

impl Dsq {
    fn entry(&mut self, vtime: i64, task: TaskId) -> Entry {
        self.seq += 1;
        Entry { vtime, task, seq: self.seq - 1 }
    }

    pub fn len(&self) -> usize {
        self.tasks.len()
    }

    pub fn is_empty(&self) -> bool {
        self.tasks.is_empty()
    }

    pub fn push_back(&mut self, task: TaskId) {
        let entry = self.entry(0, task);
        self.tasks.push_back(entry);
    }

    pub fn push_front(&mut self, task: TaskId) {
        let entry = self.entry(0, task);
        self.tasks.push_front(entry);
    }

    pub fn insert_vtime(&mut self, task: TaskId, vtime: u64) {
        let entry = self.entry(vtime as i64, task);
        let at = self.tasks.partition_point(|other| other.vtime <= entry.vtime);
        self.tasks.insert(at, entry);
    }

    pub fn get(&self, pos: usize) -> Option<TaskId> {
        self.tasks.get(pos).map(|entry| entry.task)
    }

    /// Return the position from `pos` on, or from the end, of the first task inserted before `seq`.
    pub fn next_before(&self, seq: u64, pos: usize, reverse: bool) -> Option<usize> {
        let is_old = |&at: &usize| self.tasks[if reverse { self.len() - 1 - at } else { at }].seq < seq;
        (pos..self.len()).find(is_old)
    }

    pub fn remove(&mut self, task: TaskId) -> bool {
        let found = self.tasks.iter().position(|entry| entry.task == task);
        found.is_some_and(|pos| self.tasks.remove(pos).is_some())
    }

    pub fn iter(&self) -> impl Iterator<Item = TaskId> + '_ {
        self.tasks.iter().map(|entry| entry.task)
    }
}

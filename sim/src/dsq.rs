// SPDX-License-Identifier: GPL-2.0-only
//! Dispatch queues with the kernel's order: first in, first out, or by virtual time with ties in order of arrival.

use std::collections::VecDeque;

use scx_magpie::bpf_intf::magpie_limits_MAX_GROUPS;

use crate::native::{MAX_CPUS, SCX_DSQ_LOCAL_ON};

/// Index of a task among the simulator's tasks.
pub type TaskId = usize;

/// As many queues as the program makes: for each CPU one of tasks that may move, and one of those that may not; then
/// one for each group.
pub const MAX_DSQS: usize = 2 * MAX_CPUS + magpie_limits_MAX_GROUPS as usize;

/// The CPU that a queue is of, if it is not a group's.
pub fn queue_cpu(id: usize) -> usize {
    id % MAX_CPUS
}

/// The group that a queue is of, if it is not a CPU's.
pub fn queue_group(id: usize) -> Option<u32> {
    id.checked_sub(2 * MAX_CPUS).map(|group| group as u32)
}

/// That of its tasks which may not move.
pub fn pinned_queue(cpu: usize) -> usize {
    MAX_CPUS + cpu
}

/// Is it a CPU's queue of tasks that may not move?
pub fn is_pinned_queue(id: usize) -> bool {
    (MAX_CPUS..2 * MAX_CPUS).contains(&id)
}

/// The CPU, if the queue is the local one of a CPU that is named.
pub fn local_on(dsq_id: u64) -> Option<usize> {
    (dsq_id & SCX_DSQ_LOCAL_ON == SCX_DSQ_LOCAL_ON).then_some((dsq_id & u64::from(u32::MAX)) as usize)
}

#[derive(Clone, Debug, Default)]
pub struct Dsq {
    /// Virtual time (0 in a FIFO; signed, so that the order survives 0) and task, in order.
    tasks: VecDeque<(i64, TaskId)>,
    /// No task until then may be inserted or removed: somebody holds the lock.
    pub locked_until: u64,
}

impl Dsq {
    pub fn len(&self) -> usize {
        self.tasks.len()
    }

    pub fn is_empty(&self) -> bool {
        self.tasks.is_empty()
    }

    pub fn push_back(&mut self, task: TaskId) {
        self.tasks.push_back((0, task));
    }

    pub fn push_front(&mut self, task: TaskId) {
        self.tasks.push_front((0, task));
    }

    pub fn insert_vtime(&mut self, task: TaskId, vtime: u64) {
        let at = self.tasks.partition_point(|&(other, _)| other <= vtime as i64);
        self.tasks.insert(at, (vtime as i64, task));
    }

    pub fn get(&self, pos: usize) -> Option<TaskId> {
        self.tasks.get(pos).map(|&(_, task)| task)
    }

    pub fn pop(&mut self) -> Option<TaskId> {
        self.tasks.pop_front().map(|(_, task)| task)
    }

    /// Takes the task out; false if it is not there.
    pub fn remove(&mut self, task: TaskId) -> bool {
        let pos = self.tasks.iter().position(|&(_, other)| other == task);
        pos.is_some_and(|pos| self.tasks.remove(pos).is_some())
    }

    pub fn iter(&self) -> impl Iterator<Item = TaskId> + '_ {
        self.tasks.iter().map(|&(_, task)| task)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn by_virtual_time_across_zero_ties_in_order() {
        let mut dsq = Dsq::default();
        for (task, vtime) in [(1, 5u64), (2, 0u64.wrapping_sub(3)), (3, 5), (4, 0)] {
            dsq.insert_vtime(task, vtime);
        }
        assert_eq!(dsq.iter().collect::<Vec<_>>(), [2, 4, 1, 3]);
        assert!(dsq.remove(4) && !dsq.remove(4));
        assert_eq!((dsq.pop(), dsq.len(), dsq.get(1)), (Some(2), 2, Some(3)));
    }

    #[test]
    fn fifo_with_a_head() {
        let mut dsq = Dsq::default();
        dsq.push_back(1);
        dsq.push_back(2);
        dsq.push_front(3);
        assert_eq!(dsq.iter().collect::<Vec<_>>(), [3, 1, 2]);
        assert!(!dsq.is_empty());
    }
}

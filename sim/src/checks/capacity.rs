// SPDX-License-Identifier: GPL-2.0-only
//! What must hold where CPUs differ in capacity, besides what holds anywhere ([`crate::checks`]):
//!
//! ```text
//! select_cpu() claims a CPU   too weak for the task? then none was idle that is not
//! enqueue() sends to another  it is stronger; it is idle, or runs a task that would do where this one was
//! ```

use scx_magpie::topology::is_stronger;

use super::REACH;
use crate::dsq::TaskId;
use crate::kernel::{Curr, Kernel};

/// The kernel's fits_capacity().
fn fits(util: u32, capacity: u64) -> bool {
    u64::from(util) * 1280 < capacity * 1024
}

/// The kernel's capacity_greater().
fn stronger(capacity: u64, other: u64) -> bool {
    is_stronger(capacity as usize, other as usize)
}

impl Kernel {
    fn task_util(&self, task: TaskId) -> u32 {
        self.tasks[task].tctx().map_or(0, |tctx| tctx.task_util)
    }

    fn capacity(&self, cpu: usize) -> u64 {
        self.machine.places[cpu].capacity
    }

    /// select_cpu() claimed `cpu` for the task.
    pub fn check_fits(&mut self, task: TaskId, cpu: usize) {
        if self.tunables.no_capacity || self.layout.nr_stronger() == 0 || self.layout.llcs.len() > REACH {
            return;
        }
        let util = self.task_util(task);
        let max = self.layout.cpus.values().map(|cpu| cpu.capacity as u64).max().unwrap_or(0);
        let enough = |cpu: usize| fits(util, self.capacity(cpu)) || !stronger(max, self.capacity(cpu));
        if enough(cpu) {
            return;
        }
        let might = self.tasks[task].mask().and(&self.online);
        let better = might
            .iter()
            .find(|&other| enough(other) && self.native.slot(other).is_some_and(|slot| self.native.is_idle_bit(slot)));
        if let Some(better) = better {
            self.violate("capacity", format!("task {task} of {util} goes to CPU {cpu} while CPU {better} is idle"));
        }
    }

    /// The task does not fit its CPU, and `to` is a stronger one.
    pub fn moves_up(&self, task: TaskId, to: usize) -> bool {
        let from = self.tasks[task].cpu;
        stronger(self.capacity(to), self.capacity(from)) && !fits(self.task_util(task), self.capacity(from))
    }

    /// `to` idles, claimed for the task: in another LLC of the node, or in the same, where it is preferred or its core was shared.
    pub fn moves_to_room(&self, task: TaskId, to: usize) -> bool {
        let (from, to_place) = (&self.machine.places[self.tasks[task].cpu], &self.machine.places[to]);
        let better = to_place.llc != from.llc || self.machine.shape.smt > 1 || to_place.rank > from.rank;
        to_place.node == from.node && better && self.native.cpu_ctx(to).idle != 0
    }

    /// enqueue() sends the task, which runs, up to `to`.
    pub fn check_moved_up(&mut self, task: TaskId, to: usize) {
        let from = self.tasks[task].cpu;
        // Claimed for it; or its runner is small.
        let curr = match self.cpus[to].curr {
            Curr::Task(curr) => Some(curr),
            _ => None,
        };
        let claimed = self.native.cpu_ctx(to).idle != 0;
        if !claimed
            && !curr.is_none_or(|curr| fits(self.native.cpu_ctx(to).curr_util, self.capacity(from)) && curr != task)
        {
            self.violate("capacity", format!("task {task} is sent to CPU {to}, whose task would not do on CPU {from}"));
        }
    }
}

// SPDX-License-Identifier: GPL-2.0-only
//! Additional invariants where CPUs differ in capacity; for the others see [`crate::checks`]:
//!
//! ```text
//! select_cpu() claims a CPU   too weak for the task? then no idle CPU was strong enough
//! enqueue() sends to another  it is stronger; it is idle, or runs a task that fits the CPU of this one
//! ```

use scx_magpie::topology::is_stronger;

use super::REACH;
use crate::dsq::TaskId;
use crate::kernel::{Curr, Kernel, violate};

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

    /// Check that select_cpu() claimed a `cpu` that fits the task.
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
            violate!(self, "capacity", "task {task} of {util} goes to CPU {cpu} while CPU {better} is idle");
        }
    }

    /// Return true if the task does not fit its CPU, and `to` is stronger.
    pub fn moves_up(&self, task: TaskId, to: usize) -> bool {
        let from = self.tasks[task].cpu;
        stronger(self.capacity(to), self.capacity(from)) && !fits(self.task_util(task), self.capacity(from))
    }

    /// Return true if idle `to` offers room: on the same node another LLC, a better core, or a core
    /// that was shared; on another node a core with all online CPUs idle, on a machine with SMT.
    pub fn moves_to_room(&self, task: TaskId, to: usize) -> bool {
        let (from, to_place) = (&self.machine.places[self.tasks[task].cpu], &self.machine.places[to]);
        let is_idle = |cpu| self.native.cpu_ctx(cpu).idle != 0;
        let smt = self.machine.shape.smt > 1;
        if to_place.node != from.node {
            return smt && self.machine.siblings(to).filter(|&cpu| self.online.test(cpu)).all(is_idle);
        }
        (to_place.llc != from.llc || smt || to_place.rank > from.rank) && is_idle(to)
    }

    /// Check that enqueue() may send the running task to `to`.
    pub fn check_moved_up(&mut self, task: TaskId, to: usize) {
        let from = self.tasks[task].cpu;
        // Claimed for the task, or running a small task.
        let curr = match self.cpus[to].curr {
            Curr::Task(curr) => Some(curr),
            _ => None,
        };
        let claimed = self.native.cpu_ctx(to).idle != 0;
        if !claimed
            && !curr.is_none_or(|curr| fits(self.native.cpu_ctx(to).curr_util, self.capacity(from)) && curr != task)
        {
            violate!(self, "capacity", "task {task} is sent to CPU {to}, whose task would not do on CPU {from}");
        }
    }
}

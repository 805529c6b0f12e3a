// SPDX-License-Identifier: GPL-2.0-only
//! Changes of a task's parameters while it may be queued or running (do_set_cpus_allowed, set_user_nice, sched_move_task).
//!
//! ```text
//! queued:   dequeued, changed, enqueue(); then moved if it may not stay
//! running:  stopping(false), changed, running()
//! ```

use crate::dsq::TaskId;
use crate::kernel::Kernel;
use crate::mask::Mask;
use crate::task::State;
use crate::time::USEC;

impl Kernel {
    /// Change a scheduling parameter: dequeue the task, change it, and enqueue it again.
    pub fn change(&mut self, task: TaskId, change: impl FnOnce(&mut Self)) {
        let (state, cpu) = (self.tasks[task].state, self.tasks[task].cpu);
        match state {
            State::Runnable => {
                self.take_out(task);
                self.tasks[task].set_queued(false);
                change(self);
                self.tasks[task].set_queued(true);
                self.do_enqueue(task, cpu, 0);
            }
            State::Running => {
                self.update_curr(cpu);
                self.stopping(task, false);
                self.tasks[task].set_queued(false);
                change(self);
                // No enqueue(): the task keeps running (enqueue_task_scx, task_current()).
                self.tasks[task].set_queued(true);
                self.running(task);
                self.set_tick(cpu, task);
            }
            State::Sleeping | State::Waking | State::Dead => change(self),
        }
    }

    /// setpriority().
    pub fn set_nice(&mut self, task: TaskId, nice: i32) {
        self.change(task, |kernel| {
            kernel.tasks[task].traits.nice = nice;
            kernel.tasks[task].raw_mut().static_prio = kernel.tasks[task].traits.static_prio();
        });
    }

    pub fn longest_slice(&self) -> u64 {
        self.longest_own_slice.max(self.tunables.slice_us * USEC)
    }

    /// sched_setattr(): a slice of its own, ns; 0: none.
    pub fn set_own_slice(&mut self, task: TaskId, slice: u64) {
        self.longest_own_slice = self.longest_own_slice.max(slice);
        self.change(task, |kernel| {
            kernel.tasks[task].traits.own_slice = slice;
            kernel.tasks[task].set_own_slice();
        });
    }

    /// sched_setaffinity().
    pub fn set_affinity(&mut self, task: TaskId, allowed: Mask) {
        self.change(task, |kernel| kernel.set_allowed(task, allowed));
        let (state, cpu) = (self.tasks[task].state, self.tasks[task].cpu);
        if self.tasks[task].may_run_on(cpu) {
            return;
        }
        match state {
            // A stopper preempts it and moves it.
            State::Running => {
                self.cpus[cpu].push_away = Some(task);
                self.resched_curr(cpu);
            }
            State::Runnable => self.move_if_disallowed(task),
            _ => {}
        }
    }

    /// move_queued_task(): move a queued task if it may not run on its CPU.
    pub fn move_if_disallowed(&mut self, task: TaskId) {
        let cpu = self.tasks[task].cpu;
        if self.tasks[task].state != State::Runnable || self.tasks[task].may_run_on(cpu) && self.online.test(cpu) {
            return;
        }
        self.lock_rq(cpu);
        self.lock_local(cpu);
        self.take_out(task);
        self.tasks[task].set_queued(false);
        self.add_running(cpu, -1);
        self.unlock_rq(cpu);
        let online = self.online;
        let to = match self.tasks[task].mask().and(&online).next_after(cpu) {
            Some(to) => to,
            None => self.usable(task, cpu),
        };
        self.tasks[task].cpu = to;
        self.activate(task, to, 0);
    }
}

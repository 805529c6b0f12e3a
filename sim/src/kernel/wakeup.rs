// SPDX-License-Identifier: GPL-2.0-only
//! Wakeups: `try_to_wake_up()`, `wake_up_new_task()` and `enqueue_task_scx()`.
//!
//! ```text
//! try_to_wake_up   may use several CPUs? select_cpu() : the only one
//!                  is that CPU unusable? another (select_fallback_rq)
//!                  far away or idle? it continues the wakeup, an IPI later (ttwu_queue) : the waker does
//! do_enqueue       inserted by select_cpu() or enqueue()? into that queue : lost
//! ```

use crate::costs::{IPI, WAKEUP};
use crate::dsq::TaskId;
use crate::kernel::{Curr, Event, Kernel, Moment};
use crate::mask::Mask;
use crate::native::{Context, SCX_DSQ_LOCAL, SCX_ENQ_WAKEUP, SCX_WAKE_FORK, SCX_WAKE_SYNC, SCX_WAKE_TTWU};
use crate::task::State;
use crate::trace::Op;

impl Kernel {
    /// Wake a task from the executing CPU. Does nothing if the task does not sleep.
    pub fn wake(&mut self, task: TaskId, sync: bool) {
        if self.tasks[task].state != State::Sleeping {
            return;
        }
        let flags = SCX_WAKE_TTWU | if sync { SCX_WAKE_SYNC } else { 0 };
        self.select_and_activate(task, flags, SCX_ENQ_WAKEUP);
    }

    pub fn wake_from(&mut self, context: Context, task: TaskId, sync: bool) {
        self.native.context(context);
        self.wake(task, sync);
        self.native.context(Context::Syscall);
    }

    pub fn wake_up_new(&mut self, task: TaskId) {
        self.select_and_activate(task, SCX_WAKE_FORK, 0);
    }

    fn select_and_activate(&mut self, task: TaskId, wake_flags: u64, enq_flags: u64) {
        self.cost += WAKEUP;
        self.tasks[task].state = State::Waking;
        self.tasks[task].raw_mut().__state = 0;
        self.tasks[task].runnable_at = self.now + self.cost;
        self.tasks[task].woken = true;
        self.tasks[task].woke_exec = self.tasks[task].raw().se.sum_exec_runtime;
        let cpu = self.select_task_rq(task, wake_flags);
        self.tasks[task].cpu = cpu;
        let remote = enq_flags != 0
            && cpu != self.cpu
            && (self.machine.places[cpu].llc != self.machine.places[self.cpu].llc || self.cpus[cpu].nr_running == 0);
        if remote {
            self.push(self.now + self.cost + IPI, Event::RemoteWake { task, cpu });
        } else {
            self.activate(task, cpu, enq_flags);
        }
    }

    fn select_task_rq(&mut self, task: TaskId, wake_flags: u64) -> usize {
        let prev = self.tasks[task].cpu;
        let cpu = if self.tasks[task].raw().nr_cpus_allowed > 1 && !self.tasks[task].is_migration_disabled() {
            let raw = self.tasks[task].raw;
            self.tell(Moment::Selects);
            let cpu = self.call(Op::SelectCpu, Some(task), wake_flags, |ops| unsafe {
                ops.select_cpu.unwrap()(raw, prev as i32, wake_flags)
            });
            if cpu < 0 || cpu as usize >= self.cpus.len() {
                self.violate("no such CPU", format!("select_cpu() returned {cpu} for task {task}"));
                return prev;
            }
            let cpu = cpu as usize;
            self.tell(Moment::Selected { task, cpu });
            cpu
        } else {
            self.tasks[task].mask().iter().next().unwrap_or(prev)
        };
        self.usable(task, cpu)
    }

    /// select_fallback_rq(): return `cpu`, or another CPU if the task cannot run there.
    pub fn usable(&mut self, task: TaskId, cpu: usize) -> usize {
        if self.online.test(cpu) && self.tasks[task].may_run_on(cpu) {
            return cpu;
        }
        let online = self.online;
        if let Some(other) = self.tasks[task].mask().and(&online).next_after(cpu) {
            return other;
        }
        // No allowed CPU is online: the kernel allows all (cpuset_cpus_allowed_fallback).
        let all = Mask::first(self.cpus.len());
        self.set_allowed(task, all);
        online.next_after(cpu).unwrap_or(cpu)
    }

    pub fn remote_wake(&mut self, task: TaskId, cpu: usize) {
        if self.tasks[task].state != State::Waking {
            return;
        }
        let to = self.usable(task, cpu);
        if to != cpu {
            // The affinity has changed meanwhile: a stopper of that CPU moves the task.
            self.resched_curr(cpu);
        }
        self.tasks[task].cpu = to;
        self.activate(task, to, SCX_ENQ_WAKEUP);
    }

    /// activate_task() and wakeup_preempt(), with the runqueue's lock held.
    pub fn activate(&mut self, task: TaskId, cpu: usize, enq_flags: u64) {
        self.lock_rq(cpu);
        self.lock_local(cpu);
        self.tasks[task].state = State::Runnable;
        self.tasks[task].set_queued(true);
        self.add_running(cpu, 1);
        self.do_enqueue(task, cpu, enq_flags);
        if self.cpus[cpu].curr == Curr::Idle {
            self.resched_curr(cpu);
        }
        self.unlock_rq(cpu);
    }

    /// do_enqueue_task(): insert the task into the queue that the program chose.
    pub fn do_enqueue(&mut self, task: TaskId, cpu: usize, enq_flags: u64) {
        debug_assert_eq!(self.tasks[task].cpu, cpu);
        if !self.online.test(cpu) {
            return self.insert(task, SCX_DSQ_LOCAL, None, enq_flags);
        }
        if self.tasks[task].ddsp.is_none() {
            let raw = self.tasks[task].raw;
            if self.native.slot(cpu).is_none() {
                self.tell(Moment::Absent);
            }
            self.call(Op::Enqueue, Some(task), enq_flags, |ops| unsafe { ops.enqueue.unwrap()(raw, enq_flags) });
        }
        match self.tasks[task].ddsp.take() {
            Some(to) => {
                self.tell(Moment::Inserts { task, to });
                self.insert(task, to.dsq_id, to.vtime, to.enq_flags | enq_flags);
            }
            None => self.violate("lost", format!("enqueue() left task {task} in no queue")),
        }
        self.tell(Moment::Enqueued { task, cpu, enq_flags });
    }

    pub fn set_allowed(&mut self, task: TaskId, allowed: Mask) {
        self.tasks[task].traits.allowed = allowed;
        self.tasks[task].allowed_at = self.now;
        self.tasks[task].set_mask(allowed);
        self.tasks[task].raw_mut().nr_cpus_allowed = allowed.len() as i32;
    }
}

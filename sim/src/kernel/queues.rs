// SPDX-License-Identifier: GPL-2.0-only
//! Queues and their locks: insert a task, remove it, move it to a CPU's local DSQ.

use crate::costs::{IPI, KFUNC, LOCK_HOLD};
use crate::dsq::{TaskId, local_on, queue_cpu};
use crate::kernel::turns::Word;
use crate::kernel::{Curr, Event, Kernel, Moment};
use crate::native::{SCX_DSQ_LOCAL, SCX_ENQ_HEAD, SCX_ENQ_IMMED_FLAG, SCX_ENQ_PREEMPT};
use crate::task::Place;
use crate::trace::Op;

impl Kernel {
    /// Set the queue of a task that is in none.
    pub fn set_place(&mut self, task: TaskId, place: Place) {
        if self.tasks[task].place != Place::Nowhere && place != Place::Nowhere {
            let was = self.tasks[task].place;
            self.violate("two places", format!("task {task} is put in {place:?}, and is in {was:?}"));
        }
        self.tasks[task].place = place;
    }

    pub fn take_out(&mut self, task: TaskId) {
        let found = match self.tasks[task].place {
            Place::Nowhere => true,
            Place::Local(cpu) => self.cpus[cpu].local.remove(task),
            Place::Dsq(id) => self.dsqs[id].as_mut().is_some_and(|dsq| dsq.remove(task)),
        };
        fail_if!(self, !found, "lost", "task {task} is not in {:?}", self.tasks[task].place);
        self.tasks[task].place = Place::Nowhere;
    }

    /// Request that the CPU schedules, when it leaves the kernel or by an interrupt.
    pub fn resched_curr(&mut self, cpu: usize) {
        if !self.cpus[cpu].need_resched {
            self.cpus[cpu].need_resched = true;
            if cpu != self.cpu {
                self.push(self.now + self.cost + IPI, Event::Resched(cpu));
            }
        }
    }

    /// rq_is_open(): return true if a task that is inserted now runs immediately.
    fn is_open(&self, cpu: usize, enq_flags: u64) -> bool {
        let picks = self.call.is_some_and(|call| call.op == Op::Dispatch && call.cpu == cpu);
        match self.cpus[cpu].curr {
            _ if self.cpus[cpu].higher_class_ns > 0 => false,
            _ if picks => self.cpus[cpu].local.is_empty(),
            Curr::Idle => true,
            Curr::HigherClass => false,
            Curr::Task(_) => enq_flags & SCX_ENQ_PREEMPT != 0,
        }
    }

    /// dispatch_enqueue(): insert the task into a queue.
    pub fn insert(&mut self, task: TaskId, dsq_id: u64, vtime: Option<u64>, enq_flags: u64) {
        let mut cpu = self.tasks[task].cpu;
        if let Some(to) = local_on(dsq_id) {
            // The kernel does it later, at the unlock, before any event
            // (process_ddsp_deferred_locals).
            let may =
                self.online.test(to) && self.tasks[task].may_run_on(to) && !self.tasks[task].is_migration_disabled();
            fail_if!(self, to != cpu && !may, "affinity", "task {task} is sent to CPU {to}, which it may not use");
            self.add_running(cpu, -1);
            self.add_running(to, 1);
            self.tasks[task].cpu = to;
            cpu = to;
        }
        if dsq_id == SCX_DSQ_LOCAL || local_on(dsq_id).is_some() {
            self.lock_local(cpu);
            self.put_local(task, cpu, enq_flags);
            match self.cpus[cpu].curr {
                Curr::Task(curr) if enq_flags & SCX_ENQ_PREEMPT != 0 && curr != task => {
                    self.tasks[curr].raw_mut().scx.slice = 0;
                    self.resched_curr(cpu);
                }
                Curr::Idle => self.resched_curr(cpu),
                _ => {}
            }
            return;
        }
        let id = dsq_id as usize;
        if self.dsqs.get(id).is_none_or(Option::is_none) {
            violate!(self, "no such DSQ", "task {task} is inserted into {dsq_id:#x}");
        }
        self.accesses(Word::Dsq(dsq_id), true);
        self.lock_dsq(id);
        let Some(dsq) = self.dsqs[id].as_mut() else { return };
        match vtime {
            Some(vtime) => {
                self.tasks[task].raw_mut().scx.dsq_vtime = vtime;
                dsq.insert_vtime(task, vtime);
            }
            None => dsq.push_back(task),
        }
        self.set_place(task, Place::Dsq(id));
    }

    fn put_local(&mut self, task: TaskId, cpu: usize, enq_flags: u64) {
        self.tasks[task].immed = enq_flags & SCX_ENQ_IMMED_FLAG != 0;
        // The kernel leaves other tasks in place. Tasks of this scheduler do not wait there.
        if self.tasks[task].immed && !self.is_open(cpu, enq_flags) {
            self.push(self.now + self.cost, Event::Reenqueue(cpu));
        }
        if enq_flags & (SCX_ENQ_HEAD | SCX_ENQ_PREEMPT) != 0 {
            self.cpus[cpu].local.push_front(task);
        } else {
            self.cpus[cpu].local.push_back(task);
        }
        self.set_place(task, Place::Local(cpu));
    }

    /// scx_bpf_dsq_move_to_local(): move the DSQ's first task that may run on the calling CPU.
    pub fn move_to_local(&mut self, id: usize, enq_flags: u64) -> bool {
        let cpu = self.cpu;
        self.lock_dsq(id);
        let Some(dsq) = self.dsqs[id].as_ref() else { return false };
        let mut looked = 0;
        let found = dsq.iter().find(|&task| {
            looked += 1;
            let task = &self.tasks[task];
            task.cpu == cpu || (task.may_run_on(cpu) && !task.is_migration_disabled())
        });
        self.cost += looked * KFUNC;
        found.is_some_and(|task| self.move_task_to_local(task, enq_flags))
    }

    /// Move a queued task to the calling CPU's local DSQ, and to its runqueue if needed.
    pub fn move_task_to_local(&mut self, task: TaskId, enq_flags: u64) -> bool {
        let (cpu, from) = (self.cpu, self.tasks[task].cpu);
        if from != cpu {
            if !self.online.test(cpu) || !self.tasks[task].may_run_on(cpu) || self.tasks[task].is_migration_disabled() {
                return false;
            }
            // After the unlink, deactivation takes the other runqueue's lock and cache line.
            self.take_out(task);
            self.unlock_rq(cpu);
            self.lock_rq(from);
            self.lock_local(from);
            self.cpus[from].clock_left_at = Some(self.now);
            self.add_running(from, -1);
            self.add_running(cpu, 1);
            self.tasks[task].cpu = cpu;
            self.unlock_rq(from);
            self.lock_rq(cpu);
        }
        self.take_out(task);
        self.put_local(task, cpu, enq_flags);
        self.tell(Moment::Moved { task });
        if let Some(call) = self.call.as_mut() {
            call.nr_tasks += 1;
        }
        true
    }

    /// Take a DSQ's lock for one operation. The lock is on the cache line of the DSQ's CPU.
    pub fn lock_dsq(&mut self, id: usize) {
        let line = self.cpus[queue_cpu(id)].line.store(&self.machine, self.cpu);
        if let Some(dsq) = self.dsqs[id].as_mut() {
            self.cost += line + hold(&mut dsq.locked_until, self.now + self.cost);
        }
    }

    /// Take a runqueue's lock for one operation.
    pub fn lock_local(&mut self, cpu: usize) {
        self.cpus[cpu].clock_left_at = None;
        let line = self.cpus[cpu].line.store(&self.machine, self.cpu);
        self.cost += line + hold(&mut self.cpus[cpu].local.locked_until, self.now + self.cost);
    }

    /// scx_bpf_now(): return the clock of the calling CPU's runqueue if it is valid, else the time.
    /// A callback without the lock may see an old value that another CPU left marked as valid.
    pub fn rq_clock(&self) -> u64 {
        let Some(call) = self.call else { return self.now };
        let locked = match (call.op, call.task) {
            (Op::SelectCpu | Op::Timer, _) => false,
            (Op::Enqueue, Some(task)) => self.tasks[task].cpu == call.cpu,
            _ => true,
        };
        self.cpus[call.cpu].clock_left_at.filter(|_| !locked).unwrap_or(self.now)
    }
}

/// Wait for a lock and hold it for one operation. Return the duration in ns.
fn hold(locked_until: &mut u64, now: u64) -> u64 {
    let from = now.max(*locked_until);
    *locked_until = from + LOCK_HOLD;
    *locked_until - now
}

// SPDX-License-Identifier: GPL-2.0-only
//! `__schedule()` for the sched_ext class, as in Linux 6.18's kernel/sched/ext.c: who runs next, and the callbacks on
//! the way there.
//!
//! ```text
//! prev blocks?  stopping(false)                                                  dequeue_task_scx
//! a higher class wants the CPU? it is next
//! else balance:  cpu_released? take it back
//!                prev runnable, slice left? keep it
//!                local DSQ empty? dispatch(), until it brings nothing            balance_one
//! next == prev? done: no callback
//! put prev:      idle: update_idle(false)                                        put_prev_task_scx
//!                runnable: stopping(true); slice left? head of the local DSQ : enqueue()
//!                next of a higher class? cpu_release()
//! set next:      idle: update_idle(true)   ours: running()                       set_next_task_scx
//! ```

use crate::cache::transfer;
use crate::costs::{CONTEXT_SWITCH, MISS_PARALLELISM, TICK, TICK_WORK};
use crate::dsq::{TaskId, queue_cpu, queue_group};
use crate::kernel::{Curr, Event, Kernel};
use crate::native::{
    SCX_DSQ_LOCAL, SCX_DSQ_LOCAL_ON, SCX_ENQ_LAST, SCX_ENQ_PREEMPT, SCX_ENQ_REENQ, scx_cpu_release_args,
};
use crate::task::{Place, State};
use crate::trace::{Op, Record};

/// Rounds of dispatch() in one balance_one() (SCX_DSP_MAX_LOOPS).
const DISPATCH_LOOPS: u32 = 32;

/// The slice of a task that is to run with none (SCX_SLICE_DFL).
const SLICE_DFL: u64 = 20_000_000;

impl Kernel {
    /// `cpu` chooses what runs next.
    pub fn schedule(&mut self, cpu: usize) {
        self.cpus[cpu].need_resched = false;
        self.cpus[cpu].clock_left_at = None;
        let prev = self.cpus[cpu].curr;
        self.update_curr(cpu);
        if let Curr::Task(task) = prev
            && self.tasks[task].blocked
        {
            self.dequeue_blocked(task);
        }

        let next = self.pick_next(cpu, prev);
        if next == prev {
            return;
        }
        self.cost += CONTEXT_SWITCH;
        self.put_prev(cpu, prev, next);
        self.set_next(cpu, prev, next);
    }

    fn pick_next(&mut self, cpu: usize, prev: Curr) -> Curr {
        if self.cpus[cpu].higher_class_ns > 0 || self.cpus[cpu].push_away.is_some() {
            return Curr::HigherClass;
        }
        let keep = match prev {
            Curr::Task(task) if self.tasks[task].state == State::Running => Some(task),
            _ => None,
        };
        if self.balance(cpu, prev, keep) {
            return prev;
        }
        match self.cpus[cpu].local.get(0) {
            Some(task) => {
                if self.tasks[task].raw().scx.slice == 0 {
                    self.tasks[task].raw_mut().scx.slice = SLICE_DFL;
                }
                Curr::Task(task)
            }
            None => Curr::Idle,
        }
    }

    /// Fills the local DSQ; true if `keep`, which is runnable, goes on.
    fn balance(&mut self, cpu: usize, prev: Curr, keep: Option<TaskId>) -> bool {
        self.cpus[cpu].released = false;
        let has_slice = |kernel: &Self| keep.is_some_and(|task| kernel.tasks[task].raw().scx.slice > 0);
        if has_slice(self) {
            return true;
        }
        let prev_task = match prev {
            // Be it that it has just ended.
            Curr::Task(task) => Some(task),
            _ => None,
        };
        for _ in 0..DISPATCH_LOOPS {
            if !self.cpus[cpu].local.is_empty() || !self.online.test(cpu) {
                break;
            }
            let nr_tasks = self.dispatch(cpu, prev_task);
            if has_slice(self) {
                return true;
            }
            if nr_tasks == 0 {
                break;
            }
        }
        if self.cpus[cpu].local.is_empty()
            && let Some(task) = keep
            && !self.online.test(cpu)
        {
            self.tasks[task].raw_mut().scx.slice = SLICE_DFL;
            return true;
        }
        false
    }

    fn dispatch(&mut self, cpu: usize, prev: Option<TaskId>) -> u32 {
        let raw = prev.map_or(std::ptr::null_mut(), |task| self.tasks[task].raw);
        self.checks.before_dispatch(&self.native, cpu);
        let nr_tasks = self.call(Op::Dispatch, prev, 0, |ops| unsafe {
            ops.dispatch.unwrap()(cpu as i32, raw);
            crate::kernel::current().call.map_or(0, |call| call.nr_tasks)
        });
        self.check_dispatch(cpu);
        nr_tasks
    }

    fn dequeue_blocked(&mut self, task: TaskId) {
        let cpu = self.tasks[task].cpu;
        self.stopping(task, false);
        self.tasks[task].blocked = false;
        self.tasks[task].set_queued(false);
        if self.tasks[task].state != State::Dead {
            self.tasks[task].state = State::Sleeping;
        }
        self.cpus[cpu].nr_running -= 1;
    }

    fn stopping(&mut self, task: TaskId, runnable: bool) {
        let raw = self.tasks[task].raw;
        self.call(Op::Stopping, Some(task), runnable.into(), |ops| unsafe { ops.stopping.unwrap()(raw, runnable) });
    }

    fn put_prev(&mut self, cpu: usize, prev: Curr, next: Curr) {
        match prev {
            Curr::Idle => {
                self.cpus[cpu].idle_ns += self.now.saturating_sub(self.cpus[cpu].idle_since);
                self.update_idle(cpu, false);
            }
            Curr::HigherClass => {}
            Curr::Task(task) => {
                if self.tasks[task].state == State::Running {
                    self.stopping(task, true);
                    self.tasks[task].state = State::Runnable;
                    self.tasks[task].runnable_at = self.now;
                    self.tasks[task].woken = false;
                    if self.tasks[task].raw().scx.slice > 0 {
                        self.cpus[cpu].local.push_front(task);
                        self.set_place(task, Place::Local(cpu));
                    } else {
                        // Only when the scheduler let it be: it has ENQ_LAST.
                        let last = if next == Curr::Idle { SCX_ENQ_LAST } else { 0 };
                        self.do_enqueue(task, cpu, last);
                    }
                    self.restrict_pinned(task, cpu);
                }
                if next == Curr::HigherClass && !self.cpus[cpu].released {
                    self.cpus[cpu].released = true;
                    self.cpu_release(cpu);
                }
            }
        }
    }

    fn cpu_release(&mut self, cpu: usize) {
        let mut args = scx_cpu_release_args { task: &mut *self.cpus[cpu].higher_class_task };
        if self.ops.cpu_release.is_some() {
            self.call(Op::CpuRelease, None, 0, |ops| unsafe { ops.cpu_release.unwrap()(cpu as i32, &mut args) });
            self.check_released(cpu);
        }
    }

    /// scx_bpf_reenqueue_local(), in cpu_release(). Returns how many, as far as that is known.
    pub fn reenqueue_local(&mut self, cpu: usize) -> u32 {
        if self.quirks.defers_reenqueue {
            self.push(self.now + self.cost, Event::Reenqueue(cpu));
            return 0;
        }
        self.reenqueue(cpu)
    }

    /// reenq_local().
    pub fn reenqueue(&mut self, cpu: usize) -> u32 {
        // Not one that is about to be moved away (migration_pending).
        let pending = self.cpus[cpu].push_away;
        let tasks: Vec<_> = self.cpus[cpu].local.iter().filter(|&task| pending != Some(task)).collect();
        for &task in &tasks {
            self.take_out(task);
            if self.native.slot(cpu).is_some() {
                self.note_reenqueued();
            }
            self.do_enqueue(task, cpu, SCX_ENQ_REENQ);
        }
        tasks.len() as u32
    }

    fn update_idle(&mut self, cpu: usize, idle: bool) {
        self.call(Op::UpdateIdle, None, idle.into(), |ops| unsafe { ops.update_idle.unwrap()(cpu as i32, idle) });
        self.check_util(cpu, !idle);
    }

    fn set_next(&mut self, cpu: usize, prev: Curr, next: Curr) {
        match next {
            Curr::Idle => {
                self.update_idle(cpu, true);
                self.cpus[cpu].idle_since = self.now + self.cost;
            }
            Curr::HigherClass => {
                let ns = self.cpus[cpu].higher_class_ns.max(crate::costs::CONTEXT_SWITCH);
                self.push(self.now + self.cost + ns, Event::HigherClassEnds(cpu));
            }
            Curr::Task(task) => {
                self.take_out(task);
                self.tasks[task].state = State::Running;
                self.cpus[cpu].exec_start = self.now;
                let raw = self.tasks[task].raw;
                self.call(Op::Running, Some(task), 0, |ops| unsafe { ops.running.unwrap()(raw) });
            }
        }
        if let Curr::Task(task) = prev
            && !self.tasks[task].is_alive()
        {
            self.tasks[task].storage.clear();
        }
        self.cpus[cpu].curr = next;
        self.cpus[cpu].armed += 1;
        let (task, arg) = match next {
            Curr::Idle => (None, 0),
            Curr::Task(task) => (Some(task), 1),
            Curr::HigherClass => (None, 2),
        };
        self.trace.record(Record { at: self.now + self.cost, cpu, task, op: Op::Switch, arg });
        self.set_speeds(cpu);
        self.arm_tick(cpu);
        if let Curr::Task(task) = next {
            self.start_running(cpu, task);
        }
    }

    fn start_running(&mut self, cpu: usize, id: TaskId) {
        self.check_start(cpu, id);
        let task = &mut self.tasks[id];
        let wait = (self.now + self.cost).saturating_sub(task.runnable_at);
        task.longest_wait = task.longest_wait.max(wait);
        let group = self.programs[task.program].group;
        if task.woken {
            task.woken = false;
            self.groups[group].note_wakeup(wait);
        }
        if let Some(last) = task.last_cpu
            && last != cpu
        {
            let distance = self.machine.distance(last, cpu);
            // Not the caches' sharing of a core.
            if self.machine.places[last].core != self.machine.places[cpu].core {
                task.remaining += task.traits.working_set * transfer(distance) / MISS_PARALLELISM;
            }
            task.nr_migrations += 1;
            self.groups[group].note_migration(distance);
        }
        task.last_cpu = Some(cpu);
        self.cpus[cpu].run_from = self.now + self.cost;
        self.arm_step(cpu);
    }

    /// Brings the running task's sum_exec_runtime and slice up to date.
    pub fn update_curr(&mut self, id: usize) {
        let cpu = &mut self.cpus[id];
        let Curr::Task(task) = cpu.curr else { return };
        let ran = self.now - cpu.exec_start;
        cpu.exec_start = self.now;
        let task = &mut self.tasks[task];
        let raw = task.raw_mut();
        raw.se.sum_exec_runtime += ran;
        raw.scx.slice = raw.scx.slice.saturating_sub(ran);
        let group = self.programs[task.program].group;
        self.groups[group].note_ran(ran, self.machine.places[id].capacity);
    }

    /// Ticks come at multiples of TICK, whatever happens between; none while idle.
    fn arm_tick(&mut self, cpu: usize) {
        if self.cpus[cpu].curr != Curr::Idle && !self.cpus[cpu].tick_armed {
            self.cpus[cpu].tick_armed = true;
            self.push((self.now / TICK + 1) * TICK, Event::Tick(cpu));
        }
    }

    pub fn tick(&mut self, cpu: usize) {
        self.cpus[cpu].tick_armed = false;
        self.arm_tick(cpu);
        if self.cpus[cpu].curr == Curr::Idle {
            return;
        }
        self.cost += TICK_WORK;
        self.cpus[cpu].clock_left_at = None;
        self.update_curr(cpu);
        if let Curr::Task(task) = self.cpus[cpu].curr {
            let raw = self.tasks[task].raw;
            self.call(Op::Tick, Some(task), 0, |ops| unsafe { ops.tick.unwrap()(raw) });
            self.check_util(cpu, true);
            if self.tasks[task].raw().scx.slice == 0 {
                self.resched_curr(cpu);
            }
        }
    }

    /// The CPU is to schedule, when it leaves the kernel or by an interrupt.
    pub fn resched_curr(&mut self, cpu: usize) {
        if !self.cpus[cpu].need_resched {
            self.cpus[cpu].need_resched = true;
            if cpu != self.cpu {
                self.push(self.now + self.cost + crate::costs::IPI, Event::Resched(cpu));
            }
        }
    }

    /// dispatch_enqueue(): puts the task into a queue.
    pub fn insert(&mut self, task: TaskId, dsq_id: u64, vtime: Option<u64>, enq_flags: u64) {
        let mut cpu = self.tasks[task].cpu;
        if let Some(to) = local_on(dsq_id) {
            // The kernel does it when the runqueue's lock is let go (process_ddsp_deferred_locals), and nothing comes between.
            if !self.online.test(to) || !self.tasks[task].may_run_on(to) || self.tasks[task].is_migration_disabled() {
                return self.violate("affinity", format!("task {task} is sent to CPU {to}, which it may not use"));
            }
            self.cpus[cpu].nr_running -= 1;
            self.cpus[to].nr_running += 1;
            self.tasks[task].cpu = to;
            cpu = to;
        }
        if dsq_id == SCX_DSQ_LOCAL || local_on(dsq_id).is_some() {
            self.lock_local(cpu);
            if enq_flags & SCX_ENQ_PREEMPT != 0 {
                self.cpus[cpu].local.push_front(task);
            } else {
                self.cpus[cpu].local.push_back(task);
            }
            self.set_place(task, Place::Local(cpu));
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
            return self.violate("no such DSQ", format!("task {task} is inserted into {dsq_id:#x}"));
        }
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

    /// scx_bpf_dsq_move_to_local(): the first task of the DSQ that may run on the calling CPU.
    pub fn move_to_local(&mut self, id: usize) -> bool {
        let cpu = self.cpu;
        self.lock_dsq(id);
        let Some(dsq) = self.dsqs[id].as_ref() else { return false };
        let mut looked = 0;
        let found = dsq.iter().find(|&task| {
            looked += 1;
            let task = &self.tasks[task];
            task.cpu == cpu || (task.may_run_on(cpu) && !task.is_migration_disabled())
        });
        self.cost += looked * crate::costs::KFUNC;
        found.is_some_and(|task| self.move_task_to_local(task))
    }

    /// Moves a queued task to the calling CPU's local DSQ, and to its runqueue if it is on another.
    pub fn move_task_to_local(&mut self, task: TaskId) -> bool {
        let (cpu, from) = (self.cpu, self.tasks[task].cpu);
        if from != cpu {
            if !self.online.test(cpu) || !self.tasks[task].may_run_on(cpu) || self.tasks[task].is_migration_disabled() {
                return false;
            }
            // Deactivate there, activate here: the other runqueue's lock and line.
            self.lock_local(from);
            self.cpus[from].clock_left_at = Some(self.now);
            self.cpus[from].nr_running -= 1;
            self.cpus[cpu].nr_running += 1;
            self.tasks[task].cpu = cpu;
        }
        self.take_out(task);
        self.cpus[cpu].local.push_back(task);
        self.set_place(task, Place::Local(cpu));
        self.note_moved();
        if let Some(call) = self.call.as_mut() {
            call.nr_tasks += 1;
        }
        true
    }

    /// Takes a DSQ's lock for one operation, on the line of the CPU that it is for.
    pub fn lock_dsq(&mut self, id: usize) {
        let line = match queue_group(id) {
            None => self.cpus[queue_cpu(id)].line.store(&self.machine, self.cpu),
            Some(_) => 0,
        };
        if let Some(dsq) = self.dsqs[id].as_mut() {
            self.cost += line + hold(&mut dsq.locked_until, self.now + self.cost);
        }
    }

    /// scx_bpf_now(): the clock of the calling CPU's runqueue, or the time. A callback without the lock is told what another
    /// CPU left there.
    pub fn rq_clock(&self) -> u64 {
        let Some(call) = self.call else { return self.now };
        let locked = match (call.op, call.task) {
            (Op::SelectCpu | Op::Timer, _) => false,
            (Op::Enqueue, Some(task)) => self.tasks[task].cpu == call.cpu,
            _ => true,
        };
        self.cpus[call.cpu].clock_left_at.filter(|_| !locked).unwrap_or(self.now)
    }

    /// As lock_dsq(), of a runqueue.
    pub fn lock_local(&mut self, cpu: usize) {
        self.cpus[cpu].clock_left_at = None;
        let line = self.cpus[cpu].line.store(&self.machine, self.cpu);
        self.cost += line + hold(&mut self.cpus[cpu].local.locked_until, self.now + self.cost);
    }
}

/// The CPU, if the queue is the local one of a CPU that is named.
pub fn local_on(dsq_id: u64) -> Option<usize> {
    (dsq_id & SCX_DSQ_LOCAL_ON == SCX_DSQ_LOCAL_ON).then_some((dsq_id & u64::from(u32::MAX)) as usize)
}

/// Waits for a lock and holds it for one operation. Returns ns.
fn hold(locked_until: &mut u64, now: u64) -> u64 {
    let from = now.max(*locked_until);
    *locked_until = from + crate::costs::LOCK_HOLD;
    *locked_until - now
}

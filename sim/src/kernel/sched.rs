// SPDX-License-Identifier: GPL-2.0-only
//! `__schedule()` for the sched_ext class, as in Linux 6.18's kernel/sched/ext.c: select the next
//! task, and call the callbacks on the way.
//!
//! ```text
//! prev blocks?  stopping(false)                                                  dequeue_task_scx
//! a higher class wants the CPU? it is next
//! else balance:  cpu_released? take it back
//!                prev runnable, slice left? keep it
//!                local DSQ empty? dispatch(), until it moves nothing             balance_one
//! next == prev? done: no callback
//! put prev:      idle: update_idle(false)                                        put_prev_task_scx
//!                runnable: stopping(true); slice left? head of the local DSQ : enqueue()
//!                next of a higher class? cpu_release()
//! set next:      idle: update_idle(true)   ours: running()                       set_next_task_scx
//! ```

use crate::cache::transfer;
use crate::costs::{CONTEXT_SWITCH, MISS_PARALLELISM, TICK, TICK_WORK};
use crate::dsq::TaskId;
use crate::kernel::call::current;
use crate::kernel::{Curr, Event, Kernel, Moment};
use crate::mask::Mask;
use crate::native::{SCX_ENQ_LAST, SCX_ENQ_REENQ, SCX_SLICE_INF, scx_cpu_release_args};
use crate::task::{Place, State};
use crate::trace::{Op, Record};

/// Rounds of dispatch() in one balance_one() (SCX_DSP_MAX_LOOPS).
const DISPATCH_LOOPS: u32 = 32;

/// The slice of a task that is picked without one (SCX_SLICE_DFL).
const SLICE_DFL: u64 = 20_000_000;

/// Interval of the remote tick: ticks of a CPU whose tick is stopped, from a worker on another CPU.
const REMOTE_TICK: u64 = 1_000_000_000;

impl Kernel {
    pub fn schedule(&mut self, cpu: usize) {
        self.lock_rq(cpu);
        self.switch(cpu);
        self.unlock_rq(cpu);
    }

    fn switch(&mut self, cpu: usize) {
        self.cpus[cpu].clock_left_at = None;
        let prev = self.cpus[cpu].curr;
        self.update_curr(cpu);
        if let Curr::Task(task) = prev
            && self.tasks[task].blocked
        {
            self.dequeue_blocked(task);
        }
        if let Curr::Task(task) = prev
            && self.quirks.binds_as_a_change
        {
            self.bind_if_migration_disabled(task, cpu);
        }

        let next = self.pick_next(cpu, prev);
        // Clears also requests that arrived while dispatch() had released the lock.
        self.cpus[cpu].need_resched = false;
        if next == prev {
            return;
        }
        self.cost += CONTEXT_SWITCH;
        self.put_prev(cpu, prev, next);
        self.set_next(cpu, prev, next);
    }

    /// migrate_disable_switch() from 6.19 on: before the next task is picked, with stopping() and
    /// running().
    fn bind_if_migration_disabled(&mut self, task: TaskId, cpu: usize) {
        let bound = Mask::only(cpu);
        if self.tasks[task].state == State::Running
            && self.tasks[task].is_migration_disabled()
            && self.tasks[task].mask() != bound
        {
            self.change(task, |kernel| kernel.tasks[task].set_mask(bound));
        }
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

    /// Fill the local DSQ. Return true if `keep`, the runnable current task, keeps running.
    fn balance(&mut self, cpu: usize, prev: Curr, keep: Option<TaskId>) -> bool {
        self.cpus[cpu].released = false;
        let has_slice = |kernel: &Self| keep.is_some_and(|task| kernel.tasks[task].raw().scx.slice > 0);
        if has_slice(self) {
            return true;
        }
        let prev_task = match prev {
            // Even if the task has just exited.
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
        self.tell(Moment::Dispatches { cpu });
        let nr_tasks = self.call(Op::Dispatch, prev, 0, |ops| unsafe {
            ops.dispatch.unwrap()(cpu as i32, raw);
            current().call.map_or(0, |call| call.nr_tasks)
        });
        self.tell(Moment::Dispatched { cpu });
        nr_tasks
    }

    fn dequeue_blocked(&mut self, task: TaskId) {
        let cpu = self.tasks[task].cpu;
        self.tasks[task].raw_mut().__state = 1;
        self.stopping(task, false);
        self.tasks[task].blocked = false;
        self.tasks[task].set_queued(false);
        if self.tasks[task].state != State::Dead {
            self.tasks[task].state = State::Sleeping;
        }
        self.add_running(cpu, -1);
    }

    pub fn running(&mut self, task: TaskId) {
        let raw = self.tasks[task].raw;
        self.call(Op::Running, Some(task), 0, |ops| unsafe { ops.running.unwrap()(raw) });
    }

    pub fn stopping(&mut self, task: TaskId, runnable: bool) {
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
                    if next == Curr::HigherClass && self.tasks[task].immed {
                        self.reenqueue_one(task, cpu);
                    } else if self.tasks[task].raw().scx.slice > 0 {
                        self.cpus[cpu].local.push_front(task);
                        self.set_place(task, Place::Local(cpu));
                    } else {
                        // SCX_ENQ_LAST: no other task is runnable here.
                        let last = if next == Curr::Idle { SCX_ENQ_LAST } else { 0 };
                        self.do_enqueue(task, cpu, last);
                    }
                    // migrate_disable_switch(): it is bound to the CPU that it leaves.
                    if self.tasks[task].is_migration_disabled() {
                        self.tasks[task].set_mask(Mask::only(cpu));
                    }
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
        if self.ops.cpu_release.is_some() && !self.quirks.reenqueues_from_anywhere {
            self.call(Op::CpuRelease, None, 0, |ops| unsafe { ops.cpu_release.unwrap()(cpu as i32, &mut args) });
            self.tell(Moment::Released { cpu });
        }
    }

    /// reenq_local().
    pub fn reenqueue(&mut self, cpu: usize) -> u32 {
        // Except a task that a stopper is about to move (migration_pending).
        let pending = self.cpus[cpu].push_away;
        let tasks: Vec<_> = self.cpus[cpu].local.iter().filter(|&task| pending != Some(task)).collect();
        for &task in &tasks {
            self.take_out(task);
            self.reenqueue_one(task, cpu);
        }
        tasks.len() as u32
    }

    fn reenqueue_one(&mut self, task: TaskId, cpu: usize) {
        if self.native.slot(cpu).is_some() {
            self.tell(Moment::Reenqueued);
        }
        self.do_enqueue(task, cpu, SCX_ENQ_REENQ);
    }

    fn update_idle(&mut self, cpu: usize, idle: bool) {
        self.call(Op::UpdateIdle, None, idle.into(), |ops| unsafe { ops.update_idle.unwrap()(cpu as i32, idle) });
        self.tell(Moment::Notified { cpu, running: !idle });
    }

    fn set_next(&mut self, cpu: usize, prev: Curr, next: Curr) {
        match next {
            Curr::Idle => {
                self.update_idle(cpu, true);
                self.cpus[cpu].idle_since = self.now + self.cost;
            }
            Curr::HigherClass => {
                let ns = self.cpus[cpu].higher_class_ns.max(CONTEXT_SWITCH);
                self.push(self.now + self.cost + ns, Event::HigherClassEnds(cpu));
            }
            Curr::Task(task) => {
                self.take_out(task);
                self.tasks[task].state = State::Running;
                self.tasks[task].raw_mut().se.exec_start = self.now;
                self.running(task);
                self.set_tick(cpu, task);
            }
        }
        if let Curr::Task(task) = prev
            && !self.tasks[task].is_alive()
        {
            self.tasks[task].storage.clear();
        }
        self.charge_energy(cpu);
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
        self.tell(Moment::Switched { cpu, prev });
    }

    fn start_running(&mut self, cpu: usize, id: TaskId) {
        self.tell(Moment::Starts { task: id, cpu });
        let task = &mut self.tasks[id];
        let wait = (self.now + self.cost).saturating_sub(task.runnable_at);
        let group = self.programs[task.program].group;
        if task.woken {
            task.woken = false;
            self.groups[group].wakeup.saturating_record(wait);
        }
        if let Some(last) = task.last_cpu
            && last != cpu
        {
            let distance = self.machine.distance(last, cpu);
            // SMT siblings share their caches.
            if self.machine.places[last].core != self.machine.places[cpu].core {
                task.remaining += task.traits.working_set * transfer(distance) / MISS_PARALLELISM;
            }
            self.groups[group].migrations[distance as usize] += 1;
        }
        task.last_cpu = Some(cpu);
        self.cpus[cpu].run_from = self.now + self.cost;
        self.arm_step(cpu);
    }

    /// The end of set_next_task_scx(). The kernel checks the slice for the tick only here.
    pub fn set_tick(&mut self, cpu: usize, task: TaskId) {
        let can_stop_tick = self.tasks[task].raw().scx.slice == SCX_SLICE_INF;
        if self.cpus[cpu].can_stop_tick != can_stop_tick {
            self.cpus[cpu].can_stop_tick = can_stop_tick;
            self.update_tick(cpu);
        }
    }

    /// add_nr_running(), sub_nr_running().
    pub fn add_running(&mut self, cpu: usize, by: isize) {
        self.cpus[cpu].nr_running = self.cpus[cpu].nr_running.checked_add_signed(by).unwrap();
        self.update_tick(cpu);
    }

    /// sched_update_tick_dependency(), scx_can_stop_tick(): the previous task decides.
    fn update_tick(&mut self, cpu: usize) {
        let can_stop_tick = self.cpus[cpu].can_stop_tick || !matches!(self.cpus[cpu].curr, Curr::Task(_));
        self.cpus[cpu].tick_stopped = self.machine.is_nohz_full(cpu) && can_stop_tick;
    }

    /// Return true if the due tick is stopped. The remote tick of sched_tick_remote() is not.
    pub fn skips_tick(&self, cpu: usize) -> bool {
        self.cpus[cpu].tick_stopped && self.now < self.cpus[cpu].ticked_at + REMOTE_TICK
    }

    /// Arm the next tick, at a multiple of TICK. An idle CPU has none.
    pub fn arm_tick(&mut self, cpu: usize) {
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
        self.cpus[cpu].ticked_at = self.now;
        self.cpus[cpu].clock_left_at = None;
        self.update_curr(cpu);
        if let Curr::Task(task) = self.cpus[cpu].curr {
            let raw = self.tasks[task].raw;
            if cpu == self.cpu {
                self.native.interrupt(!self.tasks[task].is_migration_disabled());
            }
            self.call(Op::Tick, Some(task), 0, |ops| unsafe { ops.tick.unwrap()(raw) });
            self.tell(Moment::Notified { cpu, running: true });
            if self.tasks[task].raw().scx.slice == 0 {
                self.resched_curr(cpu);
            }
        }
    }

    pub fn take_cpu(&mut self, cpu: usize, ns: u64) {
        self.cpus[cpu].higher_class_ns += ns;
        self.resched_curr(cpu);
    }

    pub fn higher_class_ends(&mut self, cpu: usize) {
        if self.cpus[cpu].curr != Curr::HigherClass {
            return;
        }
        self.check_put_back(cpu);
        self.update_tick(cpu);
        self.cpus[cpu].higher_class_ns = 0;
        if let Some(task) = self.cpus[cpu].push_away.take() {
            self.move_if_disallowed(task);
        }
        self.resched_curr(cpu);
    }
}

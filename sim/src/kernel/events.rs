// SPDX-License-Identifier: GPL-2.0-only
//! Handle events in order of time, each on its CPU. The CPU is then busy for the cost of the event.

use std::cmp::Reverse;

use crate::costs::IDLE_EXIT;
use crate::kernel::{Curr, Event, Kernel, Moment};
use crate::native::{Context, SCX_KICK_IDLE, SCX_KICK_PREEMPT};
use crate::trace::Op;

/// A CPU that schedules more often than this waits for another CPU.
const SPINS: usize = 4;

impl Kernel {
    /// Handle events up to `until`, or until an invariant is violated.
    pub fn run_until(&mut self, until: u64) {
        while self.violation.is_none() {
            match self.events.peek() {
                Some(&Reverse((at, ..))) if at <= until => {}
                _ => break,
            }
            let Some(Reverse((at, _, event))) = self.events.pop() else { break };
            debug_assert!(at >= self.now);
            self.now = at;
            self.handle(event);
        }
        self.now = self.now.max(until);
    }

    fn handle(&mut self, event: Event) {
        let cpu = match event {
            Event::Step { cpu, armed } => {
                if self.cpus[cpu].armed != armed {
                    return;
                }
                cpu
            }
            Event::Tick(cpu) if self.skips_tick(cpu) => {
                self.cpus[cpu].tick_armed = false;
                return self.arm_tick(cpu);
            }
            Event::Tick(cpu) if self.cpus[cpu].tick_stopped => self.boot_cpu(),
            Event::Resched(cpu) | Event::Tick(cpu) | Event::Reenqueue(cpu) => cpu,
            Event::RemoteWake { cpu, .. } | Event::HigherClassEnds(cpu) => cpu,
            Event::Timer(task) if self.online.test(self.tasks[task].cpu) => self.tasks[task].cpu,
            Event::Timer(_) | Event::Fault(_) | Event::FollowHotplug | Event::BpfTimer { .. } => self.boot_cpu(),
            Event::Check => return self.tell(Moment::Period),
        };
        if self.cpus[cpu].busy_until > self.now {
            return self.push(self.cpus[cpu].busy_until, event);
        }
        self.nr_events += 1;
        self.enter(cpu);
        match event {
            Event::Step { .. } => self.step(cpu),
            Event::Resched(_) => {}
            Event::Tick(of) => self.tick(of),
            Event::Timer(task) => self.wake_from(Context::HardInterrupt, task, false),
            Event::RemoteWake { task, .. } => self.remote_wake(task, cpu),
            Event::Fault(index) => self.fault(index),
            Event::HigherClassEnds(_) => self.higher_class_ends(cpu),
            Event::Reenqueue(_) => _ = self.reenqueue(cpu),
            Event::FollowHotplug => self.follow_hotplug(),
            Event::BpfTimer { index, due } => self.bpf_timer(index, due),
            Event::Check => {}
        }
        self.leave(cpu);
    }

    pub fn enter(&mut self, cpu: usize) {
        self.cpu = cpu;
        self.cost = if self.cpus[cpu].curr == Curr::Idle { IDLE_EXIT } else { 0 };
        self.account(cpu);
    }

    /// Leave the kernel on a CPU. Schedule first if that is requested.
    pub fn leave(&mut self, cpu: usize) {
        self.deliver_kicks();
        let mut rounds = 0;
        // A task of a throttled group leaves the CPU immediately, and the CPU schedules again.
        let max = 16 + 2 * self.tasks.len();
        while self.online.test(cpu) && (self.cpus[cpu].need_resched || self.work(cpu)) {
            if rounds >= SPINS {
                self.spin();
            }
            self.schedule(cpu);
            self.deliver_kicks();
            rounds += 1;
            if rounds > max {
                self.violate("livelock", format!("CPU {cpu} is told to reschedule again and again"));
                break;
            }
        }
        let until = self.now + self.cost;
        self.cpus[cpu].busy_until = until;
        self.cpus[cpu].run_from = until;
    }

    /// Run the task work of the running task at the return to user space. Return true if the task
    /// is preempted there, with migration disabled.
    fn work(&mut self, cpu: usize) -> bool {
        let Curr::Task(task) = self.cpus[cpu].curr else { return false };
        if self.tasks[task].in_work {
            self.tasks[task].enable_migration();
        }
        // The task is inside the kernel (Step::RunPinned).
        if self.tasks[task].is_migration_disabled() {
            return false;
        }
        let Some(work) = self.tasks[task].work.take() else { return false };
        self.tasks[task].raw_mut().migration_disabled += 1;
        let null = std::ptr::null_mut();
        // The key of the work in the program's map. A pid does not change here.
        let mut key = self.tasks[task].raw().pid as u64;
        self.call(Op::TaskWork, Some(task), 0, |_| unsafe { work(null, (&raw mut key).cast(), null) });
        self.deliver_kicks();
        self.tasks[task].in_work = self.cpus[cpu].need_resched;
        if !self.tasks[task].in_work {
            self.tasks[task].enable_migration();
        }
        self.tasks[task].in_work
    }

    /// Deliver kicks, as the kernel does when it enables interrupts.
    pub fn deliver_kicks(&mut self) {
        for (cpu, flags) in std::mem::take(&mut self.kicks) {
            self.lock_rq(cpu);
            let busy = self.cpus[cpu].curr != Curr::Idle;
            if let Curr::Task(task) = self.cpus[cpu].curr
                && flags & SCX_KICK_PREEMPT != 0
            {
                self.tasks[task].raw_mut().scx.slice = 0;
            }
            if self.online.test(cpu) && !(flags & SCX_KICK_IDLE != 0 && busy) {
                self.resched_curr(cpu);
            }
            self.unlock_rq(cpu);
        }
    }
}

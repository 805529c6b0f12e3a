// SPDX-License-Identifier: GPL-2.0-only
//! Execute the running task's program, step by step.
//!
//! A step that takes CPU time ends with an event. All other steps are immediate, at a cost. The end
//! of a step is no yield: the task continues with the rest of its slice.

use crate::cache::transfer;
use crate::costs::{FORK, MESSAGE_LINES, SYSCALL};
use crate::dsq::TaskId;
use crate::kernel::{Curr, Event, Kernel};
use crate::machine::Distance;
use crate::native::Context;
use crate::program::{Channel, Dist, Step};
use crate::task::{State, Task};
use crate::trace::Op;

impl Kernel {
    /// Handle the running task's event: start the next step, or rearm the event if work is left.
    pub fn step(&mut self, cpu: usize) {
        let Curr::Task(task) = self.cpus[cpu].curr else { return };
        if self.tasks[task].remaining == 0 {
            // The step that ends may have disabled migration.
            if self.tasks[task].is_migration_disabled() {
                self.tasks[task].enable_migration();
            }
            self.next_step(cpu, task);
        }
        if self.cpus[cpu].curr == Curr::Task(task) && !self.tasks[task].blocked {
            self.arm_step(cpu);
        }
    }

    fn draw_work(&mut self, cpu: usize, id: TaskId, dist: Dist) {
        let work = dist.draw(&mut self.rng);
        let task = &mut self.tasks[id];
        let is_remote = self.machine.distance(task.first_cpu, cpu) == Distance::Far;
        task.remaining = work + if is_remote { work * task.traits.remote_memory_pct / 100 } else { 0 };
    }

    fn next_step(&mut self, cpu: usize, id: TaskId) {
        let task = &mut self.tasks[id];
        let step = self.programs[task.program].steps[task.pc];
        task.pc += 1;
        // Each step takes time. Otherwise a program without work would loop forever.
        self.cost += 1;
        match step {
            Step::Run(dist) => self.draw_work(cpu, id, dist),
            Step::RunPinned(dist) => {
                self.draw_work(cpu, id, dist);
                self.tasks[id].raw_mut().migration_disabled += 1;
            }
            Step::Spin(ns) => {
                if task.spin_until.take().is_none() {
                    task.spin_until = Some(self.now + self.cost + ns);
                    task.remaining = ns.max(1);
                    task.pc -= 1;
                }
            }
            Step::Sleep(dist) => {
                let ns = dist.draw(&mut self.rng);
                self.sleep_until(id, self.now + self.cost + ns);
            }
            Step::Timer(period) => self.wait_for_timer(id, period),
            Step::NextFrame(period) => {
                let passed = self.now + self.cost - task.started_at.min(self.now);
                let at = task.started_at + (passed / period + 1) * period;
                self.sleep_until(id, at);
            }
            Step::Send(channel) => self.send(cpu, id, channel),
            Step::Post(channel) if self.channels[channel].messages.len() == self.channels[channel].capacity => {
                self.cost += SYSCALL;
            }
            Step::Post(channel) => self.send(cpu, id, channel),
            Step::Recv(channel) => self.recv(cpu, id, channel),
            Step::Join(channel) => self.channels[channel].receivers.push_back(id),
            Step::Await(channel) => {
                self.cost += SYSCALL;
                if self.channels[channel].receivers.contains(&id) {
                    self.block(id);
                }
            }
            Step::Broadcast(channel) => self.release(channel),
            Step::Yield => {
                self.cost += SYSCALL;
                self.update_curr(cpu);
                let raw = self.tasks[id].raw;
                self.call(Op::Yield, Some(id), 0, |ops| unsafe { ops.yield_.unwrap()(raw, std::ptr::null_mut()) });
                self.resched_curr(cpu);
            }
            // The parent's work comes first. The child does not exist before, and claims no CPU.
            Step::Fork(_) if !task.forks => {
                task.forks = true;
                task.remaining = FORK;
                task.pc -= 1;
            }
            Step::Fork(program) => self.fork(cpu, id, program),
            Step::Wait => {
                self.cost += SYSCALL;
                if self.tasks[id].nr_children > 0 {
                    self.tasks[id].waits_for_children = true;
                    self.block(id);
                }
            }
            Step::Begin => task.begun_at = self.now + self.cost,
            Step::BeginDue => task.begun_at = task.due_at,
            Step::End => {
                task.due_at = self.now + self.cost;
                let took = task.due_at.saturating_sub(task.begun_at);
                let group = self.programs[task.program].group;
                self.groups[group].request.saturating_record(took);
            }
            Step::Loop(to, times) => match task.loops.last_mut() {
                Some((step, left)) if *step == task.pc => {
                    *left -= 1;
                    if *left == 0 {
                        task.loops.pop();
                    } else {
                        task.pc = to;
                    }
                }
                _ if times > 0 => {
                    task.loops.push((task.pc, times));
                    task.pc = to;
                }
                _ => {}
            },
            Step::Jump(to) => task.pc = to,
            Step::Exit => self.exit(id),
            Step::Affinity(target, allowed) => {
                self.cost += SYSCALL;
                if !allowed.and(&self.online).is_empty() {
                    self.set_affinity(target.unwrap_or(id), allowed);
                }
            }
            Step::Nice(target, nice) => {
                self.cost += SYSCALL;
                self.set_nice(target.unwrap_or(id), nice);
            }
            Step::HigherClass(on, ns) => {
                self.cost += SYSCALL;
                self.take_cpu(on, ns);
            }
            Step::Publish => self.publish(),
        }
    }

    pub fn block(&mut self, task: TaskId) {
        self.tasks[task].blocked = true;
        let cpu = self.tasks[task].cpu;
        self.resched_curr(cpu);
    }

    fn sleep_until(&mut self, task: TaskId, at: u64) {
        self.cost += SYSCALL;
        self.tasks[task].due_at = at;
        self.block(task);
        self.push(at, Event::Timer(task));
    }

    fn wait_for_timer(&mut self, id: TaskId, period: u64) {
        let task = &mut self.tasks[id];
        let next = task.timer_at.unwrap_or(task.started_at) + period;
        task.timer_at = Some(next);
        if next > self.now + self.cost {
            return self.sleep_until(id, next);
        }
        task.due_at = next;
    }

    fn send(&mut self, cpu: usize, id: TaskId, channel_id: usize) {
        self.cost += SYSCALL;
        let channel = &mut self.channels[channel_id];
        if channel.messages.len() == channel.capacity {
            channel.senders.push_back(id);
            self.tasks[id].pc -= 1;
            return self.block(id);
        }
        channel.messages.push_back(cpu);
        if let Some(receiver) = channel.receivers.pop_front() {
            self.wake_by_message(receiver, channel_id);
        }
    }

    fn wake_by_message(&mut self, task: TaskId, channel: usize) {
        let Channel { sync, futex, .. } = self.channels[channel];
        self.wake_from(if futex { Context::Futex } else { Context::Syscall }, task, sync);
    }

    fn recv(&mut self, cpu: usize, id: TaskId, channel_id: usize) {
        self.cost += SYSCALL;
        let channel = &mut self.channels[channel_id];
        let Some(from) = channel.messages.pop_front() else {
            channel.receivers.push_back(id);
            self.tasks[id].pc -= 1;
            return self.block(id);
        };
        self.cost += MESSAGE_LINES * transfer(self.machine.distance(from, cpu));
        let channel = &mut self.channels[channel_id];
        if channel.messages.len() <= channel.low
            && let Some(sender) = channel.senders.pop_front()
        {
            self.wake_by_message(sender, channel_id);
        }
    }

    fn release(&mut self, channel: usize) {
        self.cost += SYSCALL;
        for task in std::mem::take(&mut self.channels[channel].receivers) {
            self.tasks[task].due_at = self.now + self.cost;
            self.wake_by_message(task, channel);
        }
    }

    fn fork(&mut self, cpu: usize, parent: TaskId, program: usize) {
        self.tasks[parent].forks = false;
        let mut traits = self.tasks[parent].traits.clone();
        traits.loader = false;
        traits.cgroup = self.tasks[parent].cgroup;
        let task = self.spawn(program, traits, cpu);
        self.tasks[task].started_at = self.now + self.cost;
        self.tasks[task].due_at = self.now + self.cost;
        self.tasks[task].parent = Some(parent);
        self.tasks[parent].nr_children += 1;
        self.wake_up_new(task);
    }

    fn exit(&mut self, id: TaskId) {
        self.cost += SYSCALL;
        // The task leaves its autogroup (sched_autogroup_exit_task).
        self.change(id, |_| {});
        self.block(id);
        self.tasks[id].state = State::Dead;
        if let Some(parent) = self.tasks[id].parent {
            let task: &mut Task = &mut self.tasks[parent];
            task.nr_children -= 1;
            if task.waits_for_children && task.nr_children == 0 {
                task.waits_for_children = false;
                self.wake(parent, true);
            }
        }
    }
}

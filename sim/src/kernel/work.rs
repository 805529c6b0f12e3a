// SPDX-License-Identifier: GPL-2.0-only
//! CPU time and work: progress of the running task, the end of its step, and the speed of its CPU.

use crate::costs::SMT_SPEED;
use crate::kernel::cpufreq::MAX_FREQ;
use crate::kernel::{Curr, Event, Kernel};
use crate::native::SCX_SLICE_INF;

impl Kernel {
    /// Account the work of the running task up to now.
    pub fn account(&mut self, id: usize) {
        let cpu = &mut self.cpus[id];
        if let Curr::Task(task) = cpu.curr
            && let Some(until) = self.tasks[task].spin_until
        {
            // A spin ends at a time, whatever the speed of the CPU.
            self.tasks[task].remaining = until.saturating_sub(self.now);
            cpu.run_from = cpu.run_from.max(self.now);
        } else if let Curr::Task(task) = cpu.curr
            && self.now > cpu.run_from
        {
            let done = (self.now - cpu.run_from) * cpu.speed / 1024;
            let left = &mut self.tasks[task].remaining;
            // +1: rounding down loses less than a unit of work. A step has to end nevertheless.
            *left = left.saturating_sub(done + 1);
            cpu.run_from = self.now;
        }
    }

    /// Arm the event for the end of the running task's step.
    pub fn arm_step(&mut self, id: usize) {
        let cpu = &mut self.cpus[id];
        let Curr::Task(task) = cpu.curr else { return };
        cpu.armed += 1;
        let armed = cpu.armed;
        let from = (self.now + self.cost).max(cpu.run_from);
        let left = self.tasks[task].remaining * 1024 / cpu.speed;
        self.push(from + left, Event::Step { cpu: id, armed });
    }

    fn full_speed(&self, cpu: usize) -> u64 {
        self.machine.places[cpu].capacity * self.cpus[cpu].freq.now / MAX_FREQ
    }

    /// Set the speeds of the CPUs of a core, by the number of busy ones.
    pub fn set_speeds(&mut self, id: usize) {
        let siblings = self.machine.siblings(id);
        if siblings.len() == 1 {
            self.cpus[id].speed = self.full_speed(id);
            return;
        }
        let busy = siblings.clone().filter(|&cpu| self.cpus[cpu].curr != Curr::Idle).count() as u64;
        for cpu in siblings {
            let alone = self.full_speed(cpu);
            let speed = if busy > 1 { alone * SMT_SPEED * 2 / (100 * busy) } else { alone };
            if speed != self.cpus[cpu].speed {
                self.account(cpu);
                let faster = speed > self.cpus[cpu].speed;
                self.cpus[cpu].speed = speed;
                // On a slower CPU the armed event comes too early and rearms itself.
                if faster && cpu != id {
                    self.arm_step(cpu);
                }
            }
        }
    }

    /// Update the running task's sum_exec_runtime and slice.
    pub fn update_curr(&mut self, id: usize) {
        let cpu = &mut self.cpus[id];
        let Curr::Task(task) = cpu.curr else { return };
        let task = &mut self.tasks[task];
        let raw = task.raw_mut();
        let ran = self.now - raw.se.exec_start;
        raw.se.exec_start = self.now;
        raw.se.sum_exec_runtime += ran;
        if raw.scx.slice != SCX_SLICE_INF {
            raw.scx.slice = raw.scx.slice.saturating_sub(ran);
        }
        let group = self.programs[task.program].group;
        self.groups[group].ran += ran;
        self.groups[group].capacity_time += ran * self.machine.places[id].capacity / 1024;
    }
}

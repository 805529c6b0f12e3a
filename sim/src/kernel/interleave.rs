// SPDX-License-Identifier: GPL-2.0-only
//! Other CPUs come in between: before an access of a callback to memory that CPUs share, the next event is handled first that
//! is of another CPU and needs no lock that is held.
//!
//! ```text
//! CPU 1  dispatch()  load  store ......................... load  return
//! CPU 0                          timer: select_cpu(), enqueue()
//! ```
//!
//! - A callback that holds a runqueue's lock: timers that wake tasks. A task for that runqueue comes when the lock is free, and so
//!   does a kick.
//! - A BPF timer's callback holds none, and interrupts are on: also the CPUs that it kicks schedule.
//! - Accesses are the atomics, READ_ONCE() and WRITE_ONCE(). They are seen in the order of the program: what a CPU or a
//!   compiler reorders is not, unless the source is changed so.

use std::cmp::Reverse;

use crate::kernel::{Event, Kernel};
use crate::native::Context;
use crate::time::USEC;
use crate::trace::Op;

/// An event may come so much earlier.
const WINDOW: u64 = 200 * USEC;

/// One access of so many is a chance.
const CHANCE: u8 = 4;

impl Kernel {
    /// The program is about to access memory that CPUs share.
    pub fn interleave(&mut self) {
        if !self.interleaves || self.interleaved || self.rng.u8(..CHANCE) > 0 {
            return;
        }
        let Some(call) = self.call else { return };
        let locked = match (call.op, call.task) {
            (Op::SelectCpu | Op::Timer, _) => None,
            (Op::Enqueue | Op::Running | Op::Stopping | Op::Tick, Some(task)) => Some(self.tasks[task].cpu),
            (Op::Dispatch | Op::UpdateIdle, _) => Some(call.cpu),
            _ => return,
        };
        if call.op == Op::Timer {
            self.deliver_kicks();
        }
        let until = self.now + self.cost + WINDOW;
        let others = self.events.iter().filter_map(|&Reverse((at, order, event))| {
            let cpu = match event {
                Event::Timer(task) => self.timer_cpu(task),
                Event::Resched(cpu) if call.op == Op::Timer => cpu,
                _ => return None,
            };
            let free = cpu != self.cpu && Some(cpu) != locked && self.cpus[cpu].busy_until <= self.now;
            (free && at <= until).then_some((at, order, event, cpu))
        });
        let Some((_, order, event, cpu)) = others.min() else { return };
        self.events.retain(|&Reverse((_, of, _))| of != order);
        self.nr_interleaved += 1;
        let notes = (self.checks.steal_misses, self.checks.missed, self.checks.scanned, self.checks.scans);
        let outer = (self.cpu, self.cost, self.call.take(), std::mem::take(&mut self.kicks));
        (self.interleaved, self.locked) = (true, locked);
        self.enter(cpu);
        if let Event::Timer(task) = event {
            self.wake_from(Context::HardInterrupt, task, false);
        }
        let (later, kicks): (Vec<_>, _) = self.kicks.drain(..).partition(|&(cpu, _)| Some(cpu) == locked);
        self.kicks = kicks;
        match locked {
            // It schedules when the lock is free, for it may want that.
            Some(_) => self.leave_later(cpu),
            None => self.leave(cpu),
        }
        (self.interleaved, self.locked) = (false, None);
        (self.cpu, self.cost, self.call, self.kicks) = outer;
        self.kicks.extend(later);
        (self.checks.steal_misses, self.checks.missed, self.checks.scanned, self.checks.scans) = notes;
    }

    /// As leave(), but for scheduling.
    fn leave_later(&mut self, cpu: usize) {
        self.deliver_kicks();
        let until = self.now + self.cost;
        self.cpus[cpu].busy_until = until;
        self.cpus[cpu].run_from = until;
        if self.cpus[cpu].need_resched {
            self.push(until, Event::Resched(cpu));
        }
    }
}

// SPDX-License-Identifier: GPL-2.0-only
//! Write a trace as text, or for Perfetto.

use std::io::{self, Write};

use scx_magpie::record::writer::{Machine, Task, Track, Value, Writer};

use crate::dsq::TaskId;
use crate::kernel::Kernel;
use crate::machine::Place;
use crate::native::SCX_ENQ_WAKEUP;
use crate::trace::{Op, Record};

/// States of tasks as the tracepoint sched_switch has them.
const RUNNABLE: u32 = 0;
const SLEEPS: u32 = 1;

/// Perfetto reads states by the kernel's version.
const RELEASE: &str = "6.18";

impl Kernel {
    fn task_name(&self, task: TaskId) -> String {
        format!("{}-{task}", self.programs[self.tasks[task].program].name)
    }

    pub fn write_text(&self, out: &mut impl Write) -> io::Result<()> {
        for record in &self.trace.records {
            let task = record.task.map_or(String::new(), |task| self.task_name(task));
            let (us, ns, name) = (record.at / 1000, record.at % 1000, record.op.name());
            writeln!(out, "{us:>10}.{ns:03} cpu{:<4} {name:<11} {task} {:#x}", record.cpu, record.arg)?;
        }
        Ok(())
    }

    /// Write a trace in Perfetto's format, as `scx_magpie record` does of a real machine: a track for
    /// each CPU, the states of tasks, and callbacks as events of the CPU that executes them.
    pub fn write_perfetto(&self, out: &mut impl Write) -> io::Result<()> {
        let name = |(cpu, place): (usize, &Place)| {
            (cpu, format!("CPU {cpu} (LLC {}, node {}, capacity {})", place.llc, place.node, place.capacity))
        };
        let cpus = self.machine.places.iter().enumerate().map(name).collect();
        let machine = Machine { release: RELEASE, version: "", arch: "", cpus };
        let mut writer = Writer::new(out, &machine)?;
        let mut prev_states = vec![RUNNABLE; self.cpus.len()];
        let mut ran_on = vec![0; self.tasks.len()];
        for &Record { at, cpu, task, op, arg } in &self.trace.records {
            match (op, task) {
                (Op::Switch, _) => {
                    let next = match (task, arg) {
                        (Some(task), _) => {
                            ran_on[task] = cpu;
                            self.task(task)
                        }
                        (None, 0) => Task { comm: "idle".into(), ..Task::default() },
                        (None, _) => thread(self.tasks.len() + cpu, "higher class".into()),
                    };
                    writer.switch(cpu, at, std::mem::replace(&mut prev_states[cpu], RUNNABLE), &next)?;
                }
                (Op::Stopping, _) => prev_states[cpu] = if arg != 0 { RUNNABLE } else { SLEEPS },
                (Op::SelectCpu, Some(task)) => writer.waking(cpu, at, &self.task(task), ran_on[task])?,
                (Op::Enqueue, Some(task)) if arg & SCX_ENQ_WAKEUP != 0 => {
                    writer.waking(cpu, at, &self.task(task), cpu)?;
                }
                _ => {}
            }
            if op.is_of_cgroups() || matches!(op, Op::SelectCpu | Op::Enqueue | Op::Yield | Op::CpuRelease | Op::Init) {
                let (task, flags) = (task.map(|task| self.task_name(task)), format!("{arg:#x}"));
                let values = [("task", Value::Text(task.as_deref().unwrap_or(""))), ("flags", Value::Text(&flags))];
                writer.instant(Track::Cpu(cpu), at, op.name(), &values)?;
            }
        }
        writer.finish(|_| None)?;
        Ok(())
    }

    fn task(&self, task: TaskId) -> Task {
        thread(task, self.programs[self.tasks[task].program].name.clone())
    }
}

/// A task of the trace, whose PID 0 is the idle task.
fn thread(index: usize, comm: String) -> Task {
    let pid = index as i32 + 1;
    Task { pid, tgid: pid, prio: 120, comm }
}

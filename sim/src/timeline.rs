// SPDX-License-Identifier: GPL-2.0-only
//! Write a trace as text, or as Chrome's JSON for Perfetto.

use std::io::{self, Write};

use serde_json::json;

use crate::dsq::TaskId;
use crate::kernel::Kernel;
use crate::trace::Op;

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

    /// Write Chrome's trace event format: a track per CPU with its tasks. Wakeups and other
    /// callbacks are instants.
    pub fn write_perfetto(&self, out: &mut impl Write) -> io::Result<()> {
        let mut events = vec![json!({"ph": "M", "pid": 1, "name": "process_name", "args": {"name": "CPUs"}})];
        for (cpu, place) in self.machine.places.iter().enumerate() {
            let name = format!("CPU {cpu} (LLC {}, node {}, capacity {})", place.llc, place.node, place.capacity);
            events.push(json!({"ph": "M", "pid": 1, "tid": cpu, "name": "thread_name", "args": {"name": name}}));
            let order = json!({"sort_index": cpu});
            events.push(json!({"ph": "M", "pid": 1, "tid": cpu, "name": "thread_sort_index", "args": order}));
        }
        let mut is_busy = vec![false; self.cpus.len()];
        for record in &self.trace.records {
            let (cpu, us) = (record.cpu, record.at as f64 / 1000.0);
            let task = record.task.map_or(String::new(), |task| self.task_name(task));
            match record.op {
                Op::Switch => {
                    if std::mem::replace(&mut is_busy[cpu], record.arg != 0) {
                        events.push(json!({"ph": "E", "pid": 1, "tid": cpu, "ts": us}));
                    }
                    if is_busy[cpu] {
                        let name = if record.arg == 1 { task } else { "higher class".into() };
                        events.push(json!({"ph": "B", "pid": 1, "tid": cpu, "name": name, "ts": us}));
                    }
                }
                op if op.is_of_cgroups()
                    || matches!(op, Op::SelectCpu | Op::Enqueue | Op::Yield | Op::CpuRelease | Op::Init) =>
                {
                    let (name, flags) = (format!("{} {task}", op.name()), format!("{:#x}", record.arg));
                    events.push(json!({
                        "ph": "i", "s": "t", "pid": 1, "tid": cpu, "ts": us, "name": name, "args": {"flags": flags}
                    }));
                }
                _ => {}
            }
        }
        serde_json::to_writer(out, &json!({"traceEvents": events, "displayTimeUnit": "ns"}))?;
        Ok(())
    }
}

// SPDX-License-Identifier: GPL-2.0-only
//! Writes a trace to look at: as text, or as Chrome's JSON for Perfetto.

use std::io::{self, Write};

use serde_json::json;

use crate::dsq::TaskId;
use crate::kernel::Kernel;
use crate::trace::Op;

impl Kernel {
    fn task_name(&self, task: TaskId) -> String {
        format!("{}-{task}", self.programs[self.tasks[task].program].name)
    }

    /// A line for each record.
    pub fn write_text(&self, out: &mut impl Write) -> io::Result<()> {
        for record in &self.trace.records {
            let task = record.task.map_or(String::new(), |task| self.task_name(task));
            writeln!(
                out,
                "{:>10}.{:03} cpu{:<4} {:<11} {task} {:#x}",
                record.at / 1000,
                record.at % 1000,
                record.cpu,
                record.op.name(),
                record.arg
            )?;
        }
        Ok(())
    }

    /// Chrome's trace event format: a track for each CPU with the tasks that run there. Wakeups and other callbacks are
    /// instants.
    pub fn write_perfetto(&self, out: &mut impl Write) -> io::Result<()> {
        let usec = |ns: u64| ns as f64 / 1000.0;
        let mut events = Vec::new();
        events.push(json!({"ph": "M", "pid": 1, "name": "process_name", "args": {"name": "CPUs"}}));
        for cpu in 0..self.cpus.len() {
            let place = &self.machine.places[cpu];
            let name = format!("CPU {cpu} (LLC {}, node {}, capacity {})", place.llc, place.node, place.capacity);
            events.push(json!({"ph": "M", "pid": 1, "tid": cpu, "name": "thread_name", "args": {"name": name}}));
            events.push(
                json!({"ph": "M", "pid": 1, "tid": cpu, "name": "thread_sort_index", "args": {"sort_index": cpu}}),
            );
        }
        let mut since: Vec<Option<(u64, String)>> = vec![None; self.cpus.len()];
        let end = self.now;
        let mut close = |events: &mut Vec<_>, cpu: usize, at: u64, next: Option<String>| {
            if let Some((from, name)) = since[cpu].take() {
                events.push(json!({
                    "ph": "X", "pid": 1, "tid": cpu, "name": name, "ts": usec(from), "dur": usec(at.saturating_sub(from))
                }));
            }
            since[cpu] = next.map(|name| (at, name));
        };
        for record in &self.trace.records {
            match record.op {
                Op::Switch => {
                    let next = match (record.arg, record.task) {
                        (1, Some(task)) => Some(self.task_name(task)),
                        (2, _) => Some("higher class".into()),
                        _ => None,
                    };
                    close(&mut events, record.cpu, record.at, next);
                }
                op if op.is_of_cgroups()
                    || matches!(op, Op::SelectCpu | Op::Enqueue | Op::Yield | Op::CpuRelease | Op::Init) =>
                {
                    let task = record.task.map_or(String::new(), |task| self.task_name(task));
                    events.push(json!({
                        "ph": "i", "s": "t", "pid": 1, "tid": record.cpu, "ts": usec(record.at),
                        "name": format!("{} {task}", record.op.name()), "args": {"flags": format!("{:#x}", record.arg)}
                    }));
                }
                _ => {}
            }
        }
        for cpu in 0..self.cpus.len() {
            close(&mut events, cpu, end, None);
        }
        serde_json::to_writer(out, &json!({"traceEvents": events, "displayTimeUnit": "ns"}))?;
        Ok(())
    }
}

// SPDX-License-Identifier: GPL-2.0-only
//! Figures of a run: throughput, latencies and CPU time by group, and the scheduler's statistics.

use std::fmt;
use std::time::Duration;

use comfy_table::{CellAlignment, presets};
use hdrhistogram::Histogram;
use scx_magpie::stats::Group;

use crate::fluid::Largest;
use crate::kernel::{Curr, Kernel};
use crate::stats::GroupStats;
use crate::time::SEC;
use crate::trace::Op;

#[derive(Clone, Debug)]
pub struct Percentiles {
    pub p50: f64,
    pub p99: f64,
}

impl Percentiles {
    fn us(histogram: &Histogram<u64>) -> Self {
        let at = |quantile| histogram.value_at_quantile(quantile) as f64 / 1000.0;
        Self { p50: at(0.5), p99: at(0.99) }
    }
}

#[derive(Clone, Debug)]
pub struct GroupReport {
    pub name: String,
    /// Units of work, and their number per second.
    pub requests: u64,
    pub throughput: f64,
    pub request_us: Percentiles,
    pub wakeups: u64,
    /// Time from a wakeup until the task runs.
    pub wakeup_us: Percentiles,
    /// CPU time, s; and the same in seconds of a CPU of capacity 1024.
    pub cpu_s: f64,
    pub capacity_s: f64,
    /// By [`Distance`](crate::machine::Distance).
    pub migrations: [u64; 5],
}

impl GroupReport {
    fn new(group: &GroupStats, seconds: f64) -> Self {
        Self {
            name: group.name.clone(),
            requests: group.request.len(),
            throughput: group.request.len() as f64 / seconds,
            request_us: Percentiles::us(&group.request),
            wakeups: group.wakeup.len(),
            wakeup_us: Percentiles::us(&group.wakeup),
            cpu_s: group.ran as f64 / SEC as f64,
            capacity_s: group.capacity_time as f64 / SEC as f64,
            migrations: group.migrations,
        }
    }
}

#[derive(Clone, Debug)]
pub struct Report {
    pub seconds: f64,
    /// Busy time in % of all CPUs' time.
    pub busy: f64,
    pub groups: Vec<GroupReport>,
    /// The scheduler's counters, as --stats prints them.
    pub stats: Group,
    /// Lines of bitmaps and cgroups that moved between CPUs, per context switch.
    pub lines_a_switch: f64,
    /// The largest lag of a task in the fluid model.
    pub largest_lag: Largest,
    pub events: u64,
    /// Hash of the trace. Equal seeds give equal hashes.
    pub hash: u64,
}

impl Kernel {
    /// Omit everything before now from the report, except for `busy`.
    pub fn end_warm_up(&mut self) {
        for cpu in 0..self.cpus.len() {
            self.update_curr(cpu);
        }
        self.warm_up = self.snapshot();
        self.measured_from = self.now;
        for group in &mut self.groups {
            *group = GroupStats::new(&group.name, group.background);
        }
        self.checks.fluid.largest = Largest::default();
    }

    /// Report the run since the end of the warm-up, or since `from`, the start of the workload.
    pub fn report(&mut self, from: u64) -> Report {
        for cpu in 0..self.cpus.len() {
            self.update_curr(cpu);
        }
        let from = from.max(self.measured_from);
        let elapsed = (self.now - from).max(1);
        let seconds = elapsed as f64 / SEC as f64;
        let reported = self.groups.iter().filter(|group| !group.background);
        let groups = reported.map(|group| GroupReport::new(group, seconds)).collect();
        let idle: u64 = (self.online.iter())
            .map(|cpu| {
                let cpu = &self.cpus[cpu];
                let now = if cpu.curr == Curr::Idle { self.now.saturating_sub(cpu.idle_since) } else { 0 };
                cpu.idle_ns + now
            })
            .sum();
        let snapshot = self.snapshot();
        Report {
            seconds,
            busy: 100.0 - 100.0 * idle as f64 / (self.online.len() as u64 * self.now) as f64,
            groups,
            stats: snapshot.since(&self.warm_up, Duration::from_nanos(elapsed)).total,
            lines_a_switch: self.lines_moved as f64 / self.trace.counts[Op::Switch as usize].max(1) as f64,
            largest_lag: self.checks.fluid.largest,
            events: self.nr_events,
            hash: self.trace.hash,
        }
    }
}

type Rows = Vec<(String, f64)>;

/// The scheduler's counters that are printed.
const COUNTERS: &str = "search domain_search scanned failed target prev recent scan beyond preempt queued kick \
                        steal_llc steal_node steal_far steal_miss balance starved";

/// A column for each set of flags, with the median and the range of its runs.
#[derive(Default)]
pub struct Table {
    /// Name of a column, and the rows of its runs.
    columns: Vec<(String, Vec<Rows>)>,
}

impl Table {
    pub fn add(&mut self, name: &str, reports: &[Report]) {
        self.columns.push((name.into(), reports.iter().map(Report::rows).collect()));
    }
}

impl Report {
    /// Return the rows of a [`Table`], in order.
    fn rows(&self) -> Rows {
        let of_run = [
            ("busy %", self.busy),
            ("lines a switch", self.lines_a_switch),
            ("largest lag, slices", self.largest_lag.slices),
        ];
        let of_group = |group: &GroupReport| {
            let [_, _, core, llc, node] = group.migrations.map(|nr| nr as f64);
            let rows = [
                ("units/s", group.throughput),
                ("unit p50 us", group.request_us.p50),
                ("unit p99 us", group.request_us.p99),
                ("wakeup p50 us", group.wakeup_us.p50),
                ("wakeup p99 us", group.wakeup_us.p99),
                ("CPU s", group.cpu_s),
                ("capacity s", group.capacity_s),
                ("to another core", core),
                ("to another LLC", llc),
                ("to another node", node),
            ];
            rows.map(|(what, value)| (format!("{}: {what}", group.name), value))
        };
        let counters = match serde_json::to_value(&self.stats) {
            Ok(serde_json::Value::Object(counters)) => counters,
            other => unreachable!("{other:?}"),
        };
        let of_stats =
            COUNTERS.split_whitespace().map(|name| (name.into(), counters[name].as_f64().unwrap_or(f64::NAN)));
        let of_run = of_run.into_iter().map(|(what, value)| (what.into(), value));
        of_run.chain(self.groups.iter().flat_map(of_group)).chain(of_stats).collect()
    }
}

pub fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let mid = sorted.len() / 2;
    if sorted.len() % 2 == 1 { sorted[mid] } else { (sorted[mid - 1] + sorted[mid]) / 2.0 }
}

fn cell(values: &[f64]) -> String {
    let digits = if values.iter().all(|value| value.fract() == 0.0) { 0 } else { 2 };
    let mid = format!("{:.digits$}", median(values));
    if values.len() == 1 {
        return mid;
    }
    let (min, max) = values.iter().fold((f64::MAX, f64::MIN), |(min, max), &value| (min.min(value), max.max(value)));
    format!("{mid} ({min:.digits$}..{max:.digits$})")
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut table = comfy_table::Table::new();
        table.load_style(presets::NOTHING);
        let ratio = (self.columns.len() == 2).then_some("B : A");
        table.set_header([""].into_iter().chain(self.columns.iter().map(|(name, _)| &**name)).chain(ratio));
        let Some(first) = self.columns.first().and_then(|(_, runs)| runs.first()) else { return Ok(()) };
        for (row, (what, _)) in first.iter().enumerate() {
            let of_runs = |runs: &Vec<Rows>| runs.iter().map(|rows| rows[row].1).collect();
            let values: Vec<Vec<f64>> = self.columns.iter().map(|(_, runs)| of_runs(runs)).collect();
            let mut line = vec![what.clone()];
            line.extend(values.iter().map(|values| cell(values)));
            if let [a, b] = &values[..] {
                let (a, b) = (median(a), median(b));
                line.push(if a == b { "1.00".into() } else { format!("{:.2}", b / a) });
            }
            table.add_row(line);
        }
        for (index, column) in table.column_iter_mut().enumerate() {
            column.set_padding((if index > 0 { 2 } else { 0 }, 0));
            column.set_cell_alignment(if index > 0 { CellAlignment::Right } else { CellAlignment::Left });
        }
        writeln!(f, "{table}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn medians_and_spread() {
        assert_eq!(cell(&[3.0]), "3");
        assert_eq!(cell(&[3.0, 1.0, 2.0]), "2 (1..3)");
        assert_eq!(cell(&[1.5, 2.0]), "1.75 (1.50..2.00)");
    }
}

// SPDX-License-Identifier: GPL-2.0-only
//! Figures of a run: throughput, latencies and CPU time by group, and the scheduler's statistics.

use std::fmt;
use std::time::Duration;

use comfy_table::{CellAlignment, presets};
use hdrhistogram::Histogram;
use scx_magpie::stats::{Group, Snapshot};

use crate::fluid::Largest;
use crate::kernel::{Curr, Kernel};
use crate::stats::GroupStats;
use crate::time::SEC;
use crate::trace::Op;

/// Percentiles in us.
#[derive(Clone, Debug)]
pub struct Percentiles {
    pub p50: f64,
    pub p99: f64,
    pub p999: f64,
    pub max: f64,
}

impl Percentiles {
    fn of(histogram: &Histogram<u64>) -> Self {
        let at = |quantile| histogram.value_at_quantile(quantile) as f64 / 1000.0;
        Self { p50: at(0.5), p99: at(0.99), p999: at(0.999), max: histogram.max() as f64 / 1000.0 }
    }
}

#[derive(Clone, Debug)]
pub struct GroupReport {
    pub name: String,
    /// Units of work per second.
    pub throughput: f64,
    pub requests: u64,
    /// Latency of a unit of work.
    pub request_us: Percentiles,
    pub wakeups: u64,
    /// Time from a wakeup until the task runs.
    pub wakeup_us: Percentiles,
    /// CPU time, s; and the same in seconds of a CPU of capacity 1024.
    pub cpu_s: f64,
    pub capacity_s: f64,
    /// Migrations to a sibling, another core, LLC, node.
    pub migrations: [u64; 4],
}

/// Figures of a finished run.
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
    pub callbacks: u64,
    /// Hash of the trace. Equal seeds give equal hashes.
    pub hash: String,
}

impl Kernel {
    fn snapshot(&mut self) -> Snapshot {
        self.sample_queues();
        Snapshot::new(&self.layout, &self.native.shared(), &self.sum_util(), None, Duration::from_nanos(self.now))
    }

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
        let groups = self
            .groups
            .iter()
            .filter(|group| !group.background)
            .map(|group| GroupReport {
                name: group.name.clone(),
                throughput: group.request.len() as f64 * SEC as f64 / elapsed as f64,
                requests: group.request.len(),
                request_us: Percentiles::of(&group.request),
                wakeups: group.wakeup.len(),
                wakeup_us: Percentiles::of(&group.wakeup),
                cpu_s: group.ran as f64 / SEC as f64,
                capacity_s: group.capacity_time as f64 / SEC as f64,
                migrations: std::array::from_fn(|i| group.migrations[i + 1]),
            })
            .collect();
        let idle: u64 = (self.online.iter())
            .map(|cpu| {
                let cpu = &self.cpus[cpu];
                let now = if cpu.curr == Curr::Idle { self.now.saturating_sub(cpu.idle_since) } else { 0 };
                cpu.idle_ns + now
            })
            .sum();
        let snapshot = self.snapshot();
        Report {
            seconds: elapsed as f64 / SEC as f64,
            busy: 100.0 - 100.0 * idle as f64 / (self.online.len() as u64 * self.now) as f64,
            groups,
            stats: snapshot.since(&self.warm_up, Duration::from_nanos(elapsed)).total,
            lines_a_switch: self.lines_moved as f64 / self.trace.counts[Op::Switch as usize].max(1) as f64,
            largest_lag: self.checks.fluid.largest,
            events: self.nr_events,
            callbacks: self.trace.counts[..Op::Switch as usize].iter().sum(),
            hash: format!("{:016x}", self.trace.hash),
        }
    }
}

/// The rows of a run: name and value.
type Rows = Vec<(String, f64)>;

/// A column for each set of flags, with the median and the range of its runs.
#[derive(Default)]
pub struct Table {
    /// Name of a column, and the rows of its runs.
    columns: Vec<(String, Vec<Rows>)>,
}

impl Table {
    /// Add a column with one report per seed.
    pub fn add(&mut self, name: &str, reports: &[Report]) {
        self.columns.push((name.into(), reports.iter().map(Report::rows).collect()));
    }
}

impl Report {
    /// Return the rows of a [`Table`], in order.
    fn rows(&self) -> Rows {
        let mut rows = vec![("busy %".to_string(), self.busy), ("lines a switch".to_string(), self.lines_a_switch)];
        rows.push(("largest lag, slices".into(), self.largest_lag.slices));
        for group in &self.groups {
            let name = &group.name;
            rows.push((format!("{name}: units/s"), group.throughput));
            rows.push((format!("{name}: unit p50 us"), group.request_us.p50));
            rows.push((format!("{name}: unit p99 us"), group.request_us.p99));
            rows.push((format!("{name}: wakeup p50 us"), group.wakeup_us.p50));
            rows.push((format!("{name}: wakeup p99 us"), group.wakeup_us.p99));
            rows.push((format!("{name}: CPU s"), group.cpu_s));
            rows.push((format!("{name}: capacity s"), group.capacity_s));
            rows.push((format!("{name}: to another core"), group.migrations[1] as f64));
            rows.push((format!("{name}: to another LLC"), group.migrations[2] as f64));
            rows.push((format!("{name}: to another node"), group.migrations[3] as f64));
        }
        let stats = &self.stats;
        for (what, count) in [
            ("search", stats.search),
            ("domain_search", stats.domain_search),
            ("scanned", stats.scanned),
            ("failed", stats.failed),
            ("fast", stats.target + stats.prev + stats.recent),
            ("scan", stats.scan),
            ("beyond", stats.beyond),
            ("preempt", stats.preempt),
            ("queued", stats.queued),
            ("kick", stats.kick),
            ("steal_llc", stats.steal_llc),
            ("steal_node", stats.steal_node),
            ("steal_far", stats.steal_far),
            ("steal_miss", stats.steal_miss),
            ("balance", stats.balance),
            ("starved", stats.starved),
        ] {
            rows.push((what.into(), count as f64));
        }
        rows
    }
}

/// Return the median of at least one value.
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

// SPDX-License-Identifier: GPL-2.0-only
//! Print [`Metrics`] on a terminal: a row per interval, or per LLC and a total; heads repeat.
//!
//! `--details` adds cgroups (cgroups.rs), NUMA nodes, wake cases (wake_cases.rs) and the histogram
//! of search times to each interval. Parts that do not apply to the machine are omitted.

use std::io::Write;

use anyhow::Result;
use clap::Args;
use comfy_table::{CellAlignment, ColumnConstraint, Width, presets};

use super::column::{Column, Figures};
use super::{Group, Memory, Metrics, wake_cases};

/// Maximum number of LLCs that have rows without `--llcs`.
const FEW_LLCS: usize = 4;

/// Number of lines of a terminal of unknown size.
const HEIGHT: usize = 24;

/// Minimum width of a column.
const WIDTH: u16 = 6;

/// Maximum width of a bar in the histogram.
const BAR: u64 = 40;

/// Selection of the statistics that are printed as text.
#[derive(Clone, Debug, Default, Args)]
pub struct TableOpts {
    /// Print these columns of the statistics.
    ///
    /// Names are the heads of the table, or those that --help-stats lists under [Group].
    ///
    /// Example: --columns util,search,kick
    #[arg(long, requires = "interval", value_name = "NAMES", value_delimiter = ',', conflicts_with_all = ["json", "wide"])]
    pub columns: Vec<Column>,

    /// Print more columns than fit into 80 characters.
    #[arg(long, requires = "interval", conflicts_with = "json")]
    pub wide: bool,

    /// Print a row for each LLC, even if there are more than 4.
    #[arg(long, requires = "interval", conflicts_with = "json")]
    pub llcs: bool,

    /// Print cgroups, NUMA nodes, wake cases and the histogram of search times at each interval,
    /// too.
    #[arg(long, requires = "interval", conflicts_with = "json")]
    pub details: bool,
}

/// A table that prints interval after interval.
pub struct Table {
    columns: Vec<Column>,
    llcs: bool,
    details: bool,
    /// Lines of the screen that are left below the head.
    left: usize,
}

impl Table {
    pub fn new(opts: &TableOpts) -> Self {
        let columns = match &opts.columns[..] {
            [] if opts.wide => Column::wide_set(),
            [] => Column::default_set(),
            columns => columns.to_vec(),
        };
        Self { columns, llcs: opts.llcs, details: opts.details, left: 0 }
    }

    /// Print the rows of an interval, and a head if the last one has left the screen.
    pub fn print<W: Write>(&mut self, metrics: &Metrics, w: &mut W) -> Result<()> {
        let height = terminal_size::terminal_size().map_or(HEIGHT, |(_, height)| height.0.into());
        self.print_on(height, metrics, w)
    }

    fn print_on<W: Write>(&mut self, height: usize, metrics: &Metrics, w: &mut W) -> Result<()> {
        let table = self.rows(metrics);
        let mut lines = table.lines();
        let head = lines.next().unwrap_or_default();
        let rows: Vec<_> = lines.collect();
        if self.left < rows.len() || self.details {
            writeln!(w, "{}", head.trim_end())?;
            self.left = height.saturating_sub(1);
        }
        self.left = self.left.saturating_sub(rows.len());
        for row in rows {
            writeln!(w, "{}", row.trim_end())?;
        }
        if self.details { metrics.print_details(w) } else { Ok(()) }
    }

    fn rows(&self, metrics: &Metrics) -> comfy_table::Table {
        let mut table = comfy_table::Table::new();
        table.load_style(presets::NOTHING);
        table.set_header(["LLC"].into_iter().chain(self.columns.iter().map(|column| &*column.head)));
        let mut row = |name: String, group: &Group| {
            let figures = Figures::new(group, metrics.interval_ms);
            let cells = self.columns.iter().map(|column| column.text(&figures));
            table.add_row([name].into_iter().chain(cells));
        };
        if self.llcs || (2..=FEW_LLCS).contains(&metrics.llcs.len()) {
            metrics.llcs.iter().for_each(|(id, llc)| row(id.to_string(), llc));
        }
        row("total".into(), &metrics.total);
        for (index, column) in table.column_iter_mut().enumerate() {
            column.set_padding((u16::from(index > 0), 0));
            if index > 0 {
                column.set_cell_alignment(CellAlignment::Right);
                column.set_constraint(ColumnConstraint::LowerBoundary(Width::Fixed(WIDTH + 1)));
            }
        }
        table
    }
}

impl Group {
    /// Print search times: a line for each power of two, from the first to the last that occurred.
    fn format_latencies<W: Write>(&self, w: &mut W) -> Result<()> {
        let (Some(first), Some(last)) =
            (self.latencies.iter().position(|&count| count > 0), self.latencies.iter().rposition(|&count| count > 0))
        else {
            return Ok(());
        };
        let most = self.latencies.iter().copied().max().unwrap_or(0).max(1);
        writeln!(w, "{:>24} : {:>10} search time", "ns", "count")?;
        for (i, &count) in self.latencies.iter().enumerate().take(last + 1).skip(first) {
            let (from, to) = (if i == 0 { 0 } else { 1u64 << i }, (2u64 << i) - 1);
            let bar = "*".repeat((count * BAR / most) as usize);
            writeln!(w, "{from:>10} -> {to:<10} : {count:>10} |{bar:<40}|")?;
        }
        Ok(())
    }
}

impl Metrics {
    fn print_details<W: Write>(&self, w: &mut W) -> Result<()> {
        self.cgroups.format(w)?;
        self.format_nodes(w)?;
        self.format_capacity(w)?;
        self.total.format_latencies(w)?;
        Ok(writeln!(w)?)
    }

    /// Print placements of wakeups on machines whose CPUs differ in capacity.
    fn format_capacity<W: Write>(&self, w: &mut W) -> Result<()> {
        if self.wake_cases.is_empty() {
            return Ok(());
        }
        wake_cases::format(&self.wake_cases, w)?;
        let Group { misfit, misfit_ms, misfit_move, misfit_swap, .. } = self.total;
        writeln!(
            w,
            "misfits: {misfit}, for {misfit_ms} ms; moved to stronger CPUs {misfit_move}, in place of small tasks {misfit_swap}"
        )?;
        Ok(())
    }

    /// Print the locality of tasks on machines with several nodes.
    fn format_nodes<W: Write>(&self, w: &mut W) -> Result<()> {
        if self.nodes.is_empty() {
            return Ok(());
        }
        write!(w, "on preferred node %:")?;
        for (id, node) in &self.nodes {
            write!(w, " node {id} {:.1}", node.on_preferred)?;
        }
        let Group { affine, affine_far, preferred_wake, preferred_steal, preferred_move, preferred_held, .. } =
            &self.total;
        let Memory { samples, cost, known, .. } = &self.memory;
        let returns = preferred_wake + preferred_steal + preferred_move;
        write!(
            w,
            "; moved by wake-affine {affine}, from other nodes {affine_far}; returned {returns}, held back {preferred_held}; "
        )?;
        Ok(writeln!(w, "memory of {known} processes known, {samples} sampled, {cost:.2} % of a CPU")?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bpf_intf::magpie_limits_LATENCY_BUCKETS;

    /// Return metrics of this many LLCs.
    fn metrics(nr_llcs: usize) -> Metrics {
        let group = |count| Group { search: count, util: 100.0, ..Group::default() };
        let llcs = (0..nr_llcs).map(|id| (id, group(99_999))).collect();
        Metrics { llcs, total: group(123_456_789), interval_ms: 1000, ..Metrics::default() }
    }

    /// Return the output of intervals on a terminal of `height` lines.
    fn printed(opts: &TableOpts, height: usize, intervals: &[Metrics]) -> Vec<String> {
        let (mut table, mut text) = (Table::new(opts), Vec::new());
        for metrics in intervals {
            table.print_on(height, metrics, &mut text).unwrap();
        }
        String::from_utf8(text).unwrap().lines().map(str::to_owned).collect()
    }

    #[test]
    fn the_default_fits_into_80_columns_and_lines_up() {
        let lines = printed(&TableOpts::default(), 24, &[metrics(2)]);
        assert_eq!(lines.len(), 4, "{lines:?}");
        assert!(lines.iter().all(|line| line.len() == lines[0].len() && line.len() <= 80), "{lines:#?}");
        assert!(lines[0].starts_with("LLC") && lines[3].starts_with("total"), "{lines:?}");
    }

    #[test]
    fn the_head_comes_once_a_screenful() {
        let lines = printed(&TableOpts::default(), 10, &vec![metrics(1); 25]);
        let heads: Vec<_> = (0..lines.len()).filter(|&line| lines[line].starts_with("LLC")).collect();
        assert_eq!(heads, [0, 10, 20]);
        // On a small terminal each interval has a head.
        assert_eq!(printed(&TableOpts::default(), 2, &vec![metrics(4); 3]).len(), 3 * 6);
    }

    #[test]
    fn many_llcs_have_rows_when_asked_for() {
        assert_eq!(printed(&TableOpts::default(), 24, &[metrics(5)]).len(), 2);
        let opts = TableOpts { llcs: true, ..TableOpts::default() };
        assert_eq!(printed(&opts, 24, &[metrics(5)]).len(), 7);
    }

    #[test]
    fn columns_are_those_asked_for() {
        let columns = ["search", "kick"].map(|name| name.parse().unwrap()).to_vec();
        let lines = printed(&TableOpts { columns, ..TableOpts::default() }, 24, &[metrics(1)]);
        let words = |line: &str| line.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
        assert_eq!((words(&lines[0]), words(&lines[1])), (words("LLC search kick"), words("total 123M 0")));
        let wide = printed(&TableOpts { wide: true, ..TableOpts::default() }, 24, &[metrics(1)]);
        assert_eq!(words(&wide[0]).len(), 1 + Column::wide_set().len());
    }

    #[test]
    fn details_follow_each_interval() {
        let latencies = vec![5; magpie_limits_LATENCY_BUCKETS as usize];
        let metrics = Metrics { total: Group { latencies, ..Group::default() }, ..metrics(1) };
        let opts = TableOpts { details: true, ..TableOpts::default() };
        let lines = printed(&opts, 100, &[metrics.clone(), metrics]);
        // Head and total; the histogram with its head; an empty line.
        assert_eq!(lines.len(), 2 * (2 + 1 + magpie_limits_LATENCY_BUCKETS as usize + 1));
        let histogram = &lines[3..3 + magpie_limits_LATENCY_BUCKETS as usize];
        assert!(histogram.windows(2).all(|pair| pair[0].len() == pair[1].len()), "{histogram:#?}");
    }
}

// SPDX-License-Identifier: GPL-2.0-only
//! How an interval's [`Metrics`] print, for a terminal:
//!
//! ```text
//! a row for each LLC, one for all ---> cgroups (cgroups.rs) ---> nodes ---> wake cases (wake_cases.rs) ---> histogram
//! ```
//!
//! What a machine has not, or flags leave out, prints nothing.

use std::io::Write;

use anyhow::Result;

use super::{Group, Memory, Metrics, wake_cases};

/// Widest bar of the histogram.
const BAR: u64 = 40;

/// Room for a million events an interval.
const COLUMN_WIDTH: usize = 7;

impl Group {
    /// The table's columns: those figures that tell how it goes. JSON has them all.
    pub fn columns(&self) -> [(&'static str, String); 20] {
        [
            ("cpus", self.nr_cpus.to_string()),
            ("util%", format!("{:.1}", self.util)),
            ("busy%", format!("{:.1}", self.busy)),
            ("find%", format!("{:.2}", self.find)),
            ("nr_scan", self.nr_scan.to_string()),
            ("search", self.search.to_string()),
            ("scanned", self.scanned.to_string()),
            ("failed", self.failed.to_string()),
            ("se_eff%", format!("{:.1}", self.se_eff)),
            ("domeff%", format!("{:.1}", self.dom_eff)),
            ("fast%", format!("{:.1}", self.fast_rate)),
            ("found%", format!("{:.1}", self.success_rate)),
            ("preempt", self.preempt.to_string()),
            ("queued", self.queued.to_string()),
            ("own", self.own.to_string()),
            ("st_llc", self.steal_llc.to_string()),
            ("st_node", self.steal_node.to_string()),
            ("st_far", self.steal_far.to_string()),
            ("balance", self.balance.to_string()),
            ("in_line", self.nr_queued.to_string()),
        ]
    }

    /// How long searches took: a line for each power of two that occurred, and those between.
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

fn line<W: Write>(w: &mut W, name: &str, cells: impl Iterator<Item = impl AsRef<str>>) -> Result<()> {
    write!(w, "{name:<7}")?;
    for cell in cells {
        write!(w, " {:>COLUMN_WIDTH$}", cell.as_ref())?;
    }
    Ok(writeln!(w)?)
}

impl Metrics {
    /// A row for each LLC and one for all; the head comes with every interval, for intervals scroll by.
    pub fn format<W: Write>(&self, w: &mut W) -> Result<()> {
        writeln!(w)?;
        line(w, "", self.total.columns().iter().map(|(head, _)| head))?;
        for (id, llc) in &self.llcs {
            line(w, &format!("LLC {id}"), llc.columns().iter().map(|(_, value)| value))?;
        }
        line(w, "total", self.total.columns().iter().map(|(_, value)| value))?;
        self.cgroups.format(w)?;
        self.format_nodes(w)?;
        self.format_capacity(w)?;
        self.total.format_latencies(w)
    }

    /// Who went where, on machines whose CPUs differ in capacity.
    fn format_capacity<W: Write>(&self, w: &mut W) -> Result<()> {
        if self.wake_cases.is_empty() {
            return Ok(());
        }
        wake_cases::format(&self.wake_cases, w)?;
        let Group { misfit, misfit_ms, misfit_move, misfit_swap, .. } = self.total;
        writeln!(
            w,
            "misfits: {misfit}, for {misfit_ms} ms; moved up {misfit_move}, in place of small tasks {misfit_swap}"
        )?;
        Ok(())
    }

    /// How local it is, on machines with several nodes.
    fn format_nodes<W: Write>(&self, w: &mut W) -> Result<()> {
        if self.nodes.is_empty() {
            return Ok(());
        }
        write!(w, "at home %:")?;
        for (id, node) in &self.nodes {
            write!(w, " node {id} {:.1}", node.at_home)?;
        }
        let Group { affine, affine_far, home_wake, home_steal, home_move, home_held, .. } = &self.total;
        let Memory { samples, cost, homes, .. } = &self.memory;
        let returns = home_wake + home_steal + home_move;
        write!(w, "; pulled {affine}, from other nodes {affine_far}; returned {returns}, held back {home_held}; ")?;
        Ok(writeln!(w, "memory of {homes} processes known, {samples} looked at, {cost:.2} % of a CPU")?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bpf_intf::magpie_limits_LATENCY_BUCKETS;

    #[test]
    fn rows_line_up() {
        let group = |count| Group {
            nr_cpus: count,
            latencies: vec![count; magpie_limits_LATENCY_BUCKETS as usize],
            ..Group::default()
        };
        let metrics = Metrics { llcs: [(0, group(4)), (1, group(7))].into(), total: group(11), ..Metrics::default() };
        let mut text = Vec::new();
        metrics.format(&mut text).unwrap();
        let lens: Vec<_> = String::from_utf8(text).unwrap().lines().skip(1).map(str::len).collect();
        // Head, two LLCs, total; then the histogram, with a head of its own.
        let (table, histogram) = lens.split_at(4);
        assert!(table.windows(2).all(|pair| pair[0] == pair[1]), "{lens:?}");
        assert_eq!(histogram.len(), 1 + magpie_limits_LATENCY_BUCKETS as usize);
        assert!(histogram[1..].windows(2).all(|pair| pair[0] == pair[1]), "{lens:?}");
    }
}

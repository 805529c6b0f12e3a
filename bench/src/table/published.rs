// SPDX-License-Identifier: GPL-2.0-only
//! A table that was published, in a file of Markdown, and how rounds of another boot compare with it.

use std::collections::BTreeMap;
use std::io::Write;

use anyhow::{Context, Result, ensure};

use crate::ratio_text;
use crate::results::{BASE, Results};
use crate::rows::Kind;

/// The ranges of a table: by scheduler and row. `markdown()` has written it.
pub struct Published(BTreeMap<(String, String), (f64, f64)>);

/// "**1.17** (1.10..1.24)"; None: there is no range, or it is "(noise)".
fn range(cell: &str) -> Option<(f64, f64)> {
    let (_, range) = cell.split_once(" (")?;
    let (low, high) = range.strip_suffix(')')?.split_once("..")?;
    Some((low.parse().ok()?, high.parse().ok()?))
}

fn cells(line: &str) -> Vec<&str> {
    line.trim_matches('|').split('|').map(str::trim).collect()
}

impl Published {
    /// Find the first table with EEVDF below a heading that names the series of `kernel` (6.18 of
    /// 6.18.15-amd64), or else the first one.
    pub fn find(text: &str, kernel: Option<&str>) -> Result<Self> {
        let series = kernel.map(|kernel| kernel.splitn(3, ['.', '-']).take(2).collect::<Vec<_>>().join("."));
        let lines: Vec<&str> = text.lines().collect();
        let mut heading = "";
        let mut tables = Vec::new();
        for (at, line) in lines.iter().enumerate() {
            if line.starts_with('#') {
                heading = line;
            } else if line.starts_with("| | EEVDF |") {
                tables.push((heading, at));
            }
        }
        let named = |(heading, _): &&(&str, usize)| {
            series.as_ref().is_some_and(|series| heading.split(' ').any(|word| word == series))
        };
        let (_, start) = tables.iter().find(named).or(tables.first()).context("no table of ratios to EEVDF")?;
        let names = cells(lines[*start]);
        let mut ranges = BTreeMap::new();
        for line in lines[start + 2..].iter().take_while(|line| line.starts_with('|')) {
            let row = cells(line);
            for (name, cell) in names.iter().zip(&row).skip(2) {
                if let Some(range) = range(cell) {
                    ranges.insert((name.to_string(), row[0].to_string()), range);
                }
            }
        }
        ensure!(!ranges.is_empty(), "the table has no ranges");
        Ok(Published(ranges))
    }

    /// Print a table of the ratios of `results`, and how many of them lie in the ranges.
    pub fn compare(&self, results: &Results, to: &mut impl Write) -> Result<()> {
        let (mut nr, mut inside) = (0, 0);
        writeln!(to, "| | | ratio | range | |\n|---|---|---|---|---|")?;
        for name in results.others().filter(|name| *name != BASE) {
            for row in results.rows.iter().filter(|row| !Kind::of(row).is_plain()) {
                let range = self.0.get(&(name.clone(), row.clone()));
                let (Some(&(low, high)), Some(ratio)) = (range, results.ratio(&[row], name)) else { continue };
                // The ranges are rounded.
                let shown = ratio_text(ratio.ratio);
                let rounded: f64 = shown.parse()?;
                let outside = match rounded {
                    _ if rounded < low => format!("{:.0} % below", (1.0 - rounded / low) * 100.0),
                    _ if rounded > high => format!("{:.0} % above", (rounded / high - 1.0) * 100.0),
                    _ => String::new(),
                };
                nr += 1;
                inside += usize::from(outside.is_empty());
                let range = format!("{}..{}", ratio_text(low), ratio_text(high));
                writeln!(to, "| {row} | {name} | {shown} | {range} | {outside} |")?;
            }
        }
        writeln!(to, "\n{inside} of {nr} ratios lie in the ranges.")?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::results::OURS;
    use crate::results::tests::{results, rounds};

    const TEXT: &str = "\
# Benchmarks
| a | b |
|---|---|
## On Linux 6.18
| | EEVDF | scx_magpie | scx_x |
|---|---|---|---|
| **switches: throughput** | 1 | **2.00** (1.00..4.00) | 1.00 |
| tbench | 10.00 | **1.50** (1.40..1.60) | 1.00 |
| pairs-8 | 10.00 | 0.80 (0.70..0.90) | 1.00 (0.90..1.10) |
## On Linux 7.3
| | EEVDF | scx_magpie |
|---|---|---|
| tbench | 10.00 | 1.00 (0.90..1.10) |
";

    fn compared(kernel: Option<&str>) -> String {
        let mut lines = Vec::new();
        for (row, ours) in [("tbench", 15.0), ("pairs-8", 9.9), ("cc1", 10.0)] {
            lines.extend(rounds(row, BASE, &[10.0]));
            lines.extend(rounds(row, OURS, &[ours]));
            lines.extend(rounds(row, "scx_x", &[8.1]));
        }
        let mut text = Vec::new();
        Published::find(TEXT, kernel).unwrap().compare(&results(&lines), &mut text).unwrap();
        String::from_utf8(text).unwrap()
    }

    #[test]
    fn ratios_outside_are_said_to_be() {
        let text = compared(None);
        assert!(text.contains("| tbench | scx_magpie | 1.50 | 1.40..1.60 |  |"), "{text}");
        assert!(text.contains("| pairs-8 | scx_magpie | 0.99 | 0.70..0.90 | 10 % above |"), "{text}");
        assert!(text.contains("| pairs-8 | scx_x | 0.81 | 0.90..1.10 | 10 % below |"), "{text}");
        assert!(!text.contains("cc1") && text.ends_with("\n1 of 3 ratios lie in the ranges.\n"), "{text}");
    }

    #[test]
    fn the_kernel_selects_the_table() {
        assert!(compared(Some("7.3.0-amd64")).contains("| 1.50 | 0.90..1.10 | 36 % above |"));
        assert!(compared(Some("6.18.15+deb14-amd64")).contains("1.40..1.60"));
        assert!(compared(Some("6.1.0")).contains("1.40..1.60"));
    }

    #[test]
    fn no_table_is_an_error() {
        assert!(Published::find("| | EEVDF |\n|---|---|\n", None).is_err());
        assert!(Published::find("# Nothing", None).is_err());
    }
}

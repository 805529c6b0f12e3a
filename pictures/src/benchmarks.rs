// SPDX-License-Identifier: GPL-2.0-only
//! A table of benchmarks, drawn: throughput and latency apart, in groups; beside ours the median of the other
//! schedulers.

use std::path::Path;

use anyhow::{Context, Result, ensure};
use plotters::data::Quartiles;
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

use crate::canvas::{Area, GREY, GRID, INK, OURS, bold, font, picture};
use crate::read;

/// Of a benchmark: against EEVDF's, above 1 is better.
#[derive(Debug, PartialEq)]
struct Row {
    /// "locks: latency".
    group: String,
    name: String,
    ours: f64,
    low: f64,
    high: f64,
    /// The median of the others.
    field: Option<f64>,
}

impl Row {
    /// Without what its panel says.
    fn label(&self) -> &str {
        self.name.strip_suffix("-rps").unwrap_or(&self.name)
    }
}

/// "**1.50** (1.42..1.78)"; no interval where there is none.
fn cell(text: &str) -> Option<(f64, f64, f64)> {
    let text = text.replace('*', "");
    let (ratio, interval) = text.trim().split_once(' ').unwrap_or((text.trim(), ""));
    let ratio = ratio.parse().ok()?;
    let (low, high) = interval.trim_matches(['(', ')']).split_once("..").unwrap_or_default();
    Some((ratio, low.parse().unwrap_or(ratio), high.parse().unwrap_or(ratio)))
}

fn median(values: Vec<f64>) -> Option<f64> {
    (!values.is_empty()).then(|| Quartiles::new(&values).median())
}

/// The rows of the first table that begins with EEVDF and scx_magpie, as magpie-table writes it.
fn rows(markdown: &str) -> Result<Vec<Row>> {
    let cells = |line: &str| -> Vec<String> {
        line.trim().trim_matches('|').split('|').map(|cell| cell.trim().to_string()).collect()
    };
    let is_head = |line: &&str| cells(line).get(1..3).is_some_and(|head| head == ["EEVDF", "scx_magpie"]);
    let table = markdown.lines().skip_while(|line| !is_head(line)).take_while(|line| line.starts_with('|'));
    let mut rows = Vec::new();
    let mut group = String::new();
    for cells in table.map(cells) {
        let Some((ours, low, high)) = cells.get(2).and_then(|text| cell(text)) else { continue };
        if let Some(head) = cells[0].strip_prefix("**") {
            group = head.trim_end_matches('*').to_string();
            continue;
        }
        let others = cells.iter().skip(3).filter_map(|text| cell(text)).map(|(ratio, ..)| ratio).collect();
        rows.push(Row { group: group.clone(), name: cells[0].clone(), ours, low, high, field: median(others) });
    }
    ensure!(!rows.is_empty(), "no table of EEVDF, scx_magpie and others, as magpie-table prints it");
    Ok(rows)
}

/// What stands below each other: heads of groups, and their rows.
enum Line<'a> {
    Head(&'a str),
    Row(&'a Row),
}

/// Of the groups of one kind: throughput or latency.
fn lines<'a>(rows: &'a [Row], kind: &str) -> Vec<Line<'a>> {
    let mut lines = Vec::new();
    for group in rows.chunk_by(|row, next| row.group == next.group) {
        if let Some((head, _)) = group[0].group.split_once(": ").filter(|(_, of)| *of == kind) {
            lines.push(Line::Head(head));
            lines.extend(group.iter().map(Line::Row));
        }
    }
    lines
}

const LINE: u32 = 27;
/// Of the names; of a panel's title and of its axis.
const NAMES: i32 = 262;
const TITLE: u32 = 30;
const AXIS: u32 = 30;
const GAP: u32 = 16;

fn panel(area: &Area, title: &str, lines: &[Line], range: std::ops::Range<f64>, ticks: &[f64]) -> Result<()> {
    let rows = lines.len() as f64;
    area.draw_text(title, &bold(20.0), (6, 0))?;
    let mut chart = ChartBuilder::on(&area.margin(TITLE, GAP, NAMES, 16))
        .x_label_area_size(AXIS)
        .build_cartesian_2d(range.clone().log_scale(), 0.0..rows)?;
    let (left, top) = area.get_base_pixel();
    let below = font(18.0).pos(Pos::new(HPos::Center, VPos::Top));
    for tick in ticks {
        let style = if *tick == 1.0 { INK.stroke_width(2) } else { GRID.stroke_width(1) };
        chart.draw_series([PathElement::new([(*tick, 0.0), (*tick, rows)], style)])?;
        let (x, y) = chart.plotting_area().map_coordinate(&(*tick, 0.0));
        area.draw_text(&format!("{tick}"), &below, (x - left, y - top + 6))?;
    }
    for (nr, line) in lines.iter().enumerate() {
        let y = rows - 0.5 - nr as f64;
        let top = (TITLE + nr as u32 * LINE) as i32 + 4;
        match line {
            Line::Head(name) => area.draw_text(name, &bold(18.0), (6, top))?,
            Line::Row(row) => {
                area.draw_text(row.label(), &font(17.0), (20, top))?;
                let clamp = |ratio: f64| ratio.clamp(range.start, range.end);
                chart.draw_series([PathElement::new(
                    [(clamp(row.low), y), (clamp(row.high), y)],
                    OURS.stroke_width(3),
                )])?;
                if let Some(field) = row.field {
                    if field < range.start {
                        let (x, _) = chart.plotting_area().map_coordinate(&(range.start, y));
                        area.draw_text(
                            &format!("< {}", range.start),
                            &font(15.0).color(&GREY),
                            (x - left + 8, top + 2),
                        )?;
                    }
                    let field = clamp(field);
                    chart.draw_series([PathElement::new(
                        [(field, y - 0.32), (field, y + 0.32)],
                        GREY.stroke_width(5),
                    )])?;
                }
                chart.draw_series([Circle::new((clamp(row.ours), y), 7, OURS.filled())])?;
            }
        }
    }
    Ok(())
}

pub fn draw(table: &Path) -> Result<String> {
    let rows = rows(&read(table)?).with_context(|| format!("{}", table.display()))?;
    let (throughput, latency) = (lines(&rows, "throughput"), lines(&rows, "latency"));
    let height = |lines: &[Line]| TITLE + lines.len() as u32 * LINE + AXIS + GAP;
    let key = 40;
    let all = 52 + key + height(&throughput) + height(&latency);
    picture("Against EEVDF in emulation: further right is better", all, |area| {
        let (head, area) = area.split_vertically(key);
        head.draw(&Circle::new((14, 12), 7, OURS.filled()))?;
        head.draw_text("scx_magpie, and its range", &font(18.0), (28, 2))?;
        if rows.iter().any(|row| row.field.is_some()) {
            head.draw(&PathElement::new([(314, 4), (314, 21)], GREY.stroke_width(5)))?;
            head.draw_text("median of the others", &font(18.0), (326, 2))?;
        }
        let (above, below) = area.split_vertically(height(&throughput));
        let throughput_title = "Throughput: how many times EEVDF's";
        panel(&above, throughput_title, &throughput, 0.4..2.2, &[0.5, 0.75, 1.0, 1.5, 2.0])?;
        let latency_title = "Latency: how many times shorter than EEVDF's";
        panel(&below, latency_title, &latency, 0.04..20.0, &[0.05, 0.2, 1.0, 5.0, 20.0])?;
        Ok(())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_is_read() {
        let markdown = "text\n| | EEVDF | scx_magpie | a | b | c |\n|---|---|---|---|---|---|\n\
            | **programs: throughput** | 1 | 1.5 | 1.0 | - | 2.0 |\n\
            | cc1 | 2.5 | **1.50** (1.40..1.60) | 1.00 (1.00..1.20) | - | 2.00 |\n| x | 1 | - | 1.0 | 2.0 | 3.0 |\n\
            | **wakeups: latency** | 1 | 0.9 | 1.0 | 9.0 | 2.0 |\n\
            | wakeup-p99 | 9 | 0.90 | 1.0 | 9.0 | 2.0 |\n\n| other |\n";
        let row = |group: &str, name: &str, ours, low, high, field| {
            let (group, name) = (group.to_string(), name.to_string());
            Row { group, name, ours, low, high, field: Some(field) }
        };
        let read = rows(markdown).unwrap();
        let wakeup = row("wakeups: latency", "wakeup-p99", 0.9, 0.9, 0.9, 2.0);
        assert_eq!(read, [row("programs: throughput", "cc1", 1.5, 1.4, 1.6, 1.5), wakeup]);
        let latency = lines(&read, "latency");
        assert!(matches!(latency[..], [Line::Head("wakeups"), Line::Row(Row { ours: 0.9, .. })]));
        assert!(rows("| a | b |\n").is_err());
    }
}

// SPDX-License-Identifier: GPL-2.0-only
//! A table of benchmarks, drawn: throughput and latency apart, in groups; alongside ours the median of the other
//! schedulers.

use std::path::Path;

use anyhow::{Context, Result, ensure};
use plotters::data::Quartiles;
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

use crate::canvas::{Area, GREY, GRID, INK, OURS, bold, font, picture};
use crate::read;

/// A line of a panel: the head of a group, or a benchmark.
#[derive(Debug, PartialEq)]
struct Line {
    name: String,
    ratios: Option<Ratios>,
}

/// Of a benchmark: against EEVDF's, above 1 is better.
#[derive(Debug, PartialEq)]
struct Ratios {
    ours: f64,
    low: f64,
    high: f64,
    /// The median of the other schedulers.
    field: Option<f64>,
}

/// "**1.50** (1.42..1.78)"; "1.50 (noise)" may be anywhere; no interval where there is none.
fn cell(text: &str) -> Option<(f64, f64, f64)> {
    let text = text.replace('*', "");
    let (ratio, interval) = text.trim().split_once(' ').unwrap_or((text.trim(), ""));
    let ratio = ratio.parse().ok()?;
    if interval == "(noise)" {
        return Some((ratio, 0.0, f64::INFINITY));
    }
    let (low, high) = interval.trim_matches(['(', ')']).split_once("..").unwrap_or_default();
    Some((ratio, low.parse().unwrap_or(ratio), high.parse().unwrap_or(ratio)))
}

/// The lines of one kind, throughput or latency, in the first table that begins with EEVDF and scx_magpie, as magpie-table
/// writes it.
fn lines(markdown: &str, kind: &str) -> Result<Vec<Line>> {
    let cells = |line: &str| -> Vec<String> {
        line.trim().trim_matches('|').split('|').map(|cell| cell.trim().to_string()).collect()
    };
    let is_head = |line: &&str| cells(line).get(1..3).is_some_and(|head| head == ["EEVDF", "scx_magpie"]);
    let table = markdown.lines().skip_while(|line| !is_head(line)).take_while(|line| line.starts_with('|'));
    let (mut lines, mut head, mut is_of_kind) = (Vec::new(), None, false);
    for cells in table.map(cells) {
        if let Some((name, of)) = cells[0].strip_prefix("**").and_then(|head| head.split_once(": ")) {
            is_of_kind = of.trim_end_matches('*') == kind;
            head = Some(Line { name: name.into(), ratios: None });
        } else if let Some((ours, low, high)) = cells.get(2).and_then(|text| cell(text)).filter(|_| is_of_kind) {
            lines.extend(head.take());
            let others: Vec<_> = cells.iter().skip(3).filter_map(|text| cell(text)).map(|(ratio, ..)| ratio).collect();
            let field = (!others.is_empty()).then(|| Quartiles::new(&others).median());
            let name = cells[0].strip_suffix("-rps").unwrap_or(&cells[0]).into();
            lines.push(Line { name, ratios: Some(Ratios { ours, low, high, field }) });
        }
    }
    ensure!(!lines.is_empty(), "no table with {kind} of EEVDF, scx_magpie and others, as magpie-table prints it");
    Ok(lines)
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
        let Some(ratios) = &line.ratios else {
            area.draw_text(&line.name, &bold(18.0), (6, top))?;
            continue;
        };
        area.draw_text(&line.name, &font(17.0), (20, top))?;
        let clamp = |ratio: f64| ratio.clamp(range.start, range.end);
        let interval = [(clamp(ratios.low), y), (clamp(ratios.high), y)];
        chart.draw_series([PathElement::new(interval, OURS.stroke_width(3))])?;
        if let Some(field) = ratios.field {
            let mark = [(clamp(field), y - 0.32), (clamp(field), y + 0.32)];
            chart.draw_series([PathElement::new(mark, GREY.stroke_width(5))])?;
            if field < range.start {
                let (x, _) = chart.plotting_area().map_coordinate(&(range.start, y));
                let style = font(15.0).color(&GREY);
                area.draw_text(&format!("< {}", range.start), &style, (x - left + 8, top + 2))?;
            }
        }
        chart.draw_series([Circle::new((clamp(ratios.ours), y), 7, OURS.filled())])?;
    }
    Ok(())
}

/// Draw the first table of the file, or the first one below that heading.
pub fn draw(table: &Path, heading: &str, title: &str) -> Result<String> {
    let markdown = read(table)?;
    let start = markdown.find(heading).with_context(|| format!("no {heading} in {}", table.display()))?;
    let lines = |kind| lines(&markdown[start..], kind).with_context(|| format!("{}", table.display()));
    let (throughput, latency) = (lines("throughput")?, lines("latency")?);
    let height = |lines: &[Line]| TITLE + lines.len() as u32 * LINE + AXIS + GAP;
    let key = 40;
    let all = 52 + key + height(&throughput) + height(&latency);
    let has_field =
        throughput.iter().chain(&latency).flat_map(|line| &line.ratios).any(|ratios| ratios.field.is_some());
    picture(&format!("{title}: further right is better"), all, |area| {
        let (head, area) = area.split_vertically(key);
        head.draw(&Circle::new((14, 12), 7, OURS.filled()))?;
        head.draw_text("scx_magpie, and its range", &font(18.0), (28, 2))?;
        if has_field {
            head.draw(&PathElement::new([(314, 4), (314, 21)], GREY.stroke_width(5)))?;
            head.draw_text("median of the others", &font(18.0), (326, 2))?;
        }
        let (above, below) = area.split_vertically(height(&throughput));
        let throughput_title = "Throughput: how many times EEVDF's";
        panel(&above, throughput_title, &throughput, 0.4..4.0, &[0.5, 0.75, 1.0, 1.5, 2.0, 3.0])?;
        let latency_title = "Latency: how many times shorter than EEVDF's";
        panel(&below, latency_title, &latency, 0.04..60.0, &[0.05, 0.2, 1.0, 5.0, 20.0])?;
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
        let line = |name: &str, ratios| Line { name: name.into(), ratios };
        let cc1 = Ratios { ours: 1.5, low: 1.4, high: 1.6, field: Some(1.5) };
        assert_eq!(lines(markdown, "throughput").unwrap(), [line("programs", None), line("cc1", Some(cc1))]);
        let wakeup = Ratios { ours: 0.9, low: 0.9, high: 0.9, field: Some(2.0) };
        assert_eq!(lines(markdown, "latency").unwrap(), [line("wakeups", None), line("wakeup-p99", Some(wakeup))]);
        assert!(lines("| a | b |\n", "latency").is_err());
    }
}

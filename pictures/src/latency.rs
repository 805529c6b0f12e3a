// SPDX-License-Identifier: GPL-2.0-only
//! How long searches for an idle CPU took, with and without their bound.

use anyhow::{Context, Result};
use plotters::prelude::*;
use serde::Deserialize;

use crate::canvas::{EEVDF, GREY, GRID, OURS, WIDTH, font, picture};
use crate::recorded;

/// Figures of `--monitor SEC --json`.
#[derive(Deserialize)]
struct Search {
    flags: String,
    /// Item i took 2^i .. 2^(i+1) ns.
    latencies: Vec<u64>,
}

impl Search {
    fn is_bounded(&self) -> bool {
        !self.flags.contains("--no-scan-limit")
    }

    /// In percent of all.
    fn shares(&self) -> Vec<f64> {
        let all: u64 = self.latencies.iter().sum();
        self.latencies.iter().map(|&count| 100.0 * count as f64 / all.max(1) as f64).collect()
    }
}

fn time(ns: u64) -> String {
    if ns < 1024 {
        format!("{ns} ns")
    } else if ns < 1 << 20 {
        format!("{} us", ns >> 10)
    } else {
        format!("{} ms", ns >> 20)
    }
}

pub fn draw() -> Result<String> {
    let searches: Vec<Search> = recorded("search.jsonl")?;
    let of = |bounded| searches.iter().find(|search| search.is_bounded() == bounded).context("search.jsonl: lacks one");
    let sides = [(of(true)?, OURS, "bounded by nr_scan"), (of(false)?, EEVDF, "without a bound")];
    // What is rarer than one in a thousand is too small to be seen.
    let seen: Vec<usize> = sides
        .iter()
        .flat_map(|(search, ..)| {
            search
                .shares()
                .into_iter()
                .enumerate()
                .filter(|(_, share)| *share >= 0.1)
                .map(|(bucket, _)| bucket)
                .collect::<Vec<_>>()
        })
        .collect();
    let first = *seen.iter().min().context("search.jsonl: no search")?;
    let last = *seen.iter().max().context("search.jsonl: no search")?;
    let most = sides.iter().flat_map(|(search, ..)| search.shares()).fold(0.0, f64::max);
    picture("Time of a search for an idle CPU: 64 CPUs, full load", WIDTH * 2 / 3, |area| {
        let mut chart = ChartBuilder::on(area)
            .x_label_area_size(60)
            .y_label_area_size(70)
            .margin_right(16)
            .margin_top(8)
            .build_cartesian_2d(first as f64..last as f64 + 1.0, 0.0..most * 1.4)?;
        chart
            .configure_mesh()
            .disable_x_mesh()
            .bold_line_style(GRID)
            .light_line_style(TRANSPARENT)
            .axis_style(GREY)
            .label_style(font(19.0))
            .x_desc("search time, an instruction a nanosecond")
            .y_desc("% of searches")
            .x_labels(last - first + 2)
            .x_label_formatter(&|bucket| time(1 << *bucket as u64))
            .y_labels(6)
            .y_label_formatter(&|share| format!("{share:.0}"))
            .draw()?;
        for (side, (search, color, name)) in sides.iter().enumerate() {
            let left = 0.1 + 0.4 * side as f64;
            let bars =
                search.shares().into_iter().enumerate().skip(first).take(last - first + 1).map(|(bucket, share)| {
                    let x = bucket as f64 + left;
                    Rectangle::new([(x, 0.0), (x + 0.4, share)], color.filled())
                });
            chart
                .draw_series(bars)?
                .label(*name)
                .legend(|(x, y)| Rectangle::new([(x, y - 7), (x + 16, y + 7)], color.filled()));
        }
        chart.configure_series_labels().position(SeriesLabelPosition::UpperRight).label_font(font(19.0)).draw()?;
        Ok(())
    })
}

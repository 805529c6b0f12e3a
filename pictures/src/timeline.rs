// SPDX-License-Identifier: GPL-2.0-only
//! Which CPU runs what while many threads are woken at once: EEVDF, and scx_magpie below it.

use anyhow::{Context, Result};
use plotters::prelude::*;
use serde::Deserialize;

use crate::canvas::{Area, EEVDF, GREY, GRID, INK, OURS, PAPER, WIDTH, bold, font, picture};
use crate::recorded;

/// A worker ran on a CPU.
#[derive(Deserialize)]
struct Run {
    scheduler: String,
    cpu: u32,
    from_us: f64,
    to_us: f64,
    worker: String,
}

/// A line for each CPU; a box for each time that a worker runs.
fn panel(area: &Area, name: &str, runs: &[&Run], color: RGBColor, end: f64, nr_cpus: u32) -> Result<()> {
    let done = runs.iter().map(|run| run.to_us).fold(0.0, f64::max);
    let used: f64 = runs.iter().map(|run| run.to_us - run.from_us).sum();
    let workers = runs.iter().map(|run| &run.worker).collect::<std::collections::BTreeSet<_>>().len();
    let busy = 100.0 * used / (done * f64::from(nr_cpus));
    area.draw_text(
        &format!("{name}: {workers} threads done after {:.1} ms, CPUs busy for {busy:.0} %", done / 1000.0),
        &bold(19.0),
        (6, 0),
    )?;
    let mut chart = ChartBuilder::on(&area.margin(30, 10, 0, 0))
        .x_label_area_size(54)
        .y_label_area_size(64)
        .margin_right(16)
        .build_cartesian_2d(0.0..end / 1000.0, 0.0..f64::from(nr_cpus))?;
    chart
        .configure_mesh()
        .disable_y_mesh()
        .bold_line_style(GRID)
        .light_line_style(TRANSPARENT)
        .axis_style(GREY)
        .label_style(font(19.0))
        .x_desc("ms since the first wakeup")
        .y_desc("CPU")
        .y_labels(0)
        .x_label_formatter(&|ms| format!("{ms:.1}"))
        .draw()?;
    chart.draw_series((0..nr_cpus).map(|cpu| {
        let y = f64::from(nr_cpus - cpu) - 0.5;
        EmptyElement::at((0.0, y)) + Text::new(format!("{cpu}"), (-22, -10), font(18.0))
    }))?;
    for run in runs {
        let y = f64::from(nr_cpus - run.cpu);
        let box_of = [(run.from_us / 1000.0, y - 0.1), (run.to_us / 1000.0, y - 0.9)];
        chart.draw_series([Rectangle::new(box_of, color.filled()), Rectangle::new(box_of, PAPER.stroke_width(1))])?;
    }
    chart.draw_series([PathElement::new(
        [(done / 1000.0, 0.0), (done / 1000.0, f64::from(nr_cpus))],
        INK.stroke_width(2),
    )])?;
    Ok(())
}

pub fn draw() -> Result<String> {
    let runs: Vec<Run> = recorded("burst.jsonl")?;
    let end = runs.iter().map(|run| run.to_us).fold(0.0, f64::max) * 1.02;
    let nr_cpus = runs.iter().map(|run| run.cpu + 1).max().context("burst.jsonl is empty")?;
    picture("A burst of wakeups: which CPUs work", WIDTH, |area| {
        let sides = [("EEVDF", "eevdf", EEVDF), ("scx_magpie", "scx_magpie", OURS)];
        for (part, (name, scheduler, color)) in area.split_evenly((2, 1)).iter().zip(sides) {
            let of: Vec<&Run> = runs.iter().filter(|run| run.scheduler == scheduler).collect();
            panel(part, name, &of, color, end, nr_cpus)?;
        }
        Ok(())
    })
}

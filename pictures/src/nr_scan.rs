// SPDX-License-Identifier: GPL-2.0-only
//! How many CPUs a wakeup searches, by utilization: ours, and the points of its author's tables.

use anyhow::Result;
use plotters::element::DashedPathElement;
use plotters::prelude::*;
use scx_magpie::nr_scan::ScanLimit;

use crate::canvas::{Area, EEVDF, OURS, WIDTH, axes, bold, chart, draw_key, picture};

/// Chen Yu's tables, in the message of Linux commit 70fb5ccf2e: utilization in percent, and CPUs for LLCs of these sizes.
const UTILS: [u32; 11] = [0, 5, 15, 25, 35, 45, 55, 65, 75, 85, 86];
const TABLES: [(u32, [u32; 11]); 2] =
    [(112, [112, 111, 108, 102, 93, 81, 65, 47, 25, 1, 0]), (16, [16, 15, 15, 14, 13, 11, 9, 6, 3, 0, 0])];

fn at(util: u32, nr_cpus: u32, small_llc_boost: bool) -> u32 {
    let limit = ScanLimit { unlimited: false, imbalance_pct: 117, small_llc_boost };
    limit.nr_scan(util * 1024 / 100 * nr_cpus, nr_cpus * 1024, nr_cpus)
}

fn panel(area: &Area, nr_cpus: u32, points: &[u32; 11]) -> Result<()> {
    let (head, area) = area.split_vertically(26);
    head.draw_text(&format!("LLC of {nr_cpus} CPUs"), &bold(19.0), (6, 0))?;
    let mut chart = chart(&area, 0.0..100.0, 0.0..f64::from(nr_cpus))?;
    axes(&mut chart, "utilization of the LLC, %", "CPUs searched").disable_x_mesh().x_labels(11).y_labels(5).draw()?;
    let line = |boost| (0..=100).map(move |util| (f64::from(util), f64::from(at(util, nr_cpus, boost))));
    chart
        .draw_series(LineSeries::new(line(true), OURS.stroke_width(3)))?
        .label("nr_scan")
        .legend(|(x, y)| PathElement::new([(x, y), (x + 20, y)], OURS.stroke_width(3)));
    if !line(true).eq(line(false)) {
        chart
            .draw_series(DashedLineSeries::new(line(false), 8, 6, OURS.stroke_width(3)))?
            .label("with --small-llc-boost off")
            .legend(|(x, y)| DashedPathElement::new([(x, y), (x + 21, y)], 8, 5, OURS.stroke_width(3)));
    }
    chart
        .draw_series(
            UTILS
                .iter()
                .zip(points)
                .map(|(&util, &nr)| Circle::new((f64::from(util), f64::from(nr)), 6, EEVDF.stroke_width(3))),
        )?
        .label("Chen Yu's table")
        .legend(|(x, y)| Circle::new((x + 10, y), 6, EEVDF.stroke_width(3)));
    draw_key(&mut chart, SeriesLabelPosition::LowerLeft)
}

pub fn draw() -> Result<String> {
    picture("How many CPUs a wakeup searches", WIDTH, |area| {
        for (part, (nr_cpus, points)) in area.split_evenly((2, 1)).iter().zip(&TABLES) {
            panel(part, *nr_cpus, points)?;
        }
        Ok(())
    })
}

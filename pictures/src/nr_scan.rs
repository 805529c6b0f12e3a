// SPDX-License-Identifier: GPL-2.0-only
//! How many CPUs a wakeup searches, by utilization: ours, and the points of its author's tables.

use anyhow::Result;
use plotters::prelude::*;
use scx_magpie::nr_scan::ScanLimit;

use crate::canvas::{Area, EEVDF, GREY, GRID, OURS, WIDTH, font, picture};

/// Chen Yu's tables, in the message of Linux commit 70fb5ccf2e: utilization in percent, and CPUs for LLCs of these sizes.
const UTILS: [u32; 11] = [0, 5, 15, 25, 35, 45, 55, 65, 75, 85, 86];
const TABLES: [(u32, [u32; 11]); 2] =
    [(112, [112, 111, 108, 102, 93, 81, 65, 47, 25, 1, 0]), (16, [16, 15, 15, 14, 13, 11, 9, 6, 3, 0, 0])];

fn at(util: u32, nr_cpus: u32, small_llc_boost: bool) -> u32 {
    let limit = ScanLimit { unlimited: false, imbalance_pct: 117, small_llc_boost };
    limit.nr_scan(util * 1024 / 100 * nr_cpus, nr_cpus * 1024, nr_cpus)
}

fn panel(area: &Area, nr_cpus: u32, points: &[u32; 11]) -> Result<()> {
    let mut chart = ChartBuilder::on(area)
        .caption(format!("LLC of {nr_cpus} CPUs"), font(20.0))
        .x_label_area_size(56)
        .y_label_area_size(64)
        .margin_right(16)
        .margin_top(6)
        .build_cartesian_2d(0..100u32, 0..nr_cpus)?;
    chart
        .configure_mesh()
        .disable_x_mesh()
        .bold_line_style(GRID)
        .light_line_style(TRANSPARENT)
        .axis_style(GREY)
        .label_style(font(19.0))
        .x_desc("utilization of the LLC, %")
        .y_desc("CPUs searched")
        .x_labels(11)
        .y_labels(5)
        .draw()?;
    let line = |boost| (0..=100).map(move |util| (util, at(util, nr_cpus, boost)));
    chart
        .draw_series(LineSeries::new(line(true), OURS.stroke_width(3)))?
        .label("nr_scan")
        .legend(|(x, y)| PathElement::new([(x, y), (x + 20, y)], OURS.stroke_width(3)));
    if !line(true).eq(line(false)) {
        chart
            .draw_series(DashedLineSeries::new(line(false), 8, 6, OURS.stroke_width(3)))?
            .label("with --small-llc-boost off")
            .legend(|(x, y)| {
                // Two dashes.
                EmptyElement::at((x, y))
                    + PathElement::new([(0, 0), (8, 0)], OURS.stroke_width(3))
                    + PathElement::new([(13, 0), (21, 0)], OURS.stroke_width(3))
            });
    }
    chart
        .draw_series(UTILS.iter().zip(points).map(|(&util, &nr)| Circle::new((util, nr), 6, EEVDF.stroke_width(3))))?
        .label("Chen Yu's table")
        .legend(|(x, y)| Circle::new((x + 10, y), 6, EEVDF.stroke_width(3)));
    chart
        .configure_series_labels()
        .position(SeriesLabelPosition::LowerLeft)
        .label_font(font(19.0))
        .legend_area_size(26)
        .draw()?;
    Ok(())
}

pub fn draw() -> Result<String> {
    picture("How many CPUs a wakeup searches", WIDTH, |area| {
        for (part, (nr_cpus, points)) in area.split_evenly((2, 1)).iter().zip(&TABLES) {
            panel(part, *nr_cpus, points)?;
        }
        Ok(())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_line_goes_through_the_authors_points() {
        for (nr_cpus, points) in TABLES {
            let ours = UTILS.map(|util| at(util, nr_cpus, false));
            assert_eq!(ours, points);
        }
    }
}

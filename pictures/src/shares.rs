// SPDX-License-Identifier: GPL-2.0-only
//! What two cgroups of busy tasks get of the CPUs, by `cpu.weight`, second by second.

use anyhow::Result;
use plotters::prelude::*;
use serde::Deserialize;

use crate::canvas::{EEVDF, GREY, OURS, WIDTH, axes, chart, draw_key, font, picture};
use crate::recorded;

/// CPU time that the groups have used until then.
#[derive(Deserialize)]
struct Usage {
    scheduler: String,
    seconds: f64,
    light_us: u64,
    heavy_us: u64,
}

/// By time since the first sample, the heavier group's share in percent since the sample before.
fn shares(samples: &[&Usage]) -> Vec<(f64, f64)> {
    let share = |pair: &[&Usage]| {
        let (light, heavy) = (pair[1].light_us - pair[0].light_us, pair[1].heavy_us - pair[0].heavy_us);
        (pair[1].seconds - samples[0].seconds, 100.0 * heavy as f64 / (light + heavy).max(1) as f64)
    };
    samples.windows(2).map(share).collect()
}

pub fn draw() -> Result<String> {
    let usages: Vec<Usage> = recorded("shares.jsonl")?;
    let of = |name: &str| shares(&usages.iter().filter(|usage| usage.scheduler == name).collect::<Vec<_>>());
    let lines = [("EEVDF", of("eevdf"), EEVDF), ("scx_magpie", of("scx_magpie"), OURS)];
    let end = lines.iter().flat_map(|(_, line, _)| line.last()).map(|point| point.0).fold(0.0, f64::max);
    picture("CPU time of two cgroups, cpu.weight 300 and 100", WIDTH * 2 / 3, |area| {
        let mut chart = chart(area, 0.0..end, 0.0..100.0)?;
        axes(&mut chart, "seconds", "% of the CPUs").disable_x_mesh().y_labels(5).draw()?;
        for due in [75.0, 25.0] {
            chart.draw_series(DashedLineSeries::new([(0.0, due), (end, due)], 8, 6, GREY.stroke_width(2)))?;
        }
        for (name, line, color) in lines {
            let light = line.iter().map(|(x, share)| (*x, 100.0 - share)).collect::<Vec<_>>();
            chart
                .draw_series(LineSeries::new(line, color.stroke_width(4)))?
                .label(name)
                .legend(move |(x, y)| PathElement::new([(x, y), (x + 20, y)], color.stroke_width(4)));
            chart.draw_series(LineSeries::new(light, color.stroke_width(4)))?;
        }
        for (y, text) in [(86.0, "weight 300"), (12.0, "weight 100")] {
            chart.draw_series([Text::new(text, (end * 0.02, y), font(19.0))])?;
        }
        draw_key(&mut chart, SeriesLabelPosition::MiddleMiddle)
    })
}

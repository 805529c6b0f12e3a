// SPDX-License-Identifier: GPL-2.0-only
//! What all pictures share: size, fonts, and colors for light and dark. A phone shows them at half their width, so that letters
//! of 20 pixels are read as 10.

use std::ops::Range;

use anyhow::Result;
use plotters::chart::MeshStyle;
use plotters::coord::Shift;
use plotters::coord::types::RangedCoordf64;
use plotters::prelude::*;
use plotters::style::FontStyle;

pub const WIDTH: u32 = 720;

pub const PAPER: RGBColor = RGBColor(0xff, 0xff, 0xff);
pub const INK: RGBColor = RGBColor(0x1f, 0x23, 0x28);
/// Of what is there to compare, and of axes.
pub const GREY: RGBColor = RGBColor(0x6e, 0x77, 0x81);
pub const GRID: RGBColor = RGBColor(0xd0, 0xd7, 0xde);
/// scx_magpie.
pub const OURS: RGBColor = RGBColor(0x09, 0x69, 0xda);
pub const EEVDF: RGBColor = RGBColor(0xbc, 0x4c, 0x00);

/// Each color, and what it is in the dark.
const COLORS: [(RGBColor, &str); 6] =
    [(PAPER, "#0d1117"), (INK, "#e6edf3"), (GREY, "#8b949e"), (GRID, "#30363d"), (OURS, "#58a6ff"), (EEVDF, "#f0883e")];

pub type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;

/// Letters of so many pixels. Plotters takes the size of their box.
pub fn font(pixels: f64) -> TextStyle<'static> {
    ("sans-serif", pixels * 1.24).into_font().color(&INK)
}

pub fn bold(pixels: f64) -> TextStyle<'static> {
    ("sans-serif", pixels * 1.24, FontStyle::Bold).into_font().color(&INK)
}

pub type Chart<'a> = ChartContext<'a, SVGBackend<'a>, Cartesian2d<RangedCoordf64, RangedCoordf64>>;
pub type Axes<'a, 'c> = MeshStyle<'a, 'c, RangedCoordf64, RangedCoordf64, SVGBackend<'a>>;

pub fn chart<'a>(area: &Area<'a>, x: Range<f64>, y: Range<f64>) -> Result<Chart<'a>> {
    let mut chart = ChartBuilder::on(area);
    chart.x_label_area_size(58).y_label_area_size(68).margin_right(16).margin_top(8);
    Ok(chart.build_cartesian_2d(x, y)?)
}

/// The axes of a chart, to be drawn: grey, with whole numbers.
pub fn axes<'a, 'c>(chart: &'c mut Chart<'a>, x: &str, y: &str) -> Axes<'a, 'c> {
    let mut axes = chart.configure_mesh();
    axes.bold_line_style(GRID).light_line_style(TRANSPARENT).axis_style(GREY).label_style(font(19.0));
    axes.x_desc(x).y_desc(y).x_label_formatter(&|x| format!("{x:.0}")).y_label_formatter(&|y| format!("{y:.0}"));
    axes
}

/// Draw what the lines of a chart are.
pub fn draw_key(chart: &mut Chart, at: SeriesLabelPosition) -> Result<()> {
    chart.configure_series_labels().position(at).label_font(font(19.0)).legend_area_size(26).draw()?;
    Ok(())
}

/// The picture that `draw` makes below its title, as text.
pub fn picture(title: &str, height: u32, draw: impl FnOnce(&Area) -> Result<()>) -> Result<String> {
    let mut svg = String::new();
    {
        let root = SVGBackend::with_string(&mut svg, (WIDTH, height)).into_drawing_area();
        root.fill(&PAPER)?;
        root.draw_text(title, &bold(23.0), (14, 12))?;
        draw(&root.margin(44, 8, 8, 14))?;
        root.present()?;
    }
    // CSS is stronger than the attributes that plotters writes.
    let dark: String = (COLORS.iter())
        .map(|(RGBColor(r, g, b), dark)| {
            let light = format!("#{r:02X}{g:02X}{b:02X}");
            format!("[fill=\"{light}\"]{{fill:{dark}}}[stroke=\"{light}\"]{{stroke:{dark}}}\n")
        })
        .collect();
    let head = format!("<title>{title}</title>\n<style>@media (prefers-color-scheme: dark) {{\n{dark}}}</style>\n");
    let end = svg.find(">\n").map_or(0, |at| at + 2);
    svg.insert_str(end, &head);
    Ok(signed(&svg))
}

/// As a file of ours.
pub fn signed(svg: &str) -> String {
    format!("<!-- SPDX-License-Identifier: GPL-2.0-only -->\n{}\n", svg.trim_end())
}

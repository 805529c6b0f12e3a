// SPDX-License-Identifier: GPL-2.0-only
//! `scx_magpie top` as it was on a terminal: its cells, as SVG.

use anyhow::Result;
use ratatui::buffer::{Buffer, Cell};
use ratatui::style::{Color, Modifier};
use scx_magpie::top::still;

use crate::canvas::{WIDTH, signed};
use crate::recorded;

const COLUMNS: u16 = 80;
const LINES: u16 = 24;

/// Of a cell.
const CELL_WIDTH: f64 = WIDTH as f64 / (COLUMNS + 2) as f64;
const CELL_HEIGHT: f64 = 2.0 * CELL_WIDTH;

/// Colors of a terminal, light and dark, by class.
const COLORS: [(Color, &str, &str, &str); 9] = [
    (Color::Reset, "ink", "#1f2328", "#e6edf3"),
    (Color::DarkGray, "label", "#6e7781", "#8b949e"),
    (Color::Cyan, "cyan", "#0b7285", "#39c5cf"),
    (Color::Green, "green", "#1a7f37", "#3fb950"),
    (Color::Blue, "blue", "#0969da", "#58a6ff"),
    (Color::Yellow, "yellow", "#9a6700", "#d29922"),
    (Color::Magenta, "magenta", "#8250df", "#bc8cff"),
    (Color::White, "white", "#b0b8c1", "#e6edf3"),
    (Color::Red, "red", "#cf222e", "#ff7b72"),
];

fn class(cell: &Cell) -> &'static str {
    COLORS.iter().find(|(color, ..)| *color == cell.fg).map_or("ink", |(_, class, ..)| class)
}

fn style() -> String {
    let rules = |dark: bool| -> String {
        let paper = if dark { "#0d1117" } else { "#f6f8fa" };
        let colors = COLORS
            .iter()
            .map(|(_, class, light, of_dark)| format!(".{class}{{fill:{}}}", if dark { of_dark } else { light }));
        format!(".paper{{fill:{paper}}}{}", colors.collect::<String>())
    };
    format!(
        "<style>text{{font:{:.1}px monospace}}.bold{{font-weight:bold}}{}\n\
         @media (prefers-color-scheme: dark){{{}}}</style>\n",
        CELL_WIDTH / 0.6,
        rules(false),
        rules(true)
    )
}

/// How much of a cell's height a block character fills, and how dense it is.
fn block(symbol: &str) -> Option<(f64, f64)> {
    match symbol.chars().next()? {
        '█' => Some((1.0, 1.0)),
        '░' => Some((1.0, 0.2)),
        eighths @ '▁'..='▇' => Some((f64::from(eighths as u32 - '▁' as u32 + 1) / 8.0, 1.0)),
        _ => None,
    }
}

/// Cells of a line that look alike, from column `x` on.
fn run(svg: &mut String, x: u16, y: u16, cells: &[Cell]) {
    let cell = &cells[0];
    let (left, width) = (f64::from(x + 1) * CELL_WIDTH, cells.len() as f64 * CELL_WIDTH);
    let (top, mut class) = ((f64::from(y) + 0.5) * CELL_HEIGHT, class(cell));
    let mut rect = |share: f64, opacity: f64| {
        let (top, height) = (top + CELL_HEIGHT * (1.0 - share), CELL_HEIGHT * share);
        *svg += &format!(
            "<rect class=\"{class}\" x=\"{left:.1}\" y=\"{top:.1}\" width=\"{width:.1}\" height=\"{height:.1}\" \
             opacity=\"{opacity}\"/>\n"
        );
    };
    if let Some((share, opacity)) = block(cell.symbol()) {
        return rect(share, opacity);
    }
    if cell.modifier.contains(Modifier::REVERSED) {
        rect(1.0, 1.0);
        class = "paper";
    }
    if cell.symbol() != " " {
        let bold = if cell.modifier.contains(Modifier::BOLD) { " bold" } else { "" };
        let text = cells.iter().map(Cell::symbol).collect::<String>().replace('&', "&amp;").replace('<', "&lt;");
        // Letters keep their columns in whatever font there is.
        *svg += &format!(
            "<text class=\"{class}{bold}\" x=\"{left:.1}\" y=\"{:.1}\" textLength=\"{width:.1}\" \
             lengthAdjust=\"spacingAndGlyphs\">{text}</text>\n",
            top + CELL_HEIGHT * 0.75
        );
    }
}

fn svg(buffer: &Buffer) -> String {
    let height = (f64::from(LINES) + 1.0) * CELL_HEIGHT;
    let mut svg = format!(
        "<svg width=\"{WIDTH}\" height=\"{height:.0}\" viewBox=\"0 0 {WIDTH} {height:.0}\" xmlns=\"http://www.w3.org/2000/svg\">\n\
         <title>scx_magpie top</title>\n{}<rect class=\"paper\" width=\"100%\" height=\"100%\" rx=\"8\"/>\n",
        style()
    );
    for y in 0..LINES {
        let cells: Vec<Cell> = (0..COLUMNS).map(|x| buffer[(x, y)].clone()).collect();
        let mut x = 0;
        for cells in cells.chunk_by(|a, b| looks(a) == looks(b)) {
            run(&mut svg, x, y, cells);
            x += cells.len() as u16;
        }
    }
    svg + "</svg>"
}

/// What may be drawn in one go: a word of a style, or the same block again. Not all that show SVG keep spaces.
fn looks(cell: &Cell) -> (Color, Modifier, Option<&str>) {
    let symbol = cell.symbol();
    (cell.fg, cell.modifier, (symbol == " " || block(symbol).is_some()).then_some(symbol))
}

pub fn draw() -> Result<String> {
    Ok(signed(&svg(&still(recorded("top.jsonl")?, COLUMNS, LINES)?)))
}

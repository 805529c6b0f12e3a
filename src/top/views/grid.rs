// SPDX-License-Identifier: GPL-2.0-only
//! A table of figures: a row per LLC, node or cgroup, and as many columns as fit.

use ratatui::Frame;
use ratatui::layout::{Constraint, Rect};
use ratatui::style::{Modifier, Style};
use ratatui::text::Line;
use ratatui::widgets::{Cell, Row as Cells, Scrollbar, ScrollbarOrientation, ScrollbarState, Table};
use serde::Serialize;

use super::bars;
use crate::stats::column::{Column, Figures, Unit};
use crate::top::theme::Theme;
use crate::top::view::{Cursor, Figure, Seen, cut};

/// Minimum width of a column of figures.
const WIDTH: usize = 6;

/// Width of the gauge for nr_scan, including its number.
const GAUGE_WIDTH: usize = 11;

/// Minimum width of names that are cut.
const NAME_WIDTH: usize = 16;

pub struct Row {
    name: String,
    figures: Figures,
}

impl Row {
    pub fn new(name: String, of: &impl Serialize, interval_ms: u64) -> Self {
        Self { name, figures: Figures::new(of, interval_ms) }
    }
}

pub struct Grid {
    /// Head of the names.
    pub name: &'static str,
    pub columns: &'static [Figure],
    pub rows: Vec<Row>,
    /// The last row, in any order.
    pub total: Option<Row>,
}

impl Grid {
    /// Return the number of lines of the entire table.
    pub fn height(&self) -> usize {
        1 + self.rows.len() + usize::from(self.total.is_some())
    }

    /// Draw the table. Rows that do not fit are scrolled.
    pub fn draw(mut self, frame: &mut Frame<'_>, area: Rect, seen: &mut Seen<'_>) {
        let mut cursor = *seen.cursor;
        // The last column is for the scrollbar.
        let width = usize::from(area.width.saturating_sub(1));
        let name_width = self.name_width(width);
        let columns = self.fitting(width.saturating_sub(name_width), cursor);
        cursor.column = cursor.column.min(columns.len().saturating_sub(1));
        if let Some((column, descending)) = cursor.sorted {
            self.sort(&self.columns[column].column, descending);
        }
        let room = usize::from(area.height).saturating_sub(self.height() - self.rows.len());
        cursor.top = cursor.top.min(self.rows.len().saturating_sub(room));
        *seen.cursor = cursor;

        let theme = seen.theme;
        let shown = self.rows.iter().skip(cursor.top).take(room);
        let rows = shown.map(|row| cells(row, &columns, name_width, theme));
        let total = self.total.iter().map(|row| cells(row, &columns, name_width, theme).style(Modifier::BOLD));
        let widths = [name_width].into_iter().chain(columns.iter().map(|(_, width)| *width));
        let widths = widths.map(|width| Constraint::Length(width as u16));
        let table = Table::new(rows.chain(total), widths).header(self.head(&columns, cursor, theme));
        frame.render_widget(table, area);
        if self.rows.len() > room {
            draw_scrollbar(frame, area, cursor.top, self.rows.len() - room, theme);
        }
    }

    /// Return the width of the names: the longest, unless the figures need the room.
    fn name_width(&self, width: usize) -> usize {
        let longest =
            self.rows.iter().map(|row| row.name.chars().count()).chain([self.name.len(), 5]).max().unwrap_or(0);
        let figures: usize = self.columns.iter().map(|figure| width_of(&figure.column) + 1).sum();
        longest.min(width.saturating_sub(figures + 1).max(NAME_WIDTH))
    }

    /// Return the columns that fit, with their widths.
    fn fitting(&self, mut room: usize, cursor: Cursor) -> Vec<(&'static Column, usize)> {
        let mut columns = Vec::new();
        for (index, figure) in self.columns.iter().enumerate() {
            let mark = usize::from(cursor.sorted.is_some_and(|(sorted, _)| sorted == index));
            let width = width_of(&figure.column) + mark;
            if room < width + 1 {
                break;
            }
            room -= width + 1;
            columns.push((&figure.column, width));
        }
        columns
    }

    fn sort(&mut self, column: &Column, descending: bool) {
        self.rows.sort_by(|a, b| {
            let order = column.value(&a.figures).total_cmp(&column.value(&b.figures));
            if descending { order.reverse() } else { order }
        });
    }

    fn head(&self, columns: &[(&Column, usize)], cursor: Cursor, theme: &Theme) -> Cells<'static> {
        let heads = columns.iter().enumerate().map(|(index, (column, _))| {
            let mark = match cursor.sorted {
                Some((sorted, descending)) if sorted == index => theme.sorted(descending),
                _ => "",
            };
            let style = if index == cursor.column { theme.chosen() } else { Style::new() };
            Cell::from(Line::from(format!("{}{mark}", column.head)).right_aligned()).style(style)
        });
        Cells::new([Cell::from(self.name)].into_iter().chain(heads)).style(theme.title())
    }
}

/// Draw a scrollbar at the right edge of the rows.
fn draw_scrollbar(frame: &mut Frame<'_>, area: Rect, top: usize, last_top: usize, theme: &Theme) {
    let (thumb, track) = theme.gauge();
    let scrollbar = Scrollbar::new(ScrollbarOrientation::VerticalRight)
        .thumb_symbol(thumb)
        .track_symbol(Some(track))
        .begin_symbol(None)
        .end_symbol(None)
        .style(theme.label());
    let bar = Rect { y: area.y + 1, height: area.height.saturating_sub(1), ..area };
    frame.render_stateful_widget(scrollbar, bar, &mut ScrollbarState::new(last_top + 1).position(top));
}

fn width_of(column: &Column) -> usize {
    if column.field == "nr_scan" { GAUGE_WIDTH } else { column.head.len().max(WIDTH) }
}

fn cells(row: &Row, columns: &[(&Column, usize)], name_width: usize, theme: &Theme) -> Cells<'static> {
    let name = Cell::from(cut(Line::from(row.name.clone()), name_width, theme.ellipsis()));
    let figures = columns.iter().map(|(column, width)| match &*column.field {
        "nr_scan" => Cell::from(scan_gauge(&row.figures, *width, theme)).style(theme.bar()),
        // `max`, as in the file cpu.max.
        "quota_pct" if column.value(&row.figures) == 0.0 => Cell::from(Line::from("max").right_aligned()),
        _ => Cell::from(Line::from(column.text(&row.figures)).right_aligned()),
    });
    Cells::new([name].into_iter().chain(figures))
}

/// Return a gauge of the CPUs that a search may scan.
fn scan_gauge(figures: &Figures, width: usize, theme: &Theme) -> String {
    const SCAN: Column = Column::new("", "nr_scan", Unit::Now);
    const CPUS: Column = Column::new("", "nr_cpus", Unit::Now);
    let (scan, cpus) = (SCAN.value(figures), CPUS.value(figures));
    let text = format!(" {scan}/{cpus}");
    bars::gauge(scan / cpus.max(1.0), width.saturating_sub(text.len()), theme) + &text
}

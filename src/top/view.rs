// SPDX-License-Identifier: GPL-2.0-only
//! A view: its title, its figures, and the function that draws it. views/ has all views.

use ratatui::Frame;
use ratatui::layout::Rect;
use ratatui::text::{Line, Span};

use super::history::History;
use super::theme::Theme;
use crate::stats::Metrics;
use crate::stats::column::{Column, Unit};

pub struct View {
    pub title: &'static str,
    /// Figures that the view shows; in a table, the columns.
    pub figures: &'static [Figure],
    /// True if the view is a table, in which a column can be chosen.
    pub has_columns: bool,
    /// Return true if the view applies to the machine.
    pub applies: fn(&Metrics) -> bool,
    pub draw: fn(&mut Frame<'_>, Rect, &mut Seen<'_>),
}

/// Data for a view.
pub struct Seen<'a> {
    pub metrics: &'a Metrics,
    pub history: &'a History,
    pub theme: &'a Theme,
    /// Limited to the existing rows and columns when the view is drawn.
    pub cursor: &'a mut Cursor,
}

/// A figure of a view, and the struct of the statistics that contains it.
pub struct Figure {
    pub of: &'static str,
    pub column: Column,
}

pub const fn figure(of: &'static str, head: &'static str, field: &'static str, unit: Unit) -> Figure {
    Figure { of, column: Column::new(head, field, unit) }
}

/// The user's choices in a table.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Cursor {
    pub column: usize,
    /// Number of rows that are scrolled off the top.
    pub top: usize,
    /// Column by which rows are sorted; true: largest first.
    pub sorted: Option<(usize, bool)>,
}

impl Cursor {
    /// Sort by the chosen column. If rows are sorted by it already, reverse the order.
    pub fn sort(&mut self) {
        let descending = self.sorted.is_none_or(|(column, descending)| column != self.column || !descending);
        self.sorted = Some((self.column, descending));
    }
}

/// Cut a line to `width`, and mark the cut.
pub fn cut<'a>(line: Line<'a>, width: usize, ellipsis: &'static str) -> Line<'a> {
    if line.width() <= width {
        return line;
    }
    let mut left = width.saturating_sub(1);
    let mut spans = Vec::new();
    for span in line.spans {
        let text: String = span.content.chars().take(left).collect();
        left -= text.chars().count();
        spans.push(Span::styled(text, span.style));
    }
    spans.push(Span::raw(ellipsis));
    Line::from(spans)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sorting_turns_round_on_the_same_column() {
        let mut cursor = Cursor::default();
        cursor.sort();
        assert_eq!(cursor.sorted, Some((0, true)));
        cursor.sort();
        assert_eq!(cursor.sorted, Some((0, false)));
        cursor.column = 2;
        cursor.sort();
        assert_eq!(cursor.sorted, Some((2, true)));
    }

    #[test]
    fn what_is_too_long_is_cut_visibly() {
        let line = || Line::from(vec![Span::raw("abc"), Span::raw("def")]);
        assert_eq!(cut(line(), 6, "~").to_string(), "abcdef");
        assert_eq!(cut(line(), 5, "~").to_string(), "abcd~");
    }
}

// SPDX-License-Identifier: GPL-2.0-only
//! What a view is: its title, its figures, and how it is drawn of what there is to see. views/ has all.

use ratatui::Frame;
use ratatui::layout::Rect;
use ratatui::text::{Line, Span};

use super::history::History;
use super::theme::Theme;
use crate::stats::Metrics;
use crate::stats::column::{Column, Unit};

pub struct View {
    pub title: &'static str,
    /// What it shows; of a table, its columns.
    pub figures: &'static [Figure],
    /// Is it a table, one of whose columns is chosen?
    pub has_columns: bool,
    /// Is there anything of it on the machine?
    pub applies: fn(&Metrics) -> bool,
    pub draw: fn(&mut Frame<'_>, Rect, &mut Seen<'_>),
}

/// What there is to see.
pub struct Seen<'a> {
    pub metrics: &'a Metrics,
    pub history: &'a History,
    pub theme: &'a Theme,
    /// Kept within what there is to choose from, which is known when it is drawn.
    pub cursor: &'a mut Cursor,
}

/// A figure that a view shows, and the struct of the statistics that has it.
pub struct Figure {
    pub of: &'static str,
    pub column: Column,
}

pub const fn figure(of: &'static str, head: &'static str, field: &'static str, unit: Unit) -> Figure {
    Figure { of, column: Column::new(head, field, unit) }
}

/// What the user has chosen of a table.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Cursor {
    pub column: usize,
    /// Rows that are scrolled away.
    pub top: usize,
    /// By which column rows are sorted, largest first or last.
    pub sorted: Option<(usize, bool)>,
}

impl Cursor {
    /// By the column that is chosen; the other way round if they are already.
    pub fn sort(&mut self) {
        let descending = self.sorted.is_none_or(|(column, descending)| column != self.column || !descending);
        self.sorted = Some((self.column, descending));
    }
}

/// Cut to `width`, and that is seen.
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

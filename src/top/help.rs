// SPDX-License-Identifier: GPL-2.0-only
//! `?`: the meaning of a view's figures, by the text of `--help-stats`, and the keys.

use ratatui::style::Modifier;
use ratatui::text::{Line, Span};
use scx_stats::prelude::*;

use super::keys::KEYS;
use super::theme::Theme;
use super::view::{Figure, View};
use crate::stats::wake_cases::WakeCase;
use crate::stats::{Group, Memory, Metrics, Node, cgroups};

/// Width of the column of names.
const NAME_WIDTH: usize = 14;

/// Return the text of `--help-stats` for a figure; empty if there is none.
pub fn meaning(of: &str, field: &str) -> String {
    let metas = [
        Metrics::meta(),
        Group::meta(),
        Node::meta(),
        Memory::meta(),
        cgroups::Cgroups::meta(),
        cgroups::Cgroup::meta(),
        WakeCase::meta(),
    ];
    let meta = metas.into_iter().find(|meta| meta.name == of);
    meta.and_then(|mut meta| meta.fields.remove(field)?.attrs.desc).unwrap_or_default()
}

/// Return the help of a view. The chosen figure comes first.
pub fn lines(view: &View, column: usize, theme: &Theme, width: usize) -> Vec<Line<'static>> {
    let figures = view.figures;
    let mut lines = vec![Line::styled(format!("{}: what its figures mean", view.title), theme.title())];
    let chosen = view.has_columns.then_some(column);
    if let Some(figure) = chosen.and_then(|column| figures.get(column)) {
        lines.extend(entry(figure.column.head.to_string(), &explained(figure), theme, width, true));
        lines.push(Line::default());
    }
    for (_, figure) in figures.iter().enumerate().filter(|(index, _)| Some(*index) != chosen) {
        lines.extend(entry(figure.column.head.to_string(), &explained(figure), theme, width, false));
    }
    lines.push(Line::default());
    lines.push(Line::styled(
        "Events are by the second. --help-stats says what each field of JSON means.",
        theme.label(),
    ));
    lines.push(Line::default());
    lines.push(Line::styled("Keys", theme.title()));
    for (key, what) in KEYS {
        lines.extend(entry(key.into(), what, theme, width, false));
    }
    lines
}

/// Return the meaning of a figure, with its name in JSON if that differs from the head.
fn explained(figure: &Figure) -> String {
    let meaning = meaning(figure.of, &figure.column.field);
    let (head, field) = (figure.column.head.trim_end_matches('%'), &figure.column.field);
    if head == *field { meaning } else { format!("{meaning} ({field})") }
}

/// Return a name with its meaning next to it, on as many lines as needed.
fn entry(name: String, text: &str, theme: &Theme, width: usize, chosen: bool) -> Vec<Line<'static>> {
    let style = if chosen { theme.chosen() } else { theme.bar() };
    let mut lines = Vec::new();
    let mut rest = Line::from(vec![
        Span::styled(name.clone(), style.add_modifier(Modifier::BOLD)),
        Span::raw(" ".repeat((NAME_WIDTH + 1).saturating_sub(name.chars().count()))),
    ]);
    for word in text.split(' ') {
        if rest.width() + word.chars().count() >= width {
            lines.push(std::mem::replace(&mut rest, Line::from(" ".repeat(NAME_WIDTH + 1))));
        }
        rest.push_span(format!("{word} "));
    }
    lines.push(rest);
    lines
}

#[cfg(test)]
mod tests {
    use super::super::views::VIEWS;
    use super::*;

    #[test]
    fn each_figure_of_each_view_is_explained() {
        for view in VIEWS {
            for figure in view.figures {
                let field = &figure.column.field;
                assert!(!meaning(figure.of, field).is_empty(), "{}: {} {field}", view.title, figure.of);
            }
        }
    }
}

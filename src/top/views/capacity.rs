// SPDX-License-Identifier: GPL-2.0-only
//! Placement of big and small tasks on machines whose CPUs differ in capacity.

use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::text::{Line, Text};

use super::grid::{Grid, Row};
use crate::stats::Group;
use crate::stats::column::Unit::PerSecond;
use crate::stats::column::{number, seconds};
use crate::stats::wake_cases::WakeCase;
use crate::top::view::{Figure, Seen, View, figure};

pub static VIEW: View = View {
    title: "Capacity",
    figures: &FIGURES,
    has_columns: true,
    applies: |metrics| !metrics.wake_cases.is_empty(),
    draw,
};

static FIGURES: [Figure; 6] = [
    figure("WakeCase", "l.fast", "little_fast", PerSecond),
    figure("WakeCase", "l.scan", "little_scan", PerSecond),
    figure("WakeCase", "l.queue", "little_fallback", PerSecond),
    figure("WakeCase", "b.fast", "big_fast", PerSecond),
    figure("WakeCase", "b.scan", "big_scan", PerSecond),
    figure("WakeCase", "b.queue", "big_fallback", PerSecond),
];

fn draw(frame: &mut Frame<'_>, area: Rect, seen: &mut Seen<'_>) {
    let metrics = seen.metrics;
    let rows = metrics.wake_cases.iter();
    let rows = rows.map(|(number, case)| Row::new(name(*number, case), case, metrics.interval_ms)).collect();
    let grid = Grid { name: "case  task   prev   waker", columns: &FIGURES, rows, total: None };
    let [title, above, below] =
        Layout::vertical([Constraint::Length(1), Constraint::Length(grid.height() as u16), Constraint::Fill(1)])
            .areas(area);
    frame.render_widget(Line::from("By size of task, previous and waking CPU: to little (l.) or big (b.) CPUs"), title);
    grid.draw(frame, above, seen);

    let Group { misfit, misfit_ms, misfit_move, misfit_swap, .. } = &metrics.total;
    let rate = |count: &u64| number(*count as f64 / seconds(metrics.interval_ms));
    let notes = [
        String::new(),
        format!(
            "misfits: {} a second; they ran for {} ms a second where they do not fit",
            rate(misfit),
            rate(misfit_ms)
        ),
        format!(
            "moved to a stronger CPU: {} a second; {} of them in place of a small task",
            rate(misfit_move),
            rate(misfit_swap)
        ),
    ];
    frame.render_widget(Text::from_iter(notes.into_iter().map(Line::from)), below);
}

fn name(number: usize, case: &WakeCase) -> String {
    let sizes = case.case.chars().map(|size| if size == 'b' { "big   " } else { "little" });
    let mut words = vec![format!("{number:<4}")];
    words.extend(sizes.map(str::to_owned));
    words.join(" ")
}

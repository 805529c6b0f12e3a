// SPDX-License-Identifier: GPL-2.0-only
//! The busiest cgroups.

use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::text::{Line, Text};

use super::grid::{Grid, Row};
use crate::stats::cgroups::Cgroups;
use crate::stats::column::Unit::{Now, PerSecond, Percent};
use crate::stats::column::{number, seconds};
use crate::top::theme::Theme;
use crate::top::view::{Figure, Seen, View, figure};

pub static VIEW: View = View {
    title: "Cgroups",
    figures: &FIGURES,
    has_columns: true,
    applies: |metrics| metrics.cgroups.nr_groups > 0,
    draw,
};

static FIGURES: [Figure; 6] = [
    figure("Cgroup", "cpu%", "cpu_pct", Percent),
    figure("Cgroup", "weight", "weight", Now),
    figure("Cgroup", "quota%", "quota_pct", Percent),
    figure("Cgroup", "periods", "nr_periods", PerSecond),
    figure("Cgroup", "throttled", "nr_throttled", PerSecond),
    figure("Cgroup", "thr_ms", "throttled_ms", PerSecond),
];

fn draw(frame: &mut Frame<'_>, area: Rect, seen: &mut Seen<'_>) {
    let metrics = seen.metrics;
    let summary = summary(&metrics.cgroups, metrics.interval_ms, seen.theme);
    let [above, below] = Layout::vertical([Constraint::Length(summary.len() as u16), Constraint::Fill(1)]).areas(area);
    frame.render_widget(Text::from(summary), above);
    let mut top: Vec<_> = metrics.cgroups.top.iter().collect();
    top.sort_by(|a, b| b.1.cpu_pct.total_cmp(&a.1.cpu_pct));
    let rows = top.into_iter().map(|(path, cgroup)| Row::new(path.clone(), cgroup, metrics.interval_ms)).collect();
    Grid { name: "cgroup", columns: &FIGURES, rows, total: None }.draw(frame, below, seen);
}

/// Return the figures of all cgroups together.
fn summary(cgroups: &Cgroups, interval_ms: u64, theme: &Theme) -> Vec<Line<'static>> {
    let Cgroups { nr_groups, nr_lost, max_level, nr_periods, nr_throttled, throttled_ms, top } = cgroups;
    let rate = |count: &u64| number(*count as f64 / seconds(interval_ms));
    let mut lines = vec![
        Line::from(format!(
            "{nr_groups} cgroups, deepest at level {max_level}; the {} busiest, without those below",
            top.len()
        )),
        Line::from(format!(
            "throttled in {} of {} periods of cpu.max a second, for {} ms",
            rate(nr_throttled),
            rate(nr_periods),
            rate(throttled_ms)
        )),
    ];
    if *nr_lost > 0 {
        let text = format!("{nr_lost} cgroups exceed --max-cgroups: their weights and limits are ignored");
        lines.push(Line::styled(text, theme.warning()));
    }
    lines.push(Line::default());
    lines
}

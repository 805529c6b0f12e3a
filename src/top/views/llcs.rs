// SPDX-License-Identifier: GPL-2.0-only
//! A row for each LLC; and a matrix of stolen tasks, if the LLCs are few.

use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::text::{Line, Span, Text};

use super::grid::{Grid, Row};
use crate::stats::column::Unit::{Now, PerSecond, Percent};
use crate::stats::column::{number, seconds};
use crate::stats::{Group, Metrics};
use crate::top::theme::Theme;
use crate::top::view::{Figure, Seen, View, figure};

pub static VIEW: View = View { title: "LLCs", figures: &FIGURES, has_columns: true, applies: |_| true, draw };

static FIGURES: [Figure; 19] = [
    figure("Group", "util%", "util", Percent),
    figure("Group", "nr_scan", "nr_scan", Now),
    figure("Group", "search", "search", PerSecond),
    figure("Group", "se_eff%", "se_eff", Percent),
    figure("Group", "domeff%", "dom_eff", Percent),
    figure("Group", "fast%", "fast_rate", Percent),
    figure("Group", "found%", "success_rate", Percent),
    figure("Group", "stolen", "stolen", PerSecond),
    figure("Group", "waiting", "nr_queued", Now),
    figure("Group", "busy%", "busy", Percent),
    figure("Group", "preempt", "preempt", PerSecond),
    figure("Group", "longest", "max_queued", Now),
    figure("Group", "st_llc", "steal_llc", PerSecond),
    figure("Group", "st_node", "steal_node", PerSecond),
    figure("Group", "st_far", "steal_far", PerSecond),
    figure("Group", "balance", "balance", PerSecond),
    figure("Group", "queued", "queued", PerSecond),
    figure("Group", "own", "own", PerSecond),
    figure("Group", "cpus", "nr_cpus", Now),
];

fn draw(frame: &mut Frame<'_>, area: Rect, seen: &mut Seen<'_>) {
    let metrics = seen.metrics;
    let row = |name: String, group: &Group| Row::new(name, group, metrics.interval_ms);
    let grid = Grid {
        name: "LLC",
        columns: &FIGURES,
        rows: metrics.llcs.iter().map(|(id, llc)| row(id.to_string(), llc)).collect(),
        total: (metrics.llcs.len() > 1).then(|| row("total".into(), &metrics.total)),
    };
    let matrix = matrix(metrics, seen.theme);
    let Some(left) = usize::from(area.height).checked_sub(grid.height() + matrix.len()) else {
        return grid.draw(frame, area, seen);
    };
    let [above, below] = Layout::vertical([Constraint::Length(grid.height() as u16), Constraint::Fill(1)])
        .spacing(left.min(1) as u16)
        .areas(area);
    grid.draw(frame, above, seen);
    frame.render_widget(Text::from(matrix), below);
}

/// Return tasks stolen per second: a line per thief, a column per victim; empty for many LLCs.
fn matrix(metrics: &Metrics, theme: &Theme) -> Vec<Line<'static>> {
    let nr_llcs = metrics.llcs.len();
    if nr_llcs < 2 || metrics.llcs.values().any(|llc| llc.stolen_from.len() < nr_llcs) {
        return Vec::new();
    }
    let heads: String = metrics.llcs.keys().map(|id| format!("{:>8}", format!("LLC {id}"))).collect();
    let mut lines = vec![Line::styled(format!("{:14}{heads}", "stolen from"), theme.title())];
    for (id, llc) in &metrics.llcs {
        let name = Span::raw(format!("{:14}", format!("by LLC {id}")));
        let cells = metrics.llcs.keys().map(|from| {
            let count = if from == id { llc.steal_llc } else { llc.stolen_from[*from] };
            let text = format!("{:>8}", number(count as f64 / seconds(metrics.interval_ms)));
            if count == 0 { Span::styled(text, theme.label()) } else { Span::raw(text) }
        });
        lines.push([name].into_iter().chain(cells).collect());
    }
    lines
}

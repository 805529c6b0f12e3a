// SPDX-License-Identifier: GPL-2.0-only
//! Locality of tasks on machines with several nodes.

use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::text::{Line, Text};

use super::grid::{Grid, Row};
use crate::stats::column::Unit::{Now, PerSecond, Percent};
use crate::stats::column::{number, seconds};
use crate::stats::{Group, Memory};
use crate::top::view::{Figure, Seen, View, figure};

pub static VIEW: View =
    View { title: "NUMA", figures: &FIGURES, has_columns: true, applies: |metrics| !metrics.nodes.is_empty(), draw };

static FIGURES: [Figure; 8] = [
    figure("Node", "pref%", "on_preferred", Percent),
    figure("Node", "util%", "util", Percent),
    figure("Node", "cpus", "nr_cpus", Now),
    figure("Node", "waiting", "nr_queued", Now),
    figure("Node", "returned", "preferred_back", PerSecond),
    figure("Node", "held", "preferred_held", PerSecond),
    figure("Node", "pulled", "affine_far", PerSecond),
    figure("Node", "stolen", "steal_far", PerSecond),
];

/// Number of lines below the table.
const NOTES: u16 = 5;

fn draw(frame: &mut Frame<'_>, area: Rect, seen: &mut Seen<'_>) {
    let metrics = seen.metrics;
    let rows = metrics.nodes.iter().map(|(id, node)| Row::new(id.to_string(), node, metrics.interval_ms)).collect();
    let grid = Grid { name: "node", columns: &FIGURES, rows, total: None };
    let height = grid.height().min(usize::from(area.height.saturating_sub(NOTES))) as u16;
    let [above, below] = Layout::vertical([Constraint::Length(height), Constraint::Fill(1)]).areas(area);
    grid.draw(frame, above, seen);

    let Group { affine, affine_far, preferred_wake, preferred_steal, preferred_move, .. } = &metrics.total;
    let Memory { samples, cost, longest_us, known, .. } = &metrics.memory;
    let rate = |count: &u64| number(*count as f64 / seconds(metrics.interval_ms));
    let notes = [
        String::new(),
        format!(
            "returned to preferred node: {} on wakeup, {} stolen, {} running; per second",
            rate(preferred_wake),
            rate(preferred_steal),
            rate(preferred_move)
        ),
        format!("moved by wake-affine: {}, from other nodes: {}; per second", rate(affine), rate(affine_far)),
        format!("memory known of {known} processes; {} sampled per second, {cost:.2} % of a CPU", rate(samples)),
        format!("longest sampling of memory without a pause: {longest_us} us"),
    ];
    frame.render_widget(Text::from_iter(notes.into_iter().map(Line::from)), below);
}

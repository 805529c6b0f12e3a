// SPDX-License-Identifier: GPL-2.0-only
//! The machine at a glance: main figures over five minutes, placements of wakeups and tasks.

use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::text::{Line, Span, Text};
use ratatui::widgets::{RenderDirection, Sparkline};

use super::{bars, latency};
use crate::stats::column::Unit::{Now, PerSecond, Percent};
use crate::stats::column::{number, percent, seconds};
use crate::stats::{Group, Metrics};
use crate::top::history::Trend;
use crate::top::theme::Theme;
use crate::top::view::{Figure, Seen, View, figure};

pub static VIEW: View = View { title: "Overview", figures: &FIGURES, has_columns: false, applies: |_| true, draw };

static FIGURES: [Figure; 20] = [
    figure("Group", "util%", "util", Percent),
    figure("Group", "busy%", "busy", Percent),
    figure("Group", "searches", "search", PerSecond),
    figure("Group", "found%", "success_rate", Percent),
    figure("Group", "waiting", "nr_queued", Now),
    figure("Group", "stolen", "stolen", PerSecond),
    figure("Group", "target", "target", PerSecond),
    figure("Group", "prev", "prev", PerSecond),
    figure("Group", "recent", "recent", PerSecond),
    figure("Group", "scan", "scan", PerSecond),
    figure("Group", "beyond", "beyond", PerSecond),
    figure("Group", "hand-off", "handoff", PerSecond),
    figure("Group", "failed", "failed", PerSecond),
    figure("Group", "LLC", "steal_llc", PerSecond),
    figure("Group", "node", "steal_node", PerSecond),
    figure("Group", "other nodes", "steal_far", PerSecond),
    figure("Group", "balanced", "balance", PerSecond),
    figure("Group", "search time", "latencies", PerSecond),
    figure("Cgroups", "throttled", "throttled_ms", PerSecond),
    figure("Metrics", "flags", "flags", Now),
];

const TRENDS: [(Trend, &str); 6] = [
    (Trend::Util, "util %"),
    (Trend::Busy, "busy %"),
    (Trend::Wakeups, "wakeups/s"),
    (Trend::Found, "found %"),
    (Trend::Waiting, "waiting"),
    (Trend::Stolen, "stolen/s"),
];

/// Number of lines below the trends.
const NOTES: u16 = 7;

/// Width of a trend's name and figure.
const LABEL_WIDTH: u16 = 20;

fn draw(frame: &mut Frame<'_>, area: Rect, seen: &mut Seen<'_>) {
    let metrics = seen.metrics;
    let height = (area.height.saturating_sub(NOTES) / TRENDS.len() as u16).clamp(1, 6);
    let trends = height * TRENDS.len() as u16;
    let [above, below] = Layout::vertical([Constraint::Length(trends), Constraint::Fill(1)]).areas(area);
    let rows = Layout::vertical([Constraint::Length(height); TRENDS.len()]).split(above);
    for ((trend, name), row) in TRENDS.into_iter().zip(rows.iter()) {
        draw_trend(frame, *row, seen, trend, name);
    }
    let notes = notes(metrics, seen, below.width.into());
    frame.render_widget(Text::from(notes), below);
}

/// Draw the last value of a trend and its sparkline over five minutes.
fn draw_trend(frame: &mut Frame<'_>, area: Rect, seen: &Seen<'_>, trend: Trend, name: &str) {
    let [label, line] =
        Layout::horizontal([Constraint::Length(LABEL_WIDTH), Constraint::Fill(1)]).spacing(1).areas(area);
    let is_share = matches!(trend, Trend::Util | Trend::Busy | Trend::Found);
    let text = |value: f64| if is_share { percent(value) } else { number(value) };
    let parts = seen.history.parts(trend, line.width.into());
    let (last, highest) = (seen.history.last(trend), seen.history.highest(trend));
    let labels = vec![
        Line::from(vec![
            Span::raw(format!("{name:10}")),
            Span::styled(format!("{:>10}", text(last)), seen.theme.title()),
        ]),
        Line::styled(format!("{:>20}", format!("max {}", text(highest))), seen.theme.label()),
    ];
    frame.render_widget(Text::from(labels), label);
    // Sparklines take integers.
    let scaled = |value: f64| (value * 1000.0) as u64;
    let sparkline = Sparkline::default()
        .data(parts.into_iter().map(|part| part.map(scaled)))
        .max(scaled(if is_share { 100.0 } else { highest.max(1.0) }))
        .direction(RenderDirection::RightToLeft)
        .absent_value_symbol(" ")
        .bar_set(seen.theme.bars())
        .style(seen.theme.bar());
    frame.render_widget(sparkline, line);
}

/// Return the time axis below the sparklines.
fn axis(width: usize, theme: &Theme) -> Line<'static> {
    let indent = usize::from(LABEL_WIDTH) + 1;
    let (ago, now) = ("5 minutes ago", "now");
    let between = width.saturating_sub(indent + ago.len());
    Line::styled(format!("{:indent$}{ago}{now:>between$}", ""), theme.label())
}

fn notes(metrics: &Metrics, seen: &Seen<'_>, width: usize) -> Vec<Line<'static>> {
    let theme = seen.theme;
    let rate = |count: u64| number(count as f64 / seconds(metrics.interval_ms));
    let total = &metrics.total;
    let Group { steal_llc, steal_node, steal_far, balance, .. } = *total;
    let mut lines = vec![
        axis(width, theme),
        Line::styled("Where wakeups were placed, %", theme.title()),
        bars::stacked(total, width, theme),
        bars::legend(total, theme),
    ];
    let mut note = |name: &str, text: String| {
        lines.push(Line::from(vec![Span::styled(format!("{name:14}"), theme.label()), Span::raw(text)]));
    };
    let percentile = |percent| latency::percentile(&total.latencies, percent).map(latency::duration);
    let search_time = match (percentile(50), percentile(99)) {
        (Some(p50), Some(p99)) => format!("half within {p50}, 99 % within {p99}"),
        _ => "not counted: needs --latency-hist".into(),
    };
    note("search time", search_time);
    let mut stolen = format!("LLC {}/s", rate(steal_llc));
    if metrics.llcs.len() > 1 {
        stolen += &format!(", node {}/s", rate(steal_node));
    }
    if metrics.nodes.len() > 1 {
        stolen += &format!(", other nodes {}/s", rate(steal_far));
    }
    note("stolen", format!("{stolen}; balanced {}/s", rate(balance)));
    if metrics.cgroups.nr_periods > 0 {
        note("throttled", format!("cgroups for {} ms a second", rate(metrics.cgroups.throttled_ms)));
    }
    lines
}

// SPDX-License-Identifier: GPL-2.0-only
//! Placements of wakeups, and durations of searches for an idle CPU.

use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::text::{Line, Span, Text};

use super::bars::{self, PLACES, Part};
use super::latency;
use crate::stats::column::Unit::PerSecond;
use crate::stats::column::{number, percent, seconds};
use crate::stats::{Group, Metrics};
use crate::top::theme::Theme;
use crate::top::view::{Figure, Seen, View, figure};

pub static VIEW: View = View { title: "Wakeups", figures: &FIGURES, has_columns: false, applies: |_| true, draw };

static FIGURES: [Figure; 12] = [
    figure("Group", "target", "target", PerSecond),
    figure("Group", "prev", "prev", PerSecond),
    figure("Group", "recent", "recent", PerSecond),
    figure("Group", "scan", "scan", PerSecond),
    figure("Group", "beyond", "beyond", PerSecond),
    figure("Group", "hand-off", "handoff", PerSecond),
    figure("Group", "failed", "failed", PerSecond),
    figure("Group", "preempt", "preempt", PerSecond),
    figure("Group", "pulled", "affine", PerSecond),
    figure("Group", "local", "local", PerSecond),
    figure("Group", "kthread", "kthread", PerSecond),
    figure("Group", "latencies", "latencies", PerSecond),
];

/// Counts of wakeups other than placements.
const OTHERS: [Part; 4] = [
    Part { name: "preempt", count: |group| group.preempt },
    Part { name: "pulled", count: |group| group.affine },
    Part { name: "local", count: |group| group.local },
    Part { name: "kthread", count: |group| group.kthread },
];

/// Number of lines other than the histogram and the LLCs.
const OTHER_LINES: usize = 6;

/// Width of the table of placements.
const PLACES_WIDTH: u16 = 42;

fn draw(frame: &mut Frame<'_>, area: Rect, seen: &mut Seen<'_>) {
    let metrics = seen.metrics;
    let theme = seen.theme;
    let rate = |count: u64| number(count as f64 / seconds(metrics.interval_ms));
    let nr_llcs = if metrics.llcs.len() > 1 { metrics.llcs.len() } else { 0 };
    let buckets = latency::buckets(&metrics.total.latencies);
    // The histogram gets the remaining lines.
    let left = usize::from(area.height).saturating_sub(nr_llcs + OTHER_LINES).max(PLACES.len() + 1);
    let [title, bar, _, middle, _, others, _, llcs] = Layout::vertical([
        Constraint::Length(1),
        Constraint::Length(1),
        Constraint::Length(1),
        Constraint::Length((buckets.len() + 1).clamp(PLACES.len() + 1, left) as u16),
        Constraint::Length(1),
        Constraint::Length(1),
        Constraint::Length(1),
        Constraint::Fill(1),
    ])
    .areas(area);
    let all = rate(bars::wakeups(&metrics.total));
    frame.render_widget(
        Line::styled(format!("{all} wakeups a second, by where they were placed"), theme.title()),
        title,
    );
    frame.render_widget(bars::stacked(&metrics.total, bar.width.into(), theme), bar);

    let [left, right] =
        Layout::horizontal([Constraint::Length(PLACES_WIDTH), Constraint::Fill(1)]).spacing(2).areas(middle);
    frame.render_widget(Text::from(places(&metrics.total, rate, theme)), left);
    frame.render_widget(Text::from(histogram(buckets, right, theme)), right);
    frame.render_widget(other_counts(&metrics.total, rate, theme), others);
    if metrics.llcs.len() > 1 {
        frame.render_widget(Text::from(by_llc(metrics, rate, llcs.width.into(), theme)), llcs);
    }
}

/// Return a line for each placement.
fn places(total: &Group, rate: impl Fn(u64) -> String, theme: &Theme) -> Vec<Line<'static>> {
    let all = bars::wakeups(total).max(1) as f64;
    let of_place = |(index, Part { name, count }): (usize, &Part)| {
        let (style, glyph) = theme.part(index);
        let share = 100.0 * count(total) as f64 / all;
        Line::from(vec![
            Span::styled(format!("{glyph} "), style),
            Span::raw(format!("{name:9}{:>8}", rate(count(total)))),
            Span::raw(format!("{:>7} %  ", percent(share))),
            Span::styled(glyph.repeat((share * 12.0 / 100.0).round() as usize), style),
        ])
    };
    let title = Line::styled(format!("{:11}{:>8}{:>9}", "Place", "wakeups", "share"), theme.title());
    [title].into_iter().chain(PLACES.iter().enumerate().map(of_place)).collect()
}

/// Return the counts of [`OTHERS`].
fn other_counts(total: &Group, rate: impl Fn(u64) -> String, theme: &Theme) -> Line<'static> {
    let parts = OTHERS.iter().flat_map(|Part { name, count }| {
        [Span::styled(format!("{name} "), theme.label()), Span::raw(format!("{}   ", rate(count(total))))]
    });
    parts.collect()
}

/// Return the histogram of search durations.
fn histogram(mut buckets: Vec<(u64, u64)>, area: Rect, theme: &Theme) -> Vec<Line<'static>> {
    if buckets.is_empty() {
        return vec![
            Line::styled("Search time", theme.title()),
            Line::styled("not counted: needs --latency-hist", theme.label()),
        ];
    }
    let mut lines = vec![Line::styled("Search time", theme.title())];
    let room = usize::from(area.height).saturating_sub(1);
    let width = usize::from(area.width).saturating_sub(22);
    let all: u64 = buckets.iter().map(|(_, count)| *count).sum();
    merge_fastest(&mut buckets, room);
    let most = buckets.iter().map(|(_, count)| *count).max().unwrap_or(1).max(1);
    for (end, count) in buckets {
        lines.push(Line::from(vec![
            Span::styled(format!("< {:>8} ", latency::duration(end)), theme.label()),
            Span::raw(format!("{:>7} % ", percent(100.0 * count as f64 / all as f64))),
            Span::styled(bars::bar(count as f64 / most as f64, width, theme), theme.bar()),
        ]));
    }
    lines
}

/// Merge the fastest buckets until `room` are left, because slow searches matter more.
fn merge_fastest(buckets: &mut Vec<(u64, u64)>, room: usize) {
    let merged = buckets.len().saturating_sub(room.max(1));
    let count: u64 = buckets.drain(..merged).map(|(_, count)| count).sum();
    if let Some(first) = buckets.first_mut() {
        first.1 += count;
    }
}

fn by_llc(metrics: &Metrics, rate: impl Fn(u64) -> String, width: usize, theme: &Theme) -> Vec<Line<'static>> {
    let line = |(id, llc): (&usize, &Group)| {
        let name = format!("LLC {id:<4}{:>7}/s ", rate(bars::wakeups(llc)));
        let room = width.saturating_sub(name.len());
        let mut line = Line::from(name);
        bars::stacked(llc, room, theme).spans.into_iter().for_each(|span| line.push_span(span));
        line
    };
    metrics.llcs.iter().map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stats::column::Figures;

    /// The figures that are drawn are the ones that the help explains.
    #[test]
    fn places_are_counted_by_their_figures() {
        let group =
            Group { target: 1, prev: 2, recent: 3, scan: 4, beyond: 5, handoff: 6, failed: 7, ..Group::default() };
        let figures = Figures::new(&group, 1000);
        for (part, Figure { column, .. }) in PLACES.iter().zip(&FIGURES) {
            assert_eq!((part.name, (part.count)(&group) as f64), (&*column.head, column.value(&figures)));
        }
    }

    #[test]
    fn what_does_not_fit_is_added_to_the_fastest_that_does() {
        let mut buckets = vec![(2, 5), (4, 6), (8, 7), (16, 1)];
        merge_fastest(&mut buckets, 2);
        assert_eq!(buckets, [(8, 18), (16, 1)]);
        merge_fastest(&mut buckets, 9);
        assert_eq!(buckets.len(), 2);
    }
}

// SPDX-License-Identifier: GPL-2.0-only
//! Head and foot of each view: scheduler and machine, names of the views, keys.

use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::Modifier;
use ratatui::text::{Line, Span};

use super::app::{App, State};
use super::view::cut;
use crate::SCHEDULER_NAME;
use crate::stats::Metrics;

pub fn draw(frame: &mut Frame<'_>, area: Rect, app: &App) {
    let [first, second, tabs, units] =
        Layout::vertical([Constraint::Length(1), Constraint::Length(1), Constraint::Length(1), Constraint::Length(1)])
            .areas(area);
    let none = Metrics::default();
    let metrics = app.metrics.as_ref().unwrap_or(&none);
    // Without the target triple.
    let version = metrics.version.split(' ').next().unwrap_or_default();
    let mut name = vec![Span::styled(SCHEDULER_NAME, app.theme.title()), Span::raw(format!(" {version}"))];
    if !metrics.kernel.is_empty() {
        name.push(Span::styled("  on Linux ", app.theme.label()));
        name.push(Span::raw(metrics.kernel.clone()));
    }
    both(frame, first, Line::from(name), status(app, metrics), app);

    let mut machine = vec![Span::raw(machine(metrics))];
    if !metrics.version.is_empty() {
        let flags = if metrics.flags.is_empty() { "default flags" } else { &metrics.flags };
        machine.push(Span::styled(format!("  {flags}"), app.theme.label()));
    }
    frame.render_widget(cut(Line::from(machine), second.width.into(), app.theme.ellipsis()), second);
    both(frame, tabs, tabs_of(app), pace(app), app);
    frame.render_widget(Line::styled("events per second", app.theme.label()).right_aligned(), units);
}

/// Draw a line at the left and one at the right. The right one is the shorter.
fn both(frame: &mut Frame<'_>, area: Rect, left: Line<'_>, right: Line<'_>, app: &App) {
    let [to_left, to_right] =
        Layout::horizontal([Constraint::Fill(1), Constraint::Length(right.width() as u16)]).areas(area);
    frame.render_widget(cut(left, to_left.width.saturating_sub(1).into(), app.theme.ellipsis()), to_left);
    frame.render_widget(right, to_right);
}

/// Return the numbers of the machine's CPUs, LLCs and nodes.
fn machine(metrics: &Metrics) -> String {
    let some = |count: usize, name: &str| match count {
        0 => None,
        1 => Some(format!("1 {name}")),
        _ => Some(format!("{count} {name}s")),
    };
    let parts = [
        some(metrics.total.nr_cpus as usize, "CPU"),
        some(metrics.llcs.len(), "LLC"),
        some(metrics.nodes.len(), "node"),
        Some(metrics.mode.clone()).filter(|mode| !mode.is_empty()),
    ];
    parts.into_iter().flatten().collect::<Vec<_>>().join(", ")
}

fn status(app: &App, metrics: &Metrics) -> Line<'static> {
    let warning = app.theme.warning();
    match app.state {
        State::Absent => Line::styled("no scheduler", warning),
        State::Ended => Line::styled("end of the recording", warning),
        State::Starting => Line::default(),
        State::Attached => match app.silence() {
            Some(silence) => Line::styled(format!("no answer for {} s", silence.as_secs()), warning),
            None => Line::from(format!("up {}", uptime(metrics.uptime_s))),
        },
    }
}

/// Format an uptime in its two largest units.
fn uptime(seconds: u64) -> String {
    let (minutes, hours, days) = (seconds / 60, seconds / 3600, seconds / 86_400);
    match (days, hours, minutes) {
        (0, 0, 0) => format!("{seconds} s"),
        (0, 0, _) => format!("{minutes} min {} s", seconds % 60),
        (0, ..) => format!("{hours} h {} min", minutes % 60),
        _ => format!("{days} d {} h", hours % 24),
    }
}

fn tabs_of(app: &App) -> Line<'static> {
    let tabs = app.views().into_iter().enumerate().map(|(place, view)| {
        let tab = format!(" {} {} ", place + 1, view.title);
        if view.title == app.view().title {
            Span::styled(tab, app.theme.chosen().add_modifier(Modifier::BOLD))
        } else {
            Span::raw(tab)
        }
    });
    tabs.collect()
}

/// Return interval or speed, and the files of a recording or a replay.
fn pace(app: &App) -> Line<'static> {
    let mut parts = Vec::new();
    if app.paused {
        parts.push(Span::styled("paused  ", app.theme.warning()));
    }
    if app.record.is_some() {
        parts.push(Span::styled("recording  ", app.theme.warning()));
    }
    parts.push(match app.replay {
        Some(_) => Span::styled(format!("replay x{}", app.speed), app.theme.warning()),
        None => Span::styled(format!("every {} s", app.interval.as_secs_f64()), app.theme.label()),
    });
    Line::from(parts)
}

/// Draw the keys that have an effect in the view.
pub fn draw_keys(frame: &mut Frame<'_>, area: Rect, app: &App) {
    let columns = [("arrows", "column, rows"), ("s", "sort")];
    let pace = if app.replay.is_some() { "speed" } else { "interval" };
    let keys = match app.help {
        Some(_) => vec![("up down", "scroll"), ("? Esc", "back"), ("q", "quit")],
        None => [("Tab", "view")]
            .into_iter()
            .chain(columns.into_iter().filter(|_| app.view().has_columns))
            .chain([("space", "pause"), ("+ -", pace), ("?", "help"), ("q", "quit")])
            .collect(),
    };
    let spans = keys.into_iter().flat_map(|(key, what)| {
        [Span::styled(key, app.theme.title()), Span::styled(format!(" {what}  "), app.theme.label())]
    });
    frame.render_widget(Line::from_iter(spans), area);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn uptimes_have_two_units() {
        let texts = [7, 67, 3600 * 2 + 59, 86_400 * 3 + 3600 * 5].map(uptime);
        assert_eq!(texts, ["7 s", "1 min 7 s", "2 h 0 min", "3 d 5 h"]);
    }
}

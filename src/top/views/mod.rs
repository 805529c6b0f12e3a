// SPDX-License-Identifier: GPL-2.0-only
//! What is drawn: a head, one of the views, and a line of keys.

mod absent;
mod bars;
mod capacity;
mod cgroups;
mod grid;
mod head;
mod latency;
mod llcs;
mod numa;
mod overview;
mod wakeups;

use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::text::Text;

use super::app::{App, State};
use super::help;
use crate::stats::Metrics;
use crate::stats::column::{Column, Unit};
pub use grid::Cursor;

/// What fits on a smaller screen cannot be read.
const MIN_WIDTH: u16 = 60;
const MIN_HEIGHT: u16 = 16;

#[derive(Clone, Copy, Debug, PartialEq)]
pub enum View {
    Overview,
    Llcs,
    Wakeups,
    Cgroups,
    Numa,
    Capacity,
}

/// A figure that a view shows, and the struct of the statistics that has it.
pub struct Figure {
    pub of: &'static str,
    pub column: Column,
}

const fn figure(of: &'static str, head: &'static str, field: &'static str, unit: Unit) -> Figure {
    Figure { of, column: Column::new(head, field, unit) }
}

impl View {
    pub const ALL: [Self; 6] = [Self::Overview, Self::Llcs, Self::Wakeups, Self::Cgroups, Self::Numa, Self::Capacity];

    pub fn title(self) -> &'static str {
        match self {
            Self::Overview => "Overview",
            Self::Llcs => "LLCs",
            Self::Wakeups => "Wakeups",
            Self::Cgroups => "Cgroups",
            Self::Numa => "NUMA",
            Self::Capacity => "Capacity",
        }
    }

    /// Is there anything of it on the machine?
    pub fn applies(self, metrics: &Metrics) -> bool {
        match self {
            Self::Overview | Self::Llcs | Self::Wakeups => true,
            Self::Cgroups => metrics.cgroups.nr_groups > 0,
            Self::Numa => !metrics.nodes.is_empty(),
            Self::Capacity => !metrics.wake_cases.is_empty(),
        }
    }

    /// What it shows; of a table, its columns.
    pub fn figures(self) -> &'static [Figure] {
        match self {
            Self::Overview => &overview::FIGURES,
            Self::Llcs => &llcs::FIGURES,
            Self::Wakeups => &wakeups::FIGURES,
            Self::Cgroups => &cgroups::FIGURES,
            Self::Numa => &numa::FIGURES,
            Self::Capacity => &capacity::FIGURES,
        }
    }

    /// Is it a table, one of whose columns is chosen?
    pub fn has_columns(self) -> bool {
        !matches!(self, Self::Overview | Self::Wakeups)
    }
}

pub fn draw(frame: &mut Frame<'_>, app: &mut App) {
    let area = frame.area();
    if area.width < MIN_WIDTH || area.height < MIN_HEIGHT {
        let text = format!("The terminal is too small: {MIN_WIDTH}x{MIN_HEIGHT} at least.");
        return frame.render_widget(Text::from(text), area);
    }
    let [top, body, bottom] =
        Layout::vertical([Constraint::Length(4), Constraint::Fill(1), Constraint::Length(1)]).areas(area);
    head::draw(frame, top, app);
    head::draw_keys(frame, bottom, app);
    if app.help.is_some() {
        return draw_help(frame, body, app);
    }
    match (&app.state, app.metrics.take()) {
        (State::Attached | State::Ended, Some(metrics)) => {
            draw_view(frame, body, app, &metrics);
            app.metrics = Some(metrics);
        }
        (_, metrics) => {
            app.metrics = metrics;
            absent::draw(frame, body, app);
        }
    }
}

fn draw_view(frame: &mut Frame<'_>, area: Rect, app: &mut App, metrics: &Metrics) {
    match app.view() {
        View::Overview => overview::draw(frame, area, app, metrics),
        View::Llcs => llcs::draw(frame, area, app, metrics),
        View::Wakeups => wakeups::draw(frame, area, app, metrics),
        View::Cgroups => cgroups::draw(frame, area, app, metrics),
        View::Numa => numa::draw(frame, area, app, metrics),
        View::Capacity => capacity::draw(frame, area, app, metrics),
    }
}

fn draw_help(frame: &mut Frame<'_>, area: Rect, app: &mut App) {
    let lines = help::lines(app.view(), app.cursor().column, &app.theme, area.width.into());
    let last = lines.len().saturating_sub(area.height.into());
    let top = app.help.unwrap_or(0).min(last);
    app.help = Some(top);
    let shown: Vec<_> = lines.into_iter().skip(top).collect();
    frame.render_widget(Text::from(shown), area);
}

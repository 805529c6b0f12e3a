// SPDX-License-Identifier: GPL-2.0-only
//! The screen: a head, the chosen view (or its help, or why there is none), and a line of keys.

use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::text::Text;

use super::app::{App, State};
use super::{absent, head, help};

/// Minimum size of the screen. Smaller ones are not readable.
const MIN_WIDTH: u16 = 60;
const MIN_HEIGHT: u16 = 16;

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
    let view = app.view();
    match (app.state, app.seen()) {
        (State::Attached | State::Ended, Some(mut seen)) => (view.draw)(frame, body, &mut seen),
        _ => absent::draw(frame, body, app),
    }
}

fn draw_help(frame: &mut Frame<'_>, area: Rect, app: &mut App) {
    let lines = help::lines(app.view(), app.column(), &app.theme, area.width.into());
    let last = lines.len().saturating_sub(area.height.into());
    let top = app.help.unwrap_or(0).min(last);
    app.help = Some(top);
    let shown: Vec<_> = lines.into_iter().skip(top).collect();
    frame.render_widget(Text::from(shown), area);
}

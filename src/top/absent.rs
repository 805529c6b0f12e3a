// SPDX-License-Identifier: GPL-2.0-only
//! The screen if no scheduler runs, or if it has not answered yet.

use ratatui::Frame;
use ratatui::layout::Rect;
use ratatui::text::{Line, Text};
use scx_utils::misc::read_from_file;

use super::app::{App, State};

pub fn draw(frame: &mut Frame<'_>, area: Rect, app: &App) {
    let mut lines = if app.state == State::Absent {
        vec![
            Line::styled("No scheduler: scx_magpie is not attached.", app.theme.warning()),
            Line::default(),
            Line::from(attached()),
            Line::from("The view comes back when scx_magpie is attached: sudo scx_magpie"),
        ]
    } else {
        vec![Line::styled("Waiting for the first figures.", app.theme.label())]
    };
    let above = usize::from(area.height).saturating_sub(lines.len()) / 2;
    lines.splice(..0, vec![Line::default(); above]);
    frame.render_widget(Text::from(lines).centered(), area);
}

/// Return the scheduler that the kernel runs instead.
fn attached() -> String {
    match read_from_file::<String>("/sys/kernel/sched_ext/root/ops".as_ref()) {
        Ok(name) => format!("The kernel runs another sched_ext scheduler: {name}."),
        Err(_) => "The kernel runs its own scheduler.".into(),
    }
}

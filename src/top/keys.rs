// SPDX-License-Identifier: GPL-2.0-only
//! Keys and their effects.

use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};

/// A request of the user.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Action {
    NextView,
    PrevView,
    /// Index among the views that apply, from 0.
    View(usize),
    /// Choose the column to the left or to the right.
    Left,
    Right,
    /// Scroll rows, or lines of the help, by this many.
    Scroll(isize),
    Sort,
    Pause,
    /// Longer intervals, or a faster replay.
    Plus,
    Minus,
    Help,
    Close,
    Quit,
}

/// Number of rows that page up and page down scroll.
const PAGE: isize = 10;

/// The keys with their help texts.
pub const KEYS: [(&str, &str); 8] = [
    ("Tab, 1 to 6", "the next view, or that of this number"),
    ("left, right", "choose a column, for s and ?"),
    ("up, down", "scroll rows, or this help; also PageUp, PageDown"),
    ("s", "sort by the column; once more: the other way round"),
    ("space", "pause"),
    ("+ -", "longer or shorter intervals; of a replay: faster or slower"),
    ("?", "what the figures of this view mean"),
    ("q", "quit"),
];

/// Return the action of a key. None: the key has no effect.
pub fn action(key: KeyEvent) -> Option<Action> {
    if key.modifiers.contains(KeyModifiers::CONTROL) {
        return (key.code == KeyCode::Char('c')).then_some(Action::Quit);
    }
    Some(match key.code {
        KeyCode::Tab => Action::NextView,
        KeyCode::BackTab => Action::PrevView,
        KeyCode::Char(digit @ '1'..='9') => Action::View(digit as usize - '1' as usize),
        KeyCode::Left => Action::Left,
        KeyCode::Right => Action::Right,
        KeyCode::Up => Action::Scroll(-1),
        KeyCode::Down => Action::Scroll(1),
        KeyCode::PageUp => Action::Scroll(-PAGE),
        KeyCode::PageDown => Action::Scroll(PAGE),
        KeyCode::Char('s') => Action::Sort,
        KeyCode::Char(' ') => Action::Pause,
        KeyCode::Char('+' | '=') => Action::Plus,
        KeyCode::Char('-') => Action::Minus,
        KeyCode::Char('?' | 'h') => Action::Help,
        KeyCode::Esc => Action::Close,
        KeyCode::Char('q') => Action::Quit,
        _ => return None,
    })
}

// SPDX-License-Identifier: GPL-2.0-only
//! Colors and characters by the terminal's abilities. `NO_COLOR` (https://no-color.org) disables
//! colors; a locale without UTF-8 gets ASCII.

use std::env;

use ratatui::style::{Color, Modifier, Style};
use ratatui::symbols::bar;

#[derive(Clone, Debug)]
pub struct Theme {
    pub color: bool,
    pub unicode: bool,
}

/// Bars in ASCII.
const ASCII_BARS: bar::Set<'static> = bar::Set {
    full: "#",
    seven_eighths: "#",
    three_quarters: "#",
    five_eighths: "+",
    half: "+",
    three_eighths: "-",
    one_quarter: "-",
    one_eighth: ".",
    empty: " ",
};

impl Theme {
    pub fn from_env() -> Self {
        let set = |name: &str| env::var(name).ok().filter(|value| !value.is_empty());
        let locale = set("LC_ALL").or_else(|| set("LC_CTYPE")).or_else(|| set("LANG")).unwrap_or_default();
        let locale = locale.to_lowercase();
        Self { color: set("NO_COLOR").is_none(), unicode: locale.contains("utf-8") || locale.contains("utf8") }
    }

    fn colored(&self, color: Color) -> Style {
        if self.color { Style::new().fg(color) } else { Style::new() }
    }

    pub fn title(&self) -> Style {
        self.colored(Color::Cyan).add_modifier(Modifier::BOLD)
    }

    /// Style of labels next to figures.
    pub fn label(&self) -> Style {
        self.colored(Color::DarkGray)
    }

    pub fn chosen(&self) -> Style {
        Style::new().add_modifier(Modifier::REVERSED)
    }

    pub fn bar(&self) -> Style {
        self.colored(Color::Cyan)
    }

    /// Style of warnings.
    pub fn warning(&self) -> Style {
        self.colored(Color::Yellow).add_modifier(Modifier::BOLD)
    }

    /// Return color and character of part `index` of a stacked bar with at most seven parts.
    pub fn part(&self, index: usize) -> (Style, &'static str) {
        const COLORS: [Color; 7] =
            [Color::Green, Color::Cyan, Color::Blue, Color::Yellow, Color::Magenta, Color::White, Color::Red];
        let glyph = match (self.unicode, self.color) {
            (true, true) => "█",
            (true, false) => ["█", "▓", "▒", "░", "▚", "▪", "·"][index],
            (false, _) => ["T", "P", "R", "s", "b", "h", "."][index],
        };
        (self.colored(COLORS[index]), glyph)
    }

    pub fn bars(&self) -> bar::Set<'static> {
        if self.unicode { bar::NINE_LEVELS } else { ASCII_BARS }
    }

    /// Return the full and the empty cell of a gauge.
    pub fn gauge(&self) -> (&'static str, &'static str) {
        if self.unicode { ("█", "░") } else { ("#", ".") }
    }

    /// Return the mark of the sorted column.
    pub fn sorted(&self, descending: bool) -> &'static str {
        match (self.unicode, descending) {
            (true, true) => "▼",
            (true, false) => "▲",
            (false, true) => "v",
            (false, false) => "^",
        }
    }

    /// Return the sign for omitted text.
    pub fn ellipsis(&self) -> &'static str {
        if self.unicode { "…" } else { "~" }
    }
}

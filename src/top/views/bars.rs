// SPDX-License-Identifier: GPL-2.0-only
//! Bars of characters.

use ratatui::text::{Line, Span};

use crate::stats::Group;
use crate::stats::column::number;
use crate::top::theme::Theme;

/// A subset of the wakeups.
pub struct Part {
    pub name: &'static str,
    pub count: fn(&Group) -> u64,
}

/// Placements of wakeups. Their sum is the number of wakeups.
pub const PLACES: [Part; 7] = [
    Part { name: "target", count: |group| group.target },
    Part { name: "prev", count: |group| group.prev },
    Part { name: "recent", count: |group| group.recent },
    Part { name: "scan", count: |group| group.scan },
    Part { name: "beyond", count: |group| group.beyond },
    Part { name: "hand-off", count: |group| group.handoff },
    Part { name: "failed", count: |group| group.failed },
];

pub fn wakeups(group: &Group) -> u64 {
    PLACES.iter().map(|part| (part.count)(group)).sum()
}

/// Return a bar of the placements of an LLC's or the machine's wakeups. Empty without wakeups.
pub fn stacked(group: &Group, width: usize, theme: &Theme) -> Line<'static> {
    let all = wakeups(group).max(1) as f64;
    let (mut sum, mut drawn) = (0, 0);
    let parts = PLACES.iter().enumerate().map(|(index, part)| {
        sum += (part.count)(group);
        let end = (sum as f64 / all * width as f64).round() as usize;
        let (style, glyph) = theme.part(index);
        Span::styled(glyph.repeat(end - std::mem::replace(&mut drawn, end)), style)
    });
    parts.collect()
}

/// Return the names of the parts with their shares.
pub fn legend(group: &Group, theme: &Theme) -> Line<'static> {
    let all = wakeups(group).max(1) as f64;
    let parts = PLACES.iter().enumerate().flat_map(|(index, Part { name, count })| {
        let (style, glyph) = theme.part(index);
        let share = number((100.0 * count(group) as f64 / all).round());
        [Span::styled(glyph, style), Span::styled(format!("{name} "), theme.label()), Span::raw(format!("{share}  "))]
    });
    parts.collect()
}

/// Return a gauge for a share, 0..=1, of `width` cells.
pub fn gauge(share: f64, width: usize, theme: &Theme) -> String {
    let full = (share.clamp(0.0, 1.0) * width as f64).round() as usize;
    let (on, off) = theme.gauge();
    on.repeat(full) + &off.repeat(width - full)
}

/// Return a gauge without its empty cells.
pub fn bar(share: f64, width: usize, theme: &Theme) -> String {
    theme.gauge().0.repeat((share.clamp(0.0, 1.0) * width as f64).round() as usize)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_fill_the_bar() {
        let group =
            Group { target: 1, prev: 2, recent: 3, scan: 4, beyond: 5, handoff: 6, failed: 7, ..Group::default() };
        let theme = Theme { color: false, unicode: false };
        assert_eq!(stacked(&group, 28, &theme).to_string(), "TPPRRRssssbbbbbhhhhhh.......");
        for width in [0, 1, 7, 80] {
            assert_eq!(stacked(&group, width, &theme).width(), width);
        }
        assert_eq!(stacked(&Group::default(), 80, &theme).width(), 0);
    }
}

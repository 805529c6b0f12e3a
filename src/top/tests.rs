// SPDX-License-Identifier: GPL-2.0-only
//! Tests of each view with a recording: a guest with 8 CPUs, 2 LLCs and nodes, and cgroups.

use std::sync::mpsc;

use insta::assert_snapshot;
use ratatui::Terminal;
use ratatui::backend::TestBackend;
use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};

use super::app::App;
use super::source::Control;
use super::theme::Theme;
use super::{Event, TopOpts, screen};
use crate::stats::Metrics;
use crate::stats::wake_cases::WakeCase;

const RECORDING: &str = include_str!("../../tests/data/top.jsonl");

/// A terminal with the program on it.
struct Screen {
    terminal: Terminal<TestBackend>,
    app: App,
    controls: mpsc::Receiver<Control>,
}

impl Screen {
    fn new(width: u16, height: u16) -> Self {
        let (sender, controls) = mpsc::channel();
        let opts = TopOpts { interval: 1.0, record: None, replay: None };
        let app = App::new(&opts, sender, Theme { color: false, unicode: true });
        Self { terminal: Terminal::new(TestBackend::new(width, height)).unwrap(), app, controls }
    }

    /// Show the recording up to its end.
    fn recorded(width: u16, height: u16) -> Self {
        let mut screen = Self::new(width, height);
        recording().into_iter().for_each(|metrics| screen.on(Event::Metrics(Box::new(metrics))));
        screen
    }

    fn on(&mut self, event: Event) {
        self.app.on(event).unwrap();
    }

    fn press(&mut self, code: KeyCode) {
        self.on(Event::Key(KeyEvent::new(code, KeyModifiers::NONE)));
    }

    /// Press keys: letters, digits and signs. The screen is drawn after each, as in use.
    fn keys(&mut self, keys: &str) {
        for key in keys.chars() {
            self.press(KeyCode::Char(key));
            self.draw();
        }
    }

    fn draw(&mut self) -> String {
        self.terminal.draw(|frame| screen::draw(frame, &mut self.app)).unwrap();
        self.terminal.backend().to_string()
    }
}

fn recording() -> Vec<Metrics> {
    RECORDING.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// Return metrics of a machine with CPUs of two capacities.
fn asymmetric() -> Metrics {
    let cases = ["lll", "llb", "lbl", "lbb", "bll", "blb", "bbl", "bbb"].into_iter().enumerate();
    let case = |(index, case): (usize, &str)| {
        let count = 100 * index as u64;
        let counts = WakeCase { little_fast: count, big_scan: count + 1, big_fallback: 3, ..WakeCase::default() };
        (index + 1, WakeCase { case: case.into(), ..counts })
    };
    let mut metrics = recording().pop().unwrap();
    metrics.wake_cases = cases.map(case).collect();
    (metrics.total.misfit, metrics.total.misfit_ms, metrics.total.misfit_move) = (40, 12, 35);
    metrics
}

#[test]
fn views_on_a_small_terminal() {
    let mut screen = Screen::recorded(80, 24);
    for (key, name) in [("1", "overview"), ("2", "llcs"), ("3", "wakeups"), ("4", "cgroups"), ("5", "numa")] {
        screen.keys(key);
        assert_snapshot!(name, screen.draw());
    }
}

#[test]
fn views_on_a_large_terminal() {
    let mut screen = Screen::recorded(200, 50);
    for (key, name) in [("1", "overview-large"), ("2", "llcs-large"), ("3", "wakeups-large"), ("4", "cgroups-large")] {
        screen.keys(key);
        assert_snapshot!(name, screen.draw());
    }
}

#[test]
fn capacity_is_a_view_where_cpus_differ() {
    let mut screen = Screen::new(80, 24);
    screen.on(Event::Metrics(Box::new(asymmetric())));
    screen.keys("6");
    assert_snapshot!("capacity", screen.draw());
}

#[test]
fn eight_llcs_and_their_steals_fit_a_small_terminal() {
    let mut metrics = recording().pop().unwrap();
    let llc = metrics.llcs[&0].clone();
    metrics.llcs = (0..8).map(|id| (id, llc.clone())).collect();
    let mut screen = Screen::new(80, 24);
    screen.on(Event::Metrics(Box::new(metrics)));
    screen.keys("2");
    let lines = screen.draw();
    assert!(lines.contains("total ") && lines.contains("by LLC 0") && lines.contains("by LLC 7"), "{lines}");
}

#[test]
fn help_begins_with_the_chosen_column() {
    let mut screen = Screen::recorded(80, 24);
    screen.keys("2");
    screen.press(KeyCode::Right);
    screen.keys("?");
    assert_snapshot!("help", screen.draw());
    // Scrolling stops at the end. Closing the help shows the view again.
    (0..9).for_each(|_| screen.press(KeyCode::PageDown));
    let end = screen.draw();
    assert!(end.contains("quit") && end.contains("sort by the column"), "{end}");
    screen.press(KeyCode::Esc);
    assert!(screen.draw().contains("stolen from"));
}

#[test]
fn without_a_scheduler_the_view_says_so_and_comes_back() {
    let mut screen = Screen::new(80, 24);
    assert!(screen.draw().contains("Waiting for the first figures."));
    screen.on(Event::Absent);
    assert!(screen.draw().contains("No scheduler: scx_magpie is not attached."));
    let metrics = recording().pop().unwrap();
    screen.on(Event::Metrics(Box::new(metrics.clone())));
    assert!(screen.draw().contains("Where wakeups were placed"));
    screen.on(Event::Absent);
    assert!(screen.draw().contains("No scheduler"));
    screen.on(Event::Metrics(Box::new(metrics)));
    assert!(screen.draw().contains("Where wakeups were placed"));
}

#[test]
fn a_paused_view_stays_as_it_is() {
    let mut screen = Screen::recorded(80, 24);
    screen.keys("2 ");
    let before = screen.draw();
    assert!(before.contains("paused"));
    let mut other = recording().pop().unwrap();
    other.total.util = 99.9;
    screen.on(Event::Metrics(Box::new(other)));
    assert_eq!(screen.draw(), before);
    screen.keys(" ");
    assert_eq!(screen.controls.try_iter().collect::<Vec<_>>(), [Control::Pause(true), Control::Pause(false)]);
}

#[test]
fn rows_are_sorted_by_the_chosen_column() {
    let mut metrics = recording().pop().unwrap();
    let llc = metrics.llcs[&0].clone();
    metrics.llcs = (0..40).map(|id| (id, llc.clone())).collect();
    metrics.llcs.get_mut(&7).unwrap().search = 1_000_000;
    let mut screen = Screen::new(80, 24);
    screen.on(Event::Metrics(Box::new(metrics)));
    let first = |screen: &mut Screen| screen.draw().lines().nth(5).unwrap().trim_matches('"').to_owned();
    screen.keys("2");
    assert!(first(&mut screen).starts_with("0 "));
    screen.press(KeyCode::Right);
    screen.press(KeyCode::Right);
    screen.keys("s");
    assert!(first(&mut screen).starts_with("7 "), "{}", screen.draw());
    assert!(screen.draw().contains("search▼"));
    // Scroll by more rows than there are.
    screen.keys("s");
    (0..9).for_each(|_| screen.press(KeyCode::PageDown));
    let end = screen.draw();
    assert!(end.contains("search▲") && end.contains("\n\"7  "), "{end}");
    screen.press(KeyCode::Up);
    assert!(!screen.draw().contains("\n\"7  "));
}

#[test]
fn the_interval_and_the_view_follow_keys() {
    let mut screen = Screen::recorded(80, 24);
    screen.keys("+--");
    let controls: Vec<_> = screen.controls.try_iter().collect();
    assert_eq!(controls, [2000, 1000, 500].map(|ms| Control::Interval(std::time::Duration::from_millis(ms))));
    assert!(screen.draw().contains("every 0.5 s"));
    screen.press(KeyCode::BackTab);
    assert!(screen.draw().contains("returned to preferred node"));
    screen.press(KeyCode::Tab);
    screen.press(KeyCode::Tab);
    assert!(screen.draw().contains("stolen from"));
    // There is no view with this number.
    screen.keys("9");
    assert!(screen.draw().contains("stolen from"));
    screen.keys("q");
    assert!(screen.app.has_quit());
}

/// Counts of any size fit, and so do machines of any size.
#[test]
fn nothing_ends_the_view() {
    let mut metrics = asymmetric();
    let value = serde_json::to_string(&metrics).unwrap();
    metrics.interval_ms = 0;
    metrics.total.search = u64::MAX / 8;
    metrics.cgroups.top = (0..30).map(|i| (format!("{i}/äöü漢字").repeat(i), Default::default())).collect();
    for (width, height) in [(1, 1), (59, 16), (60, 16), (80, 24), (500, 100)] {
        for metrics in [&metrics, &Metrics::default(), &serde_json::from_str(&value).unwrap()] {
            let mut screen = Screen::new(width, height);
            screen.on(Event::Metrics(Box::new(metrics.clone())));
            for _ in 0..7 {
                screen.keys("s?");
                screen.keys("?");
                screen.press(KeyCode::PageDown);
                screen.press(KeyCode::Right);
                screen.press(KeyCode::Tab);
                screen.draw();
            }
        }
    }
}

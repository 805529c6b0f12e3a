// SPDX-License-Identifier: GPL-2.0-only
//! State of the program: the data that is shown, and the user's choices.

use std::path::PathBuf;
use std::sync::mpsc::Sender;
use std::time::{Duration, Instant};

use anyhow::Result;
use ratatui::crossterm::event::KeyEvent;

use super::history::History;
use super::keys::{Action, action};
use super::source::Control;
use super::theme::Theme;
use super::view::{Cursor, Seen, View};
use super::views::VIEWS;
use super::{Event, TopOpts};
use crate::stats::Metrics;

/// Intervals for `+` and `-`, ms.
const INTERVALS: [u64; 10] = [100, 200, 500, 1000, 2000, 5000, 10_000, 20_000, 30_000, 60_000];

/// Speeds of a replay, relative to the recording.
const SPEEDS: [f64; 9] = [0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0];

/// If the scheduler takes longer than this to answer, something is wrong.
const PATIENCE: Duration = Duration::from_secs(2);

/// State of the scheduler.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum State {
    /// No answer yet.
    Starting,
    Attached,
    Absent,
    /// The recording has ended.
    Ended,
}

pub struct App {
    pub state: State,
    /// The metrics that are shown: the last ones, unless the view is paused.
    pub metrics: Option<Metrics>,
    pub history: History,
    pub theme: Theme,
    pub paused: bool,
    /// Number of lines of the help that are scrolled off the top; None: the help is closed.
    pub help: Option<usize>,
    pub interval: Duration,
    pub speed: f64,
    pub record: Option<PathBuf>,
    pub replay: Option<PathBuf>,
    /// Index in [`VIEWS`].
    view: usize,
    cursors: [Cursor; VIEWS.len()],
    controls: Sender<Control>,
    heard_at: Instant,
    quit: bool,
}

impl App {
    pub fn new(opts: &TopOpts, controls: Sender<Control>, theme: Theme) -> Self {
        Self {
            state: State::Starting,
            metrics: None,
            history: History::default(),
            theme,
            paused: false,
            help: None,
            interval: Duration::from_secs_f64(opts.interval),
            speed: 1.0,
            record: opts.record.clone(),
            replay: opts.replay.clone(),
            view: 0,
            cursors: Default::default(),
            controls,
            heard_at: Instant::now(),
            quit: false,
        }
    }

    /// Handle an event. Fails if there is nothing more to show.
    pub fn on(&mut self, event: Event) -> Result<()> {
        match event {
            Event::Key(key) => self.on_key(key),
            Event::Resize => (),
            Event::Metrics(metrics) => self.show(*metrics),
            Event::Absent => self.state = State::Absent,
            Event::End => self.state = State::Ended,
            Event::Quit => self.quit = true,
            Event::Failed(err) => return Err(err),
        }
        Ok(())
    }

    pub fn has_quit(&self) -> bool {
        self.quit
    }

    /// Return how long the attached scheduler has been silent, if an answer is overdue.
    pub fn silence(&self) -> Option<Duration> {
        let silence = self.heard_at.elapsed();
        (self.state == State::Attached && self.replay.is_none() && silence > self.interval + PATIENCE)
            .then_some(silence)
    }

    /// Return the views that apply to the machine.
    pub fn views(&self) -> Vec<&'static View> {
        self.applying().into_iter().map(|view| VIEWS[view]).collect()
    }

    pub fn view(&self) -> &'static View {
        VIEWS[self.view]
    }

    /// Return the chosen column of the view.
    pub fn column(&self) -> usize {
        self.cursors[self.view].column
    }

    /// Return the data for the view; None: no data yet.
    pub fn seen(&mut self) -> Option<Seen<'_>> {
        let cursor = &mut self.cursors[self.view];
        Some(Seen { metrics: self.metrics.as_ref()?, history: &self.history, theme: &self.theme, cursor })
    }

    /// Return the views that apply, as indices in [`VIEWS`].
    fn applying(&self) -> Vec<usize> {
        let metrics = self.metrics.as_ref();
        (0..VIEWS.len()).filter(|&view| metrics.is_some_and(|metrics| (VIEWS[view].applies)(metrics))).collect()
    }

    fn show(&mut self, metrics: Metrics) {
        if self.state == State::Absent {
            self.history.clear();
        }
        self.state = State::Attached;
        self.heard_at = Instant::now();
        self.history.add(&metrics);
        if !self.paused || self.metrics.is_none() {
            self.metrics = Some(metrics);
            if !self.applying().contains(&self.view) {
                self.view = 0;
            }
        }
    }

    fn on_key(&mut self, key: KeyEvent) {
        let Some(action) = action(key) else { return };
        match action {
            Action::NextView => self.turn(1),
            Action::PrevView => self.turn(-1),
            Action::View(place) => self.view = self.applying().get(place).copied().unwrap_or(self.view),
            Action::Left => self.move_column(-1),
            Action::Right => self.move_column(1),
            Action::Scroll(rows) => self.scroll(rows),
            Action::Sort => self.cursors[self.view].sort(),
            Action::Pause => {
                self.paused = !self.paused;
                self.control(Control::Pause(self.paused));
            }
            Action::Plus => self.change_pace(1),
            Action::Minus => self.change_pace(-1),
            Action::Help => self.help = if self.help.is_some() { None } else { Some(0) },
            Action::Close => self.help = None,
            Action::Quit => self.quit = true,
        }
    }

    fn turn(&mut self, by: isize) {
        let views = self.applying();
        let place = views.iter().position(|view| *view == self.view).unwrap_or(0);
        let next = (place as isize + by).rem_euclid(views.len().max(1) as isize) as usize;
        self.view = views.get(next).copied().unwrap_or(self.view);
    }

    fn move_column(&mut self, by: isize) {
        let last = self.view().figures.len().saturating_sub(1);
        let cursor = &mut self.cursors[self.view];
        cursor.column = cursor.column.saturating_add_signed(by).min(last);
    }

    fn scroll(&mut self, by: isize) {
        let top = self.help.as_mut().unwrap_or(&mut self.cursors[self.view].top);
        *top = top.saturating_add_signed(by);
    }

    /// Change the interval, or the speed of a replay, by this many steps.
    fn change_pace(&mut self, by: isize) {
        let control = if self.replay.is_some() {
            let place = SPEEDS.iter().position(|speed| *speed >= self.speed).unwrap_or(0);
            self.speed = SPEEDS[place.saturating_add_signed(by).min(SPEEDS.len() - 1)];
            Control::Speed(self.speed)
        } else {
            let now = self.interval.as_millis() as u64;
            let next = if by > 0 {
                INTERVALS.into_iter().find(|ms| *ms > now)
            } else {
                INTERVALS.into_iter().rev().find(|ms| *ms < now)
            };
            self.interval = Duration::from_millis(next.unwrap_or(now));
            Control::Interval(self.interval)
        };
        self.control(control);
    }

    /// Send a request to the source. A source that has ended ignores it.
    fn control(&self, control: Control) {
        let _ = self.controls.send(control);
    }
}

// SPDX-License-Identifier: GPL-2.0-only
//! `scx_magpie top`: a full-screen view of the running scheduler or of a recording.
//!
//! ```text
//! socket or --replay FILE --source.rs (a thread)--+
//! keys, resizes ---------- input() (a thread) ----+--> Event --> App (app.rs) --> screen.rs, views/ --> terminal
//! signals ----------------------------------------+               |
//!                                                                 +--> --record FILE
//! ```

mod absent;
mod app;
mod head;
mod help;
mod history;
mod keys;
mod screen;
mod source;
#[cfg(test)]
mod tests;
mod theme;
mod view;
mod views;

use std::fs::File;
use std::io::{IsTerminal, Write};
use std::path::PathBuf;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, SyncSender};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use clap::Args;
use ratatui::backend::TestBackend;
use ratatui::buffer::Buffer;
use ratatui::crossterm::event::{self, KeyEvent, KeyEventKind};
use ratatui::{DefaultTerminal, Terminal};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use crate::stats::Metrics;
use app::App;
use theme::Theme;

/// Source and interval of the statistics.
#[derive(Debug, Args)]
pub struct TopOpts {
    /// Read the statistics at this interval.
    ///
    /// Unit: seconds, more than 0. The keys + and - change it.
    ///
    /// Example: --interval 500ms
    #[arg(long, default_value_t = 1.0, value_name = "SEC", value_parser = crate::units::interval)]
    pub interval: f64,

    /// Append the statistics to this file, for --replay.
    ///
    /// Each interval is one line of JSON.
    ///
    /// Example: --record /tmp/load.jsonl
    #[arg(long, value_name = "FILE", conflicts_with = "replay")]
    pub record: Option<PathBuf>,

    /// Replay this file instead of watching the running scheduler.
    ///
    /// The file was written by --record or by --monitor SEC --json. Needs no root.
    ///
    /// Example: --replay /tmp/load.jsonl
    #[arg(long, value_name = "FILE")]
    pub replay: Option<PathBuf>,
}

/// An event for the program.
pub enum Event {
    Key(KeyEvent),
    Resize,
    Metrics(Box<Metrics>),
    /// No scheduler serves statistics.
    Absent,
    /// The recording has ended.
    End,
    /// A signal, or the terminal was closed.
    Quit,
    Failed(anyhow::Error),
}

/// Maximum number of events that wait while the terminal is slow.
const BACKLOG: usize = 64;

/// Time without events after which the screen is redrawn, to show that the scheduler is silent.
const TICK: Duration = Duration::from_secs(1);

/// Show the view until the user quits.
pub fn run(opts: &TopOpts) -> Result<()> {
    ensure!(
        std::io::stdout().is_terminal() && std::io::stdin().is_terminal(),
        "top needs a terminal: use --monitor SEC for lines of text, and --json for JSON"
    );
    ensure!(
        terminal_size::terminal_size().is_some_and(|(width, height)| width.0 > 0 && height.0 > 0),
        "the terminal does not report its size, as on serial lines: run 'stty rows 24 cols 80' first"
    );
    let (events, received) = mpsc::sync_channel(BACKLOG);
    let controls = source::start(opts, events.clone())?;
    let mut record = opts.record.as_deref().map(open_record).transpose()?;
    let mut signals = Signals::new([SIGHUP, SIGINT, SIGTERM]).context("cannot handle signals")?;

    let mut app = App::new(opts, controls, Theme::from_env());
    let mut terminal = ratatui::try_init().context("cannot set up the terminal")?;
    let quit = events.clone();
    thread::spawn(move || signals.forever().try_for_each(|_| quit.send(Event::Quit)));
    thread::spawn(move || input(&events));
    let watched = watch(&mut terminal, &received, &mut app, record.as_mut());
    ratatui::restore();
    watched
}

/// Return the screen at the end of a recording, for a picture of it.
pub fn still(recording: Vec<Metrics>, width: u16, height: u16) -> Result<Buffer> {
    let opts = TopOpts { interval: 1.0, record: None, replay: None };
    let mut app = App::new(&opts, mpsc::channel().0, Theme { color: true, unicode: true });
    recording.into_iter().try_for_each(|metrics| app.on(Event::Metrics(Box::new(metrics))))?;
    let mut terminal = Terminal::new(TestBackend::new(width, height))?;
    terminal.draw(|frame| screen::draw(frame, &mut app))?;
    Ok(terminal.backend().buffer().clone())
}

fn open_record(path: &std::path::Path) -> Result<File> {
    let file = File::options().create(true).append(true).open(path);
    file.with_context(|| format!("cannot record to {}", path.display()))
}

/// Send the user's input as events.
fn input(events: &SyncSender<Event>) {
    loop {
        let event = match event::read() {
            Ok(event::Event::Key(key)) if key.kind == KeyEventKind::Press => Event::Key(key),
            Ok(event::Event::Resize(..)) => Event::Resize,
            Ok(_) => continue,
            Err(_) => Event::Quit,
        };
        let is_last = matches!(event, Event::Quit);
        if events.send(event).is_err() || is_last {
            return;
        }
    }
}

/// Handle events and draw. All waiting events are handled before each drawing.
fn watch(
    terminal: &mut DefaultTerminal,
    events: &Receiver<Event>,
    app: &mut App,
    mut record: Option<&mut File>,
) -> Result<()> {
    while !app.has_quit() {
        terminal.draw(|frame| screen::draw(frame, app)).context("cannot draw")?;
        let first = match events.recv_timeout(TICK) {
            Ok(event) => event,
            Err(RecvTimeoutError::Timeout) => continue,
            Err(RecvTimeoutError::Disconnected) => break,
        };
        for event in [first].into_iter().chain(events.try_iter().take(BACKLOG)) {
            if let (Some(file), Event::Metrics(metrics)) = (record.as_mut(), &event) {
                let line = serde_json::to_string(metrics)? + "\n";
                file.write_all(line.as_bytes()).context("cannot record")?;
            }
            app.on(event)?;
        }
    }
    Ok(())
}

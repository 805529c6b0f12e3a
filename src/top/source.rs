// SPDX-License-Identifier: GPL-2.0-only
//! A thread that reads statistics from the socket or a recording, for [`Event`]s, by [`Control`]s.

use std::fs::File;
use std::io::{BufRead, BufReader, Lines};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender, SyncSender};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};

use super::{Event, TopOpts};
use crate::stats::monitor::RETRY;
use crate::stats::{Client, Metrics};

/// The first figures appear after this time, however long the interval is.
const FIRST: Duration = Duration::from_millis(500);

/// A request of the user for the source.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Control {
    /// Time between two requests to the scheduler.
    Interval(Duration),
    /// Speed relative to the recording.
    Speed(f64),
    Pause(bool),
}

/// Channels and settings of a source.
struct Watched {
    events: SyncSender<Event>,
    controls: Receiver<Control>,
    interval: Duration,
    speed: f64,
    paused: bool,
}

/// Error that ends a source: the receiver of its events has exited.
struct Left;

/// Start the thread. Fails if the recording cannot be opened.
pub fn start(opts: &TopOpts, events: SyncSender<Event>) -> Result<Sender<Control>> {
    let (sender, controls) = mpsc::channel();
    let interval = Duration::from_secs_f64(opts.interval);
    let watched = Watched { events, controls, interval, speed: 1.0, paused: false };
    match &opts.replay {
        Some(path) => {
            let recording = Recording::open(path)?;
            thread::spawn(move || replay(recording, watched));
        }
        None => drop(thread::spawn(move || follow(watched))),
    }
    Ok(sender)
}

impl Watched {
    fn send(&self, event: Event) -> Result<(), Left> {
        self.events.send(event).map_err(|_| Left)
    }

    /// Wait until the time `due`, which depends on the settings. None: until a setting changes.
    fn wait(&mut self, due: impl Fn(&Self) -> Option<Instant>) -> Result<(), Left> {
        loop {
            let control = match due(self) {
                Some(due) => self.controls.recv_timeout(due.saturating_duration_since(Instant::now())),
                None => self.controls.recv().map_err(|_| RecvTimeoutError::Disconnected),
            };
            match control {
                Ok(Control::Interval(interval)) => self.interval = interval,
                Ok(Control::Speed(speed)) => self.speed = speed,
                Ok(Control::Pause(paused)) => self.paused = paused,
                Err(RecvTimeoutError::Timeout) => return Ok(()),
                Err(RecvTimeoutError::Disconnected) => return Err(Left),
            }
        }
    }
}

/// Read the statistics of the running scheduler and of the next ones. A pause does not stop it.
fn follow(mut watched: Watched) -> Result<(), Left> {
    loop {
        match Client::connect() {
            Ok(Some(client)) => read(client, &mut watched)?,
            Ok(None) => watched.send(Event::Absent)?,
            Err(err) => return watched.send(Event::Failed(err)),
        }
        let retry = Instant::now() + RETRY;
        watched.wait(|_| Some(retry))?;
    }
}

/// Read until the connection ends. The first reply has no length.
fn read(mut client: Client, watched: &mut Watched) -> Result<(), Left> {
    let mut is_first = true;
    loop {
        let asked_at = Instant::now();
        match client.read() {
            Ok(Some(_)) if is_first => (),
            Ok(Some(metrics)) => watched.send(Event::Metrics(Box::new(metrics)))?,
            Ok(None) => return Ok(()),
            Err(err) => return watched.send(Event::Failed(err)),
        }
        let longest = if is_first { FIRST } else { Duration::MAX };
        is_first = false;
        watched.wait(|watched| Some(asked_at + watched.interval.min(longest)))?;
    }
}

/// A recording: lines of JSON.
struct Recording {
    path: PathBuf,
    lines: Lines<BufReader<File>>,
    line: usize,
}

impl Recording {
    fn open(path: &Path) -> Result<Self> {
        let file = File::open(path).with_context(|| format!("cannot replay {}", path.display()))?;
        Ok(Self { path: path.to_owned(), lines: BufReader::new(file).lines(), line: 0 })
    }

    fn next(&mut self) -> Result<Option<Metrics>> {
        self.line += 1;
        let Some(text) = self.lines.next().transpose()? else { return Ok(None) };
        let metrics = serde_json::from_str(&text)
            .with_context(|| format!("{} line {} is not a line that --record wrote", self.path.display(), self.line))?;
        Ok(Some(metrics))
    }
}

/// Replay a recording at its own intervals.
fn replay(mut recording: Recording, mut watched: Watched) -> Result<(), Left> {
    loop {
        let metrics = match recording.next() {
            Ok(Some(metrics)) => metrics,
            Ok(None) => return watched.send(Event::End),
            Err(err) => return watched.send(Event::Failed(err)),
        };
        let interval = Duration::from_millis(metrics.interval_ms);
        watched.send(Event::Metrics(Box::new(metrics)))?;
        let shown_at = Instant::now();
        let due = move |watched: &Watched| (!watched.paused).then(|| shown_at + interval.div_f64(watched.speed));
        watched.wait(due)?;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    /// Return the events of a replay of `text`.
    fn played(text: &str, controls: &[Control]) -> Vec<Event> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("recording");
        fs::write(&path, text).unwrap();
        let (events, received) = mpsc::sync_channel(1);
        let opts = TopOpts { interval: 1.0, record: None, replay: Some(path) };
        let source = start(&opts, events).unwrap();
        controls.iter().for_each(|control| source.send(*control).unwrap());
        received.iter().collect()
    }

    fn line(interval_ms: u64) -> String {
        serde_json::to_string(&Metrics { interval_ms, ..Metrics::default() }).unwrap() + "\n"
    }

    #[test]
    fn recordings_play_to_their_end() {
        // At the recorded pace the replay would take ten hours.
        let text = [line(36_000_000), line(7)].concat();
        let events = played(&text, &[Control::Pause(true), Control::Speed(1e9), Control::Pause(false)]);
        let [Event::Metrics(first), Event::Metrics(second), Event::End] = &events[..] else {
            panic!("{}", events.len())
        };
        assert_eq!((first.interval_ms, second.interval_ms), (36_000_000, 7));
    }

    #[test]
    fn what_is_no_recording_is_said_with_its_line() {
        let events = played(&[line(1), "{}\n".into()].concat(), &[]);
        let Some(Event::Failed(err)) = events.last() else { panic!("no error") };
        assert!(format!("{err:#}").contains("recording line 2 is not a line that --record wrote"), "{err:#}");
        let opts = TopOpts { interval: 1.0, record: None, replay: Some("/nonexistent".into()) };
        assert!(start(&opts, mpsc::sync_channel(1).0).unwrap_err().to_string().contains("cannot replay /nonexistent"));
    }
}

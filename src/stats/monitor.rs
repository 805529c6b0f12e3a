// SPDX-License-Identifier: GPL-2.0-only
//! Print statistics, which are read from the socket.

use std::io::Write;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::Result;
use log::info;

use super::table::{Table, TableOpts};
use super::{Client, Metrics, SOCKET};

/// Pause between attempts to connect.
pub const RETRY: Duration = Duration::from_millis(100);

/// How long a scheduler may take to start before the user is notified.
const PATIENCE: Duration = Duration::from_secs(1);

/// The scheduler whose statistics are printed.
#[derive(Clone, Copy, PartialEq)]
pub enum Source {
    /// This process, which logs its own starts and failures.
    Own,
    Other,
}

/// Output format of statistics.
pub enum Format {
    /// A line of JSON each interval.
    Json,
    Table(Table),
}

impl Format {
    pub fn new(json: bool, table: &TableOpts) -> Self {
        if json { Self::Json } else { Self::Table(Table::new(table)) }
    }

    /// Print an interval. The `first` of a connection has no length, so it contains no rates.
    fn print(&mut self, metrics: &Metrics, first: bool) -> Result<()> {
        let mut out = std::io::stdout().lock();
        match self {
            Self::Json => writeln!(out, "{}", serde_json::to_string(metrics)?)?,
            Self::Table(_) if first => (),
            Self::Table(table) => table.print(metrics, &mut out)?,
        }
        Ok(out.flush()?)
    }
}

/// Print statistics each `interval` until `shutdown`. Wait for a scheduler, also after one exited.
pub fn monitor(source: Source, interval: Duration, mut format: Format, shutdown: &AtomicBool) -> Result<()> {
    let mut gone_at = Instant::now();
    let mut is_told = false;
    while !shutdown.load(Ordering::Relaxed) {
        match Client::connect() {
            Ok(Some(mut client)) => {
                if follow(&mut client, interval, &mut format, shutdown)? > 0 {
                    (gone_at, is_told) = (Instant::now(), false);
                }
            }
            Err(err) if source == Source::Other => return Err(err),
            Ok(None) | Err(_) => (),
        }
        if source == Source::Other && !is_told && gone_at.elapsed() >= PATIENCE {
            info!("waiting for scx_magpie to be attached: nothing serves statistics at {SOCKET}");
            is_told = true;
        }
        thread::sleep(RETRY);
    }
    Ok(())
}

/// Print the client's statistics until they end. Return the number of replies.
fn follow(client: &mut Client, interval: Duration, format: &mut Format, shutdown: &AtomicBool) -> Result<usize> {
    let mut read = 0;
    while !shutdown.load(Ordering::Relaxed) {
        let Some(metrics) = client.read()? else { break };
        format.print(&metrics, read == 0)?;
        read += 1;
        thread::sleep(interval);
    }
    Ok(read)
}

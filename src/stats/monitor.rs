// SPDX-License-Identifier: GPL-2.0-only
//! Prints statistics, by way of the socket.

use std::io::{ErrorKind, Write};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use log::info;
use scx_stats::prelude::*;

use super::{Metrics, SOCKET};
use crate::preflight::Refusal;

/// Until a scheduler is looked for again.
const RETRY: Duration = Duration::from_millis(100);

/// How long a scheduler may take to come, or to start anew, before the user is told.
const PATIENCE: Duration = Duration::from_secs(1);

/// The scheduler whose statistics are printed.
#[derive(Clone, Copy, PartialEq)]
pub enum Source {
    /// This process's, which says itself what becomes of it.
    Own,
    Other,
}

/// Prints statistics each `interval`, until `shutdown`. Waits for the scheduler, also after it went.
pub fn monitor(source: Source, interval: Duration, json: bool, shutdown: &AtomicBool) -> Result<()> {
    let mut gone_at = Instant::now();
    let mut is_told = false;
    while !shutdown.load(Ordering::Relaxed) {
        match StatsClient::new().set_path(SOCKET).connect(None) {
            Ok(mut client) => {
                if follow(&mut client, interval, json, shutdown)? > 0 {
                    (gone_at, is_told) = (Instant::now(), false);
                }
            }
            Err(err) if source == Source::Other => check_absent(err)?,
            Err(_) => (),
        }
        if source == Source::Other && !is_told && gone_at.elapsed() >= PATIENCE {
            info!("waiting for scx_magpie to be attached: nothing serves statistics at {SOCKET}");
            is_told = true;
        }
        thread::sleep(RETRY);
    }
    Ok(())
}

/// Prints what the client gets until there is no more. Returns how often.
fn follow(client: &mut StatsClient, interval: Duration, json: bool, shutdown: &AtomicBool) -> Result<usize> {
    let mut printed = 0;
    while !shutdown.load(Ordering::Relaxed) {
        match client.request("stats", vec![]) {
            Ok(metrics) => print(&metrics, json)?,
            Err(err) if is_foreign(&err) => {
                bail!("what serves statistics at {SOCKET} is not scx_magpie of this version: {err}")
            }
            // The scheduler is gone, or starts anew.
            Err(_) => break,
        }
        printed += 1;
        thread::sleep(interval);
    }
    Ok(printed)
}

fn print(metrics: &Metrics, json: bool) -> Result<()> {
    let mut out = std::io::stdout().lock();
    if json {
        writeln!(out, "{}", serde_json::to_string(metrics)?)?;
    } else {
        metrics.format(&mut out)?;
    }
    Ok(out.flush()?)
}

/// Fails if a scheduler that comes would not change that.
fn check_absent(err: anyhow::Error) -> Result<()> {
    match err.downcast_ref::<std::io::Error>().map(std::io::Error::kind) {
        Some(ErrorKind::NotFound | ErrorKind::ConnectionRefused) => Ok(()),
        Some(ErrorKind::PermissionDenied) => Err(Refusal::NotRoot.into()),
        _ => Err(err)
            .with_context(|| format!("no scheduler can serve statistics at {SOCKET}, remove what is in the way")),
    }
}

/// A reply that came as a whole, and is not what ours looks like.
fn is_foreign(err: &anyhow::Error) -> bool {
    err.downcast_ref::<serde_json::Error>().is_some_and(serde_json::Error::is_data)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_that_waiting_does_not_mend() {
        let of_kind = |kind| check_absent(std::io::Error::from(kind).into());
        assert!(of_kind(ErrorKind::NotFound).is_ok());
        assert!(of_kind(ErrorKind::ConnectionRefused).is_ok());
        let refusal = of_kind(ErrorKind::PermissionDenied).unwrap_err();
        assert_eq!(refusal.downcast_ref(), Some(&Refusal::NotRoot));
        assert!(of_kind(ErrorKind::NotADirectory).unwrap_err().to_string().contains(SOCKET));
    }

    #[test]
    fn replies_of_others_are_told_from_replies_cut_short() {
        let error_of = |text| serde_json::from_str::<Metrics>(text).unwrap_err().into();
        assert!(is_foreign(&error_of(r#"{"name": "another scheduler"}"#)));
        assert!(!is_foreign(&error_of(r#"{"name": "#)));
        assert!(!is_foreign(&anyhow::anyhow!("connection closed")));
    }
}

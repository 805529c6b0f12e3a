// SPDX-License-Identifier: GPL-2.0-only
//! Notify a service manager (sd_notify) that the scheduler is attached and that the loader is
//! alive. Without a service manager nothing happens.

use std::time::{Duration, Instant};

use log::warn;
use sd_notify::NotifyState;

/// Return true if a service manager runs this process. It restarts it after a failure.
pub fn is_managed() -> bool {
    std::env::var_os("NOTIFY_SOCKET").is_some()
}

/// Report that the scheduler is attached. `systemctl status` shows `status`.
pub fn ready(status: &str) {
    notify(&[NotifyState::Ready, NotifyState::Status(status)]);
}

fn notify(state: &[NotifyState<'_>]) {
    if let Err(err) = sd_notify::notify(state) {
        warn!("cannot notify the service manager: {err}");
    }
}

/// Report to the service manager in time that the loader is alive, if it asks (WatchdogSec=).
pub struct Watchdog {
    interval: Option<Duration>,
    due: Instant,
}

impl Watchdog {
    pub fn from_env() -> Self {
        Self::of(sd_notify::watchdog_enabled())
    }

    /// Create a watchdog that reports twice in each `limit`.
    fn of(limit: Option<Duration>) -> Self {
        Self { interval: limit.map(|limit| limit / 2), due: Instant::now() }
    }

    pub fn pet(&mut self, now: Instant) {
        if self.is_due(now) {
            notify(&[NotifyState::Watchdog]);
        }
    }

    fn is_due(&mut self, now: Instant) -> bool {
        let Some(interval) = self.interval else { return false };
        let is_due = now >= self.due;
        if is_due {
            self.due = now + interval;
        }
        is_due
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_watchdog_hears_twice_in_its_time() {
        let mut watchdog = Watchdog::of(Some(Duration::from_secs(10)));
        let start = watchdog.due;
        let due = [0, 4, 5, 9, 12].map(|sec| watchdog.is_due(start + Duration::from_secs(sec)));
        assert_eq!(due, [true, false, true, false, true]);
        assert!(!Watchdog::of(None).is_due(Instant::now()));
    }
}

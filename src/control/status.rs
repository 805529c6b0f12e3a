// SPDX-License-Identifier: GPL-2.0-only
//! `scx_magpie status`: one line.

use std::fmt;
use std::time::{Duration, SystemTime};

use clap::ValueEnum;
use serde::{Deserialize, Serialize};

use super::failures;
use crate::config::Settings;
use crate::preflight;
use crate::tunables;

/// What is known of a scheduler that runs.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Status {
    version: String,
    kernel: String,
    pid: u32,
    /// When the process started. Seconds since 1970.
    since: u64,
    nr_starts: usize,
    nr_cgroups: u32,
    max_cgroups: u32,
    profile: String,
    /// Flags that do not have their default.
    nr_changed: usize,
    failures: String,
}

impl Status {
    pub fn new(since: SystemTime, nr_starts: usize, nr_cgroups: u32, settings: &Settings) -> Self {
        let profile = settings.profile.to_possible_value();
        Self {
            version: crate::version(),
            kernel: preflight::release(),
            pid: std::process::id(),
            since: since.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_secs(),
            nr_starts,
            nr_cgroups,
            max_cgroups: settings.tunables.max_cgroups,
            profile: profile.map_or_else(String::new, |profile| profile.get_name().into()),
            nr_changed: tunables::changed(settings).len(),
            failures: failures::summary(),
        }
    }
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let since = SystemTime::UNIX_EPOCH + Duration::from_secs(self.since);
        let uptime = Duration::from_secs(since.elapsed().unwrap_or_default().as_secs());
        write!(
            f,
            "running since {} ({}), ",
            humantime::format_rfc3339_seconds(since),
            humantime::format_duration(uptime)
        )?;
        write!(f, "pid {}, {} on {}, ", self.pid, self.version, self.kernel)?;
        write!(f, "profile {}, flags not default: {}, ", self.profile, self.nr_changed)?;
        write!(f, "starts: {}, cgroups: {} of {}, ", self.nr_starts, self.nr_cgroups, self.max_cgroups)?;
        write!(f, "{}", self.failures)
    }
}

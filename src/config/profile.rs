// SPDX-License-Identifier: GPL-2.0-only
//! Profiles: named sets of flags. `docs/configuration.md` has what was measured of each.

use clap::ValueEnum;
use serde::Serialize;

/// What the machine is for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Profile {
    /// No flags: a bit of everything
    #[default]
    Default,
    /// Tasks that wake by a timer, a device or a futex run sooner beside busy ones
    Latency,
}

impl Profile {
    /// What a profile of that name sets, by key.
    pub fn values(name: &str) -> &'static [(&'static str, &'static str)] {
        match Self::from_str(name, false) {
            Ok(Self::Latency) => &[("slice-us-lag", "18000")],
            Ok(Self::Default) | Err(_) => &[],
        }
    }
}

// SPDX-License-Identifier: GPL-2.0-only
//! The flags that are keys of the configuration; and profiles, which are named sets of them. `docs/configuration.md` has what
//! was measured of each.

use clap::{Args, ValueEnum, value_parser};
use serde::Serialize;

use crate::logging::{VARIABLE, parse_level};
use crate::tunables::{NEW_START, Tunables};

/// By key.
#[derive(Clone, Debug, Args, Serialize)]
pub struct Settings {
    /// A set of flags, for those that are not given one by one.
    #[arg(long, value_enum, default_value_t)]
    pub profile: Profile,

    #[command(flatten)]
    #[serde(flatten)]
    pub tunables: Tunables,

    /// Length of the exit dump, 0 = the kernel's default. Bytes, 0..16777216.
    #[arg(long, help_heading = NEW_START, default_value_t = 0, value_name = "BYTES", value_parser = value_parser!(u32).range(0..=16 << 20))]
    pub exit_dump_len: u32,

    /// Which messages are logged: off, error, warn, info, debug, trace, or by module, as in warn,scx_magpie::numa=debug.
    #[arg(long, env = VARIABLE, default_value = "info", value_name = "LEVEL", value_parser = parse_level)]
    pub log_level: String,
}

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

// SPDX-License-Identifier: GPL-2.0-only
//! The flags that are keys of the configuration, and profiles, which are named sets of flags.
//! `docs/configuration.md` has measurements of each profile.

use clap::{Args, ValueEnum, value_parser};
use serde::Serialize;

use crate::logging::{VARIABLE, parse_level};
use crate::tunables::{NEW_START, Tunables};

/// By key.
#[derive(Clone, Debug, Args, Serialize)]
pub struct Settings {
    /// Use a named set of flags for what this machine is for.
    ///
    /// A value that is given for a flag itself overrides the profile. docs/configuration.md has
    /// what was measured of each profile.
    ///
    /// Example: --profile latency
    #[arg(long, value_enum, default_value_t)]
    pub profile: Profile,

    #[command(flatten)]
    #[serde(flatten)]
    pub tunables: Tunables,

    /// Reserve this many bytes for the dump that the kernel writes when it ejects the scheduler.
    ///
    /// Unit: bytes. Range: 0..16777216; 0 is the kernel's default of 32768. Raise it if the dump in
    /// a bug report is cut off.
    ///
    /// Example: --exit-dump-len 1048576
    #[arg(long, help_heading = NEW_START, default_value_t = 0, value_name = "BYTES", value_parser = value_parser!(u32).range(0..=16 << 20))]
    pub exit_dump_len: u32,

    /// Log messages of this level and above.
    ///
    /// Levels: off, error, warn, info, debug, trace; or levels by module. Use debug for a bug
    /// report.
    ///
    /// Example: --log-level warn,scx_magpie::numa=debug
    #[arg(long, env = VARIABLE, default_value = "info", value_name = "LEVEL", value_parser = parse_level)]
    pub log_level: String,
}

/// Purpose of the machine: a named set of flags.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Profile {
    /// Set no flags: the defaults are for mixed loads
    #[default]
    Default,
    /// Run tasks sooner that a timer, a device or a futex woke, alongside busy ones
    Latency,
}

impl Profile {
    /// Return the values that a profile sets, by key.
    pub fn values(name: &str) -> &'static [(&'static str, &'static str)] {
        match Self::from_str(name, false) {
            Ok(Self::Latency) => &[("slice-us-lag", "18000")],
            Ok(Self::Default) | Err(_) => &[],
        }
    }
}

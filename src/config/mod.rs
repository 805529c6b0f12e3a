// SPDX-License-Identifier: GPL-2.0-only
//! The configuration of the scheduler, and the source of each value.
//!
//! ```text
//! weakest                                                                          strongest
//! default < profile < file < environment < command line < `scx_magpie set`, until it ends or reloads
//!    \__________________ by key, as text __________________/
//!                             |  the parsers of the flags (keys)
//!                          Settings
//! ```
//!
//! A profile may be named in any of these places. Any value that is given for a key overrides it.

mod file;
pub mod keys;
mod settings;

use std::collections::BTreeMap;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::{fmt, fs};

use anyhow::{Result, anyhow, bail};
use clap::ArgMatches;
use clap::parser::ValueSource;
use serde::{Deserialize, Serialize};

pub use file::DEFAULT as DEFAULT_FILE;
pub use settings::{Profile, Settings};

use crate::exit::Refusal;

/// Key of the profile.
const PROFILE: &str = "profile";

/// Source of a value.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Origin {
    Default,
    Profile(String),
    File { path: PathBuf, line: usize },
    Environment(String),
    CommandLine,
    Set,
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Default => write!(f, "default"),
            Self::Profile(name) => write!(f, "profile {name}"),
            Self::File { path, line } => write!(f, "{}:{line}", path.display()),
            Self::Environment(name) => write!(f, "environment, {name}"),
            Self::CommandLine => write!(f, "command line"),
            Self::Set => write!(f, "set"),
        }
    }
}

/// A checked value as text, in the syntax of a flag.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Setting {
    pub value: String,
    pub origin: Origin,
}

/// Values from one source, by key.
type Layer = BTreeMap<String, Setting>;

/// Device, inode and time of the last change of a file.
pub type Stamp = (u64, u64, i64, i64);

/// Values from all sources.
#[derive(Clone, Debug)]
pub struct Config {
    path: PathBuf,
    /// What the file was when it was read.
    read: Option<Stamp>,
    file: Layer,
    command_line: Layer,
    set: Layer,
}

impl Config {
    /// Read the file. `matches` are from the entire command line.
    pub fn new(matches: &ArgMatches, path: &Path) -> Result<Self> {
        let mut command_line = Layer::new();
        for key in keys::all() {
            let Some((source, value)) = keys::given(matches, &key) else { continue };
            let origin = match source {
                ValueSource::EnvVariable => Origin::Environment(keys::variable(&key).unwrap_or_default()),
                _ => Origin::CommandLine,
            };
            command_line.insert(key, Setting { value: value.into(), origin });
        }
        let mut config = Self { path: path.into(), read: None, file: Layer::new(), command_line, set: Layer::new() };
        config.reload()?;
        Ok(config)
    }

    /// Read the file again and drop the values of `set`. Changes nothing if the file is wrong.
    pub fn reload(&mut self) -> Result<()> {
        self.read = self.stamp();
        self.file = file::read(&self.path).map_err(usage)?;
        self.set.clear();
        Ok(())
    }

    /// Return what identifies the content of the file now. None: there is no file.
    pub fn stamp(&self) -> Option<Stamp> {
        let file = fs::metadata(&self.path).ok()?;
        Some((file.dev(), file.ino(), file.mtime(), file.mtime_nsec()))
    }

    /// Return the same as it was before the file was read.
    pub fn read_stamp(&self) -> Option<Stamp> {
        self.read
    }

    /// Apply `KEY=VALUE`s. If one is wrong, none is applied.
    pub fn set(&mut self, changes: &[String]) -> Result<()> {
        let mut set = self.set.clone();
        for change in changes {
            let Some((name, value)) = change.split_once('=') else {
                bail!(Refusal::Usage { problem: format!("'{change}' is not of the form KEY=VALUE") });
            };
            let key = keys::canonical(name.trim()).and_then(|key| keys::check(&key, value.trim()).map(|()| key));
            let key = key.map_err(|problem| Refusal::Usage { problem })?;
            set.insert(key, Setting { value: value.trim().into(), origin: Origin::Set });
        }
        self.set = set;
        Ok(())
    }

    /// Drop the values of `set`.
    pub fn reset(&mut self) {
        self.set.clear();
    }

    /// Return the value in force for each key, in the order of `--help`.
    pub fn values(&self) -> Vec<(String, Setting)> {
        let given = |key: &str| {
            [&self.set, &self.command_line, &self.file].into_iter().find_map(|layer| layer.get(key).cloned())
        };
        let name = given(PROFILE).map_or_else(|| keys::default_of(PROFILE), |profile| profile.value);
        let of_profile = |key: &str| {
            let (_, value) = Profile::values(&name).iter().find(|(profile_key, _)| *profile_key == key)?;
            Some(Setting { value: value.to_string(), origin: Origin::Profile(name.clone()) })
        };
        let default = |key: &str| Setting { value: keys::default_of(key), origin: Origin::Default };
        let setting = |key: &str| given(key).or_else(|| of_profile(key)).unwrap_or_else(|| default(key));
        keys::all().into_iter().map(|key| (key.clone(), setting(&key))).collect()
    }

    /// Return the parsed values in force.
    pub fn settings(&self) -> Result<Settings> {
        let values = self.values();
        let values = values.iter().map(|(key, setting)| (key.as_str(), setting.value.as_str()));
        keys::settings(values).map_err(|problem| anyhow!(problem))
    }
}

/// Return the keys whose values differ, with both values.
pub fn changes(old: &Config, new: &Config) -> Vec<Change> {
    let pairs = old.values().into_iter().zip(new.values());
    let changes = pairs.map(|((key, from), (_, to))| Change { key, from: from.value, to: to.value });
    changes.filter(|change| change.from != change.to).collect()
}

/// A change of a value.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Change {
    pub key: String,
    pub from: String,
    pub to: String,
}

impl fmt::Display for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {} -> {}", self.key, self.from, self.to)
    }
}

/// Format all values as a configuration file. Comments name the source of each.
pub fn as_file(values: &[(String, Setting)]) -> String {
    let lines = values.iter().map(|(key, setting)| (format!("{key} = {}", as_toml(&setting.value)), &setting.origin));
    let lines: Vec<_> = lines.collect();
    let width = lines.iter().map(|(line, _)| line.len()).max().unwrap_or_default();
    lines.iter().map(|(line, origin)| format!("{line:width$}  # {origin}\n")).collect()
}

fn as_toml(value: &str) -> String {
    match value.parse::<i64>().is_ok() || value.parse::<bool>().is_ok() {
        true => value.into(),
        false => toml::Value::from(value).to_string(),
    }
}

fn usage(err: anyhow::Error) -> anyhow::Error {
    Refusal::Usage { problem: format!("{err:#}") }.into()
}

#[cfg(test)]
mod tests;

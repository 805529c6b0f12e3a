// SPDX-License-Identifier: GPL-2.0-only
//! Keys of the configuration: the flags of [`Settings`]. clap's parsers check all values.

use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{Arg, ArgMatches, Args, Command, FromArgMatches};

use super::Settings;
use crate::tunables::NEW_START;

/// Return all keys, in the order of `--help`.
pub fn all() -> Vec<String> {
    command().get_arguments().filter_map(|arg| arg.get_long().map(str::to_string)).collect()
}

/// Return the default of a key as text, in the syntax of a flag.
pub fn default_of(key: &str) -> String {
    let defaults = |arg: &Arg| arg.get_default_values().first().map(|value| value.to_string_lossy().into_owned());
    find(&command(), key).and_then(defaults).unwrap_or_default()
}

/// Return true if a change of the key needs a reload of the program.
pub fn needs_new_start(key: &str) -> bool {
    find(&command(), key).is_some_and(|arg| arg.get_help_heading() == Some(NEW_START))
}

/// Return the key for `text`: `slice_us` is `--slice-us`. Fails, naming the nearest key.
pub fn canonical(text: &str) -> Result<String, String> {
    let key = text.replace('_', "-");
    if find(&command(), &key).is_some() {
        return Ok(key);
    }
    let err = command().try_get_matches_from(["", &format!("--{key}")]).err();
    let nearest = err.as_ref().and_then(|err| match err.get(ContextKind::SuggestedArg)? {
        ContextValue::String(flag) => Some(flag.trim_start_matches('-')),
        _ => None,
    });
    Err(match nearest {
        Some(nearest) => format!("unknown key '{text}': the nearest one is '{nearest}'"),
        None => format!("unknown key '{text}': a key is a flag of --help without its dashes"),
    })
}

/// Check a value. Fails with clap's message for that flag.
pub fn check(key: &str, value: &str) -> Result<(), String> {
    settings([(key, value)]).map(drop)
}

/// Parse these values; other keys have their defaults.
pub fn settings<'a>(values: impl IntoIterator<Item = (&'a str, &'a str)>) -> Result<Settings, String> {
    let flags = values.into_iter().map(|(key, value)| format!("--{key}={value}"));
    let parsed = command().try_get_matches_from(std::iter::once(String::new()).chain(flags));
    parsed.and_then(|matches| Settings::from_arg_matches(&matches)).map_err(|err| first_line(&err))
}

/// Return the first line of an error. The other lines refer to `--help`.
pub fn first_line(err: &clap::Error) -> String {
    let text = err.to_string();
    let mut lines = text.lines().map(|line| line.trim().trim_start_matches("error: "));
    let line = lines.next().unwrap_or_default().to_string();
    match err.kind() {
        // The next line names the argument.
        ErrorKind::MissingRequiredArgument => format!("{line} {}", lines.next().unwrap_or_default()),
        _ => line,
    }
}

/// Return the command line's value of a key and its source; None if it is the default.
pub fn given<'a>(matches: &'a ArgMatches, key: &str) -> Option<(clap::parser::ValueSource, &'a str)> {
    let command = command();
    let id = find(&command, key)?.get_id().as_str();
    let source = matches.value_source(id).filter(|source| *source != clap::parser::ValueSource::DefaultValue)?;
    Some((source, matches.get_raw(id)?.next_back()?.to_str()?))
}

/// Return the environment variable of a key, if it has one.
pub fn variable(key: &str) -> Option<String> {
    find(&command(), key)?.get_env().map(|name| name.to_string_lossy().into_owned())
}

fn command() -> Command {
    Settings::augment_args(Command::new("").disable_help_flag(true))
}

fn find<'a>(command: &'a Command, key: &str) -> Option<&'a Arg> {
    command.get_arguments().find(|arg| arg.get_long() == Some(key))
}

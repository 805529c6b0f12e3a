// SPDX-License-Identifier: GPL-2.0-only
//! The keys of the configuration: the flags of [`Settings`], as clap knows them. Their parsers check a value wherever it comes from.

use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{Arg, ArgMatches, Args, Command, FromArgMatches};

use super::Settings;
use crate::tunables::NEW_START;

/// All keys, in the order of `--help`.
pub fn all() -> Vec<String> {
    command().get_arguments().filter_map(|arg| arg.get_long().map(str::to_string)).collect()
}

/// The default of a key, as one would write it.
pub fn default_of(key: &str) -> String {
    let defaults = |arg: &Arg| arg.get_default_values().first().map(|value| value.to_string_lossy().into_owned());
    find(&command(), key).and_then(defaults).unwrap_or_default()
}

/// True if a change of it takes a new start of the scheduler.
pub fn needs_new_start(key: &str) -> bool {
    find(&command(), key).is_some_and(|arg| arg.get_help_heading() == Some(NEW_START))
}

/// The key that is meant: `slice_us` is `--slice-us`. Fails with the nearest one if there is none.
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

/// Fails with what the command line would say of that flag.
pub fn check(key: &str, value: &str) -> Result<(), String> {
    settings([(key, value)]).map(drop)
}

/// The settings by these values, and defaults.
pub fn settings<'a>(values: impl IntoIterator<Item = (&'a str, &'a str)>) -> Result<Settings, String> {
    let flags = values.into_iter().map(|(key, value)| format!("--{key}={value}"));
    let parsed = command().try_get_matches_from(std::iter::once(String::new()).chain(flags));
    parsed.and_then(|matches| Settings::from_arg_matches(&matches)).map_err(|err| first_line(&err))
}

/// The line of an error that says it all; the others point to `--help`.
pub fn first_line(err: &clap::Error) -> String {
    let text = err.to_string();
    let mut lines = text.lines().map(|line| line.trim().trim_start_matches("error: "));
    let line = lines.next().unwrap_or_default().to_string();
    match err.kind() {
        // Which, it says in the next.
        ErrorKind::MissingRequiredArgument => format!("{line} {}", lines.next().unwrap_or_default()),
        _ => line,
    }
}

/// The value that a command line has for a key, unless that is the default.
pub fn given<'a>(matches: &'a ArgMatches, key: &str) -> Option<(clap::parser::ValueSource, &'a str)> {
    let command = command();
    let id = find(&command, key)?.get_id().as_str();
    let source = matches.value_source(id).filter(|source| *source != clap::parser::ValueSource::DefaultValue)?;
    Some((source, matches.get_raw(id)?.next_back()?.to_str()?))
}

/// The variable of the environment that a key may come from.
pub fn variable(key: &str) -> Option<String> {
    find(&command(), key)?.get_env().map(|name| name.to_string_lossy().into_owned())
}

fn command() -> Command {
    Settings::augment_args(Command::new("").disable_help_flag(true))
}

fn find<'a>(command: &'a Command, key: &str) -> Option<&'a Arg> {
    command.get_arguments().find(|arg| arg.get_long() == Some(key))
}

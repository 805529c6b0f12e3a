// SPDX-License-Identifier: GPL-2.0-only
//! Messages on stderr and their levels: `--log-level`, `RUST_LOG`, `-v`.

use std::io::IsTerminal;
use std::sync::OnceLock;

use anyhow::{Context, Result};
use libbpf_rs::PrintLevel;
use log::LevelFilter;
use tracing_subscriber::fmt::time;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{EnvFilter, Registry, fmt, reload};

use crate::SCHEDULER_NAME;

pub const VARIABLE: &str = "RUST_LOG";

static FILTER: OnceLock<reload::Handle<EnvFilter, Registry>> = OnceLock::new();

/// Start logging at `level`. `verbose`: at debug, with libbpf's verifier logs, and with uptimes.
pub fn start(level: &str, verbose: bool) {
    let (filter, handle) = reload::Layer::new(filter(if verbose { "debug" } else { level }));
    let lines = fmt::layer().with_writer(std::io::stderr).with_ansi(std::io::stderr().is_terminal()).with_target(false);
    let log = tracing_subscriber::registry().with(filter);
    if verbose {
        log.with(lines.with_timer(time::uptime())).init();
        scx_utils::init_libbpf_logging(Some(PrintLevel::Debug));
    } else {
        log.with(lines.without_time()).init();
        libbpf_rs::set_print(None);
    }
    _ = FILTER.set(handle);
}

/// Change the level of later messages.
pub fn set_level(level: &str) -> Result<()> {
    FILTER.get().map_or(Ok(()), |handle| handle.reload(filter(level))).context("cannot change the log level")
}

/// Remove RUST_LOG from the environment if it does not parse: it may be meant for another program.
/// Return the problem, unless the variable is empty.
///
/// # Safety
/// No other thread may run yet.
pub unsafe fn drop_strange_variable() -> Option<String> {
    let value = std::env::var_os(VARIABLE)?.to_string_lossy().into_owned();
    let problem = parse_level(&value).err()?;
    // SAFETY: guaranteed by the caller.
    unsafe { std::env::remove_var(VARIABLE) };
    (!value.is_empty()).then_some(problem)
}

/// Return the text with control characters escaped, except tabs: names of tasks and cgroups may
/// contain terminal commands.
pub fn printable(text: &str) -> String {
    let mut printable = String::with_capacity(text.len());
    for c in text.chars() {
        if c.is_control() && c != '\t' {
            printable.extend(c.escape_default());
        } else {
            printable.push(c);
        }
    }
    printable
}

/// Check a level, or filters by module in the syntax of the crate tracing-subscriber.
pub fn parse_level(text: &str) -> Result<String, String> {
    for part in text.split(',') {
        let is_level = part.parse::<LevelFilter>().is_ok();
        if !is_level && (!part.contains('=') || part.parse::<tracing_subscriber::filter::Directive>().is_err()) {
            return Err(format!(
                "'{part}' is neither a level (off, error, warn, info, debug, trace) nor of the form MODULE=LEVEL"
            ));
        }
    }
    Ok(text.into())
}

/// Return the filter. A level alone applies to this crate, and from debug on to libraries too.
fn filter(level: &str) -> EnvFilter {
    match level.parse() {
        // scx_stats warns about each client of statistics that disconnects.
        Ok(LevelFilter::Info | LevelFilter::Warn | LevelFilter::Error) => {
            EnvFilter::new(format!("warn,scx_stats=error,{SCHEDULER_NAME}={level}"))
        }
        _ => EnvFilter::new(level),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_do_not_command_a_terminal() {
        assert_eq!(
            printable("a\x1b[31mb\u{9b}1m\r\n\x7f\tc\u{fffd}é"),
            "a\\u{1b}[31mb\\u{9b}1m\\r\\n\\u{7f}\tc\u{fffd}é"
        );
    }

    #[test]
    fn levels() {
        for good in ["off", "info", "DEBUG", "warn,scx_magpie=trace", "scx_magpie::numa=debug"] {
            assert_eq!(parse_level(good).as_deref(), Ok(good));
        }
        for bad in ["", "inf", "scx_magpie", "info,", "scx_magpie=loud"] {
            assert!(parse_level(bad).is_err(), "{bad}");
        }
    }
}

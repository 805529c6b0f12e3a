// SPDX-License-Identifier: GPL-2.0-only
//! Clients: `scx_magpie status`, `config`, `set` and `reload`.

use std::io::ErrorKind;

use anyhow::{Context, Result, bail};
use scx_stats::prelude::*;

use super::{Reply, Request, SOCKET, status};
use crate::config::{Config, as_file};
use crate::exit::Refusal;
use crate::preflight::{self, sched_ext};

/// Timeout in milliseconds. It covers a restart of the scheduler.
const TIMEOUT: u64 = 60_000;

/// Print the answer of the running scheduler.
pub fn print(request: &Request) -> Result<()> {
    match ask(request)? {
        Reply::Status(status) => println!("{status}"),
        Reply::Waiting(ops) => println!("waiting: loaded, and attached as soon as {ops} is detached"),
        Reply::Config(values) => print!("{}", as_file(&values)),
        Reply::Changes { changes, new_start } => {
            changes.iter().for_each(|change| println!("{change}"));
            if changes.is_empty() {
                println!("nothing has changed");
            } else if new_start {
                println!("the scheduler is loaded again");
            }
        }
        Reply::Refused(problem) => bail!(Refusal::Usage { problem }),
    }
    Ok(())
}

/// Print the configuration in force; with `check`, or if no scheduler runs, `configure`'s.
pub fn print_config(check: bool, configure: impl FnOnce() -> Result<Config>) -> Result<()> {
    if !check {
        match print(&Request::Config) {
            Err(err) if matches!(err.downcast_ref(), Some(Refusal::NotRunning { .. })) => {
                eprintln!("no scx_magpie runs; a start now would use:");
            }
            result => return result,
        }
    }
    let config = configure()?;
    config.settings()?;
    print!("{}", as_file(&config.values()));
    Ok(())
}

fn ask(request: &Request) -> Result<Reply> {
    let mut client = StatsClient::new().set_path(SOCKET).connect(Some(TIMEOUT)).map_err(explain)?;
    let args = vec![("target".into(), "control".into()), ("request".into(), serde_json::to_string(request)?)];
    client.request("stats", args).with_context(|| {
        format!("cannot understand the answer at {SOCKET}: is the running scheduler of another version?")
    })
}

fn explain(err: anyhow::Error) -> anyhow::Error {
    match err.downcast_ref::<std::io::Error>().map(std::io::Error::kind) {
        Some(ErrorKind::NotFound | ErrorKind::ConnectionRefused) => Refusal::NotRunning { state: state() }.into(),
        Some(ErrorKind::PermissionDenied) => Refusal::NotRoot.into(),
        _ => err.context(format!("cannot connect to {SOCKET}")),
    }
}

/// Return the state of sched_ext in the kernel and the failures of earlier schedulers.
fn state() -> String {
    let kernel = match (sched_ext("state"), sched_ext("root/ops")) {
        (None, _) => "this kernel has no sched_ext".into(),
        (Some(_), Some(ops)) if ops.starts_with(preflight::OPS) => {
            format!("scx_magpie is attached, and serves no socket at {SOCKET}")
        }
        (Some(_), Some(ops)) => format!("another sched_ext scheduler is attached ({ops})"),
        (Some(state), None) => format!("sched_ext is {state}"),
    };
    format!("{kernel}; {}", status::summary())
}

// SPDX-License-Identifier: GPL-2.0-only
//! scx_magpie: a sched_ext scheduler. `docs/design.md` says how it works, `--help` how it is used.

mod bpf_intf;
mod bpf_skel;
mod cli;
mod pelt;
mod preflight;
mod publisher;
mod scheduler;
mod stats;
mod topology;
mod verifier_stats;

use std::mem::MaybeUninit;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result};
use clap::Parser;
use libbpf_rs::PrintLevel;
use log::{info, warn};
use scx_utils::build_id;

use cli::{Command, Opts};
use preflight::Refusal;
use scheduler::Scheduler;

pub const SCHEDULER_NAME: &str = "scx_magpie";

fn main() -> ExitCode {
    let opts = Opts::parse();
    match run(&opts) {
        Ok(()) => ExitCode::SUCCESS,
        Err(err) => {
            eprintln!("{SCHEDULER_NAME}: {err:#}");
            err.downcast_ref::<Refusal>().map_or(ExitCode::FAILURE, |refusal| refusal.exit_code().into())
        }
    }
}

fn run(opts: &Opts) -> Result<()> {
    if opts.version {
        println!("{SCHEDULER_NAME} {}", build_id::full_version(env!("CARGO_PKG_VERSION")));
        return Ok(());
    }
    if opts.help_stats {
        return stats::server_data().describe_meta(&mut std::io::stdout(), None);
    }
    start_logging(opts.verbose);

    match opts.command {
        Some(Command::Topology) => {
            print!("{}", topology::Layout::new(&scx_utils::Topology::new()?)?);
            Ok(())
        }
        Some(Command::VerifierStats) => {
            preflight::check()?;
            verifier_stats::print(opts)
        }
        None => {
            let shutdown = Arc::new(AtomicBool::new(false));
            let flag = shutdown.clone();
            ctrlc::set_handler(move || flag.store(true, Ordering::Relaxed)).context("cannot handle signals")?;
            if let Some(sec) = opts.monitor {
                return stats::monitor(Duration::from_secs_f64(sec), opts.json, shutdown);
            }
            schedule(opts, shutdown)
        }
    }
}

/// Runs the scheduler until it is told to stop or ejected, starting anew when the kernel asks for that, as it
/// does after a CPU came or went.
fn schedule(opts: &Opts, shutdown: Arc<AtomicBool>) -> Result<()> {
    preflight::check()?;
    info!("{SCHEDULER_NAME} {}", build_id::full_version(env!("CARGO_PKG_VERSION")));
    if let Some(sec) = opts.stats {
        let (json, shutdown) = (opts.json, shutdown.clone());
        thread::spawn(move || {
            if let Err(err) = stats::monitor(Duration::from_secs_f64(sec), json, shutdown) {
                warn!("statistics stopped: {err:#}");
            }
        });
    }
    loop {
        let mut object = MaybeUninit::uninit();
        let mut scheduler = Scheduler::load(opts, &mut object)?;
        scheduler.attach()?;
        if !scheduler.run(&shutdown)?.should_restart() {
            return Ok(());
        }
        info!("a CPU came or went: starting anew");
    }
}

/// Our messages on stderr; libbpf's only when asked for, for a failure prints the whole verifier log.
fn start_logging(verbose: bool) {
    let level = if verbose { tracing_subscriber::filter::LevelFilter::DEBUG } else { tracing_subscriber::filter::LevelFilter::INFO };
    tracing_subscriber::fmt().with_max_level(level).with_writer(std::io::stderr).with_target(false).without_time().init();
    if verbose {
        scx_utils::init_libbpf_logging(Some(PrintLevel::Debug));
    } else {
        libbpf_rs::set_print(None);
    }
}

// SPDX-License-Identifier: GPL-2.0-only
//! scx_magpie: a sched_ext scheduler. `docs/design.md` says how it works, `--help` how it is used.

use std::collections::BTreeMap;
use std::io::IsTerminal;
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
use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::fmt::time;
use tracing_subscriber::prelude::*;

use scx_magpie::cli::{Command, Opts};
use scx_magpie::preflight::{self, Refusal};
use scx_magpie::scheduler::{Ended, Scheduler};
use scx_magpie::stats::monitor::{Format, Source, monitor};
use scx_magpie::{SCHEDULER_NAME, export, hotplug, manual, nr_scan, stats, top, topology, verifier_stats, version};

fn main() -> ExitCode {
    let opts = match Opts::try_parse() {
        Ok(opts) => opts,
        Err(err) if err.use_stderr() => {
            // The first paragraph says it all; the others point to --help.
            let text = err.to_string();
            let lines: Vec<_> = text.lines().map(str::trim).take_while(|line| !line.is_empty()).collect();
            eprintln!("{SCHEDULER_NAME}: {}", lines.join(" ").trim_start_matches("error: "));
            return ExitCode::from(preflight::EXIT_USAGE);
        }
        Err(help) => help.exit(),
    };
    match run(&opts) {
        Ok(()) => ExitCode::SUCCESS,
        Err(err) => {
            eprintln!("{SCHEDULER_NAME}: {err:#}");
            err.downcast_ref::<Refusal>().map_or(ExitCode::FAILURE, |refusal| refusal.exit_code().into())
        }
    }
}

fn run(opts: &Opts) -> Result<()> {
    if !opts.attaches() && !matches!(opts.command, Some(Command::Export(_))) {
        // A reader that has seen enough, such as `head`, ends us quietly.
        // SAFETY: the default disposition needs no handler.
        unsafe { libc::signal(libc::SIGPIPE, libc::SIG_DFL) };
    }
    if opts.version {
        println!("{SCHEDULER_NAME} {}", version());
        return Ok(());
    }
    if opts.help_stats {
        return stats::server_data().describe_meta(&mut std::io::stdout(), None);
    }
    start_logging(opts.verbose);

    match opts.command {
        Some(Command::Topology) => {
            let layout = topology::Layout::of_this_machine()?;
            print!("{layout}");
            Ok(())
        }
        Some(Command::ScanTable(ref args)) => {
            let table = nr_scan::Table::new(args);
            if args.json {
                println!("{}", serde_json::to_string(&table)?);
            } else {
                print!("{table}");
            }
            Ok(())
        }
        Some(Command::Top(ref args)) => top::run(args),
        Some(Command::Export(ref args)) => export::export(args),
        Some(Command::Completions { shell }) => {
            manual::completions(shell);
            Ok(())
        }
        Some(Command::Man { ref folder }) => manual::pages(folder),
        Some(Command::VerifierStats { asymmetric }) => {
            preflight::check()?;
            verifier_stats::print(opts, asymmetric).map_err(preflight::explain)
        }
        None => {
            let shutdown = Arc::new(AtomicBool::new(false));
            if let Some(sec) = opts.monitor {
                let format = Format::new(opts.json, &opts.table);
                return monitor(Source::Other, Duration::from_secs_f64(sec), format, &shutdown);
            }
            schedule(opts, shutdown)
        }
    }
}

/// Runs the scheduler until it is told to stop or ejected, starting anew for a machine that has become another one. What fails
/// while CPUs come or go is tried once more.
fn schedule(opts: &Opts, shutdown: Arc<AtomicBool>) -> Result<()> {
    preflight::check()?;
    let flag = shutdown.clone();
    ctrlc::set_handler(move || flag.store(true, Ordering::Relaxed)).context("cannot handle signals")?;
    info!("{SCHEDULER_NAME} {}", version());
    if let Some(sec) = opts.stats {
        let (format, shutdown) = (Format::new(opts.json, &opts.table), shutdown.clone());
        thread::spawn(move || {
            if let Err(err) = monitor(Source::Own, Duration::from_secs_f64(sec), format, &shutdown) {
                warn!("statistics stopped: {err:#}");
            }
        });
    }
    let (mut old, mut pause) = (None, hotplug::QUIET);
    while !shutdown.load(Ordering::Relaxed) {
        let before = hotplug::seq();
        match start(opts, &mut old) {
            Ok(mut scheduler) => {
                old = None;
                pause = hotplug::QUIET;
                match scheduler.run(&shutdown)? {
                    Ended::Outgrown => {
                        info!("the machine has CPUs that there is no place for: starting anew");
                        old = Some(scheduler);
                        continue;
                    }
                    Ended::Exit(report) if report.should_restart() => info!("the kernel wants a new start"),
                    Ended::Exit(_) => return Ok(()),
                }
            }
            Err(err) if hotplug::seq() != before => {
                warn!("{err:#}; but CPUs came or went: once more when none does for {} s", pause.as_secs());
            }
            Err(err) => return Err(err),
        }
        hotplug::wait_until_quiet(pause, &shutdown);
        pause = (2 * pause).min(hotplug::MAX_PAUSE);
    }
    Ok(())
}

/// Loads a scheduler for the machine as it is now, and attaches it in place of the `old` one, if there is any.
fn start(opts: &Opts, old: &mut Option<Scheduler<'static>>) -> Result<Scheduler<'static>> {
    let mut capacities = BTreeMap::new();
    loop {
        // Some bytes for each start, of which there are few.
        let object = Box::leak(Box::new(MaybeUninit::uninit()));
        let loaded = Scheduler::load_for(opts, object, |layout| layout.set_capacities(&capacities));
        // What is attached already may be the old one.
        let mut scheduler = loaded.map_err(|err| if old.is_some() { err } else { preflight::explain(err) })?;
        if let Some(old) = old {
            old.detach();
        }
        scheduler.attach().map_err(preflight::explain)?;
        match scheduler.other_capacities()? {
            Some(others) if capacities.is_empty() => {
                info!("the kernel knows of other capacities than sysfs shows: starting anew");
                capacities = others;
                *old = Some(scheduler);
            }
            _ => return Ok(scheduler),
        }
    }
}

/// Our messages on stderr. With `-v` also those of libraries, libbpf's verifier logs among them, and the time since
/// the start.
fn start_logging(verbose: bool) {
    let log = tracing_subscriber::fmt()
        .with_writer(std::io::stderr)
        .with_ansi(std::io::stderr().is_terminal())
        .with_target(false);
    if verbose {
        log.with_max_level(LevelFilter::DEBUG).with_timer(time::uptime()).init();
        scx_utils::init_libbpf_logging(Some(PrintLevel::Debug));
    } else {
        // scx_stats warns of each client of statistics that goes away.
        let ours = Targets::new()
            .with_default(LevelFilter::WARN)
            .with_targets([(SCHEDULER_NAME, LevelFilter::INFO), ("scx_stats", LevelFilter::ERROR)]);
        log.without_time().finish().with(ours).init();
        libbpf_rs::set_print(None);
    }
}

// SPDX-License-Identifier: GPL-2.0-only
//! scx_magpie: a sched_ext scheduler. `docs/design.md` describes the design, `--help` the usage.

use std::io::IsTerminal;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result};
use clap::parser::ValueSource;
use clap::{ArgMatches, CommandFactory, FromArgMatches};
use log::{info, warn};
use nix::sys::stat::{Mode, umask};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::flag;

use scx_magpie::cli::{Command, Opts};
use scx_magpie::config::{Config, keys};
use scx_magpie::control::status::Failures;
use scx_magpie::control::{Control, Request, client};
use scx_magpie::exit::{self, Ejected, Refusal};
use scx_magpie::lifecycle::loader::Loader;
use scx_magpie::preflight;
use scx_magpie::stats::monitor::{Format, Source, monitor};
use scx_magpie::{
    SCHEDULER_NAME, export, lifecycle, logging, manual, nr_scan, record, stats, top, topology, verifier_stats, version,
};

const NO_SIGNALS: &str = "cannot handle signals";

/// Flags that are not keys, and have an effect only when a scheduler starts.
const ONE_RUN: [&str; 6] = ["config", "stats", "run-id", "follow-config", "wait", "give-up"];

fn main() -> ExitCode {
    // SAFETY: no thread has been started.
    if let Some(problem) = unsafe { logging::drop_strange_variable() } {
        eprintln!("{SCHEDULER_NAME}: {} is ignored: {problem}", logging::VARIABLE);
    }
    let matches = Opts::command().try_get_matches();
    let (opts, matches) = match matches.and_then(|matches| Ok((Opts::from_arg_matches(&matches)?, matches))) {
        Ok(parsed) => parsed,
        Err(err) if err.use_stderr() => {
            eprintln!("{SCHEDULER_NAME}: {}", keys::first_line(&err));
            return ExitCode::from(exit::EXIT_USAGE);
        }
        Err(help) => help.exit(),
    };
    match run(opts, &matches) {
        Ok(()) => ExitCode::SUCCESS,
        Err(err) => {
            eprintln!("{SCHEDULER_NAME}: {err:#}");
            status(&err).into()
        }
    }
}

/// Return the exit status for an error.
fn status(err: &anyhow::Error) -> u8 {
    let refused = err.downcast_ref::<Refusal>().map(Refusal::exit_code);
    refused.or_else(|| Some(err.downcast_ref::<Ejected>()?.status)).unwrap_or(exit::EXIT_FAILURE)
}

fn run(opts: Opts, matches: &ArgMatches) -> Result<()> {
    if !opts.attaches() && !matches!(opts.command, Some(Command::Export(_))) {
        // A reader that closes the pipe early, such as `head`, ends the process silently.
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
    check_flags(&opts, matches)?;
    let configure = || Config::new(matches, &opts.config);

    match opts.command {
        Some(Command::Topology) => {
            start_logging(&opts);
            print!("{}", topology::Layout::of_this_machine(false)?);
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
        Some(Command::Record(ref args)) => {
            start_logging(&opts);
            record::run(args)
        }
        Some(Command::Export(ref args)) => {
            start_logging(&opts);
            export::export(args)
        }
        Some(Command::Completions { shell }) => {
            manual::completions(shell);
            Ok(())
        }
        Some(Command::Man { ref folder }) => manual::pages(folder),
        Some(Command::VerifierStats { asymmetric }) => {
            preflight::check(false)?;
            let opts = Opts { settings: configure()?.settings()?, ..opts };
            start_logging(&opts);
            verifier_stats::print(&opts, asymmetric).map_err(|err| preflight::explain(err, false))
        }
        Some(Command::Status) => client::print(&Request::Status),
        Some(Command::Config { check }) => client::print_config(check, configure),
        Some(Command::Set { ref changes, reset }) => client::print(&Request::Set { changes: changes.clone(), reset }),
        Some(Command::Reload) => client::print(&Request::Reload),
        None => {
            if let Some(sec) = opts.monitor {
                start_logging(&opts);
                let format = Format::new(opts.json, &opts.table);
                return monitor(Source::Other, Duration::from_secs_f64(sec), format, &AtomicBool::new(false));
            }
            let config = configure()?;
            schedule(Opts { settings: config.settings()?, ..opts }, config)
        }
    }
}

/// Refuse flags that have no effect unless the command line starts a scheduler.
fn check_flags(opts: &Opts, matches: &ArgMatches) -> Result<(), Refusal> {
    if opts.attaches() || matches!(opts.command, Some(Command::Config { .. } | Command::VerifierStats { .. })) {
        return Ok(());
    }
    let is_given = |id: &str| matches.value_source(&id.replace('-', "_")) == Some(ValueSource::CommandLine);
    let mut flags = keys::all().into_iter().chain(ONE_RUN.map(String::from));
    match flags.find(|flag| flag != "log-level" && is_given(flag)) {
        Some(flag) => Err(Refusal::Usage {
            problem: format!(
                "--{flag} has an effect only when a scheduler starts: use 'scx_magpie set' to change the running one"
            ),
        }),
        None => Ok(()),
    }
}

fn start_logging(opts: &Opts) {
    logging::start(&opts.settings.log_level, opts.verbose);
}

/// Run the scheduler until a signal stops it or the kernel ejects it.
fn schedule(opts: Opts, config: Config) -> Result<()> {
    start_logging(&opts);
    preflight::check(opts.wait.is_some())?;
    // Only root may use the sockets, from their creation on. A group needs a way to that of statistics.
    umask(Mode::from_bits_truncate(if stats::server::has_readers() { 0o027 } else { 0o077 }));
    let (shutdown, hangup) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
    let failures = Failures::of_this_machine(opts.give_up);
    for signal in [SIGINT, SIGTERM] {
        // A second signal ends the process immediately. The kernel then detaches the scheduler.
        failures.forgive(signal, shutdown.clone()).context(NO_SIGNALS)?;
        flag::register_conditional_shutdown(signal, 128 + signal, shutdown.clone()).context(NO_SIGNALS)?;
        flag::register(signal, shutdown.clone()).context(NO_SIGNALS)?;
    }
    flag::register(SIGHUP, hangup.clone()).context(NO_SIGNALS)?;
    info!("{SCHEDULER_NAME} {}", version());
    if let Some(run_id) = opts.run_id {
        info!("run id {run_id}");
    }
    if let Some(sec) = opts.stats {
        let (format, shutdown) = (Format::new(opts.json, &opts.table), shutdown.clone());
        thread::spawn(move || {
            if let Err(err) = monitor(Source::Own, Duration::from_secs_f64(sec), format, &shutdown) {
                warn!("printing of statistics has stopped, the scheduler continues: {err:#}");
            }
        });
    }
    let control = Control::new(config, opts.follow_config, hangup, || std::io::stdin().is_terminal())?;
    failures.begin()?;
    failures.end(lifecycle::run(&mut Loader::new(opts, control, shutdown)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_of_a_scheduler_are_for_one_that_starts() {
        let check = |words: &str| {
            let matches = Opts::command().get_matches_from(words.split(' '));
            check_flags(&Opts::from_arg_matches(&matches).unwrap(), &matches).is_ok()
        };
        for fine in [
            "magpie --slice-us 400 --stats 1",
            "magpie --config x --slice-us 400 config",
            "magpie status",
            "magpie --log-level debug topology",
        ] {
            assert!(check(fine), "{fine}");
        }
        for wrong in [
            "magpie --slice-us 400 status",
            "magpie reload --config x",
            "magpie --monitor 1 --no-cgroups",
            "magpie --stats 1 top",
            "magpie --wait 10 status",
        ] {
            assert!(!check(wrong), "{wrong}");
        }
    }
}

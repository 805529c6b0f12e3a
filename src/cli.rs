// SPDX-License-Identifier: GPL-2.0-only
//! The command line: flags with unit, range and default, and the subcommands.

use std::path::PathBuf;

use clap::{Parser, Subcommand};
use clap_complete::Shell;
use scx_utils::libbpf_clap_opts::LibbpfOpts;

use crate::config::{DEFAULT_FILE, Settings};
use crate::export::ExportOpts;
use crate::nr_scan::ScanTableOpts;
use crate::stats::table::TableOpts;
use crate::top::TopOpts;
use crate::units::interval;

/// A sched_ext scheduler that looks around before it lands, and steals what lies idle.
///
/// Attaches until Ctrl-C, which gives the kernel its own scheduler back.
#[derive(Debug, Parser)]
#[command(name = crate::SCHEDULER_NAME, disable_version_flag = true, after_help = crate::exit::AFTER_HELP)]
pub struct Opts {
    #[command(subcommand)]
    pub command: Option<Command>,

    #[command(flatten)]
    pub settings: Settings,

    /// The configuration file: TOML, a flag as key and its value on each line. Flags win.
    #[arg(long, global = true, default_value = DEFAULT_FILE, value_name = "FILE")]
    pub config: PathBuf,

    /// Attach and print statistics at this interval. Seconds, more than 0.
    #[arg(long, group = "interval", value_name = "SEC", value_parser = interval)]
    pub stats: Option<f64>,

    /// Print statistics of the scheduler that runs already, or comes, at this interval. Seconds, more than 0.
    #[arg(long, group = "interval", value_name = "SEC", value_parser = interval)]
    pub monitor: Option<f64>,

    /// Statistics as JSON, a line an interval: with --stats or --monitor.
    #[arg(long, requires = "interval")]
    pub json: bool,

    #[command(flatten)]
    pub table: TableOpts,

    /// Say what each statistic means.
    #[arg(long)]
    pub help_stats: bool,

    /// Say more, libbpf's messages included.
    #[arg(short = 'v', long, global = true)]
    pub verbose: bool,

    /// A number that tells this run from others: it is logged.
    #[arg(long, value_name = "N")]
    pub run_id: Option<u64>,

    /// Print version and build id.
    #[arg(short = 'V', long)]
    pub version: bool,

    #[command(flatten, next_help_heading = "Libbpf options")]
    pub libbpf: LibbpfOpts,
}

impl Opts {
    /// Does this command line ask for a scheduler to be attached?
    pub fn attaches(&self) -> bool {
        !self.version && !self.help_stats && self.command.is_none() && self.monitor.is_none()
    }
}

#[derive(Debug, Subcommand)]
pub enum Command {
    /// Print the machine's nodes, LLCs, cores and capacities as the scheduler understands them.
    Topology,
    /// Print how many CPUs of an LLC a wakeup searches, by the LLC's utilization.
    ScanTable(ScanTableOpts),
    /// Watch the scheduler that runs, full-screen: utilization, wakeups, LLCs, cgroups, NUMA nodes.
    Top(TopOpts),
    /// Metrics for Prometheus, of the scheduler that runs or comes: in a file for node_exporter, or over HTTP.
    Export(ExportOpts),
    /// Print one line about the scheduler: does it run, since when, how; exit status 0 if it runs, 11 if not.
    Status,
    /// Print all flags that are in force, and where each value comes from: as a configuration file that says the same.
    ///
    /// Those of the scheduler that runs; if none does, those of one that would be started with this file and these flags.
    Config {
        /// Those of one that would be started, though one runs: to check a file.
        #[arg(long)]
        check: bool,
    },
    /// Change flags of the scheduler that runs, at once, until it ends or reloads.
    Set {
        /// Flags without dashes, and their values.
        #[arg(value_name = "KEY=VALUE", required_unless_present = "reset")]
        changes: Vec<String>,
        /// Back to what file and command line say, before any changes.
        #[arg(long)]
        reset: bool,
    },
    /// Make the scheduler that runs read its configuration file again; what was set is forgotten. So does SIGHUP.
    ///
    /// A file that is wrong changes nothing. Flags that take a new start are told, and the scheduler starts anew.
    Reload,
    /// Load the BPF programs without attaching, and print what each cost the verifier.
    VerifierStats {
        /// As if CPUs differed in capacity and rank.
        #[arg(long)]
        asymmetric: bool,
    },
    /// Print what a shell completes command lines by.
    Completions {
        #[arg(value_enum)]
        shell: Shell,
    },
    /// Write the manual pages into a folder, for packages.
    Man {
        #[arg(value_name = "FOLDER")]
        folder: PathBuf,
    },
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;
    use clap::error::ErrorKind;

    #[test]
    fn flags_are_consistent() {
        Opts::command().debug_assert();
    }

    #[test]
    fn out_of_range_is_refused_with_the_range() {
        let err = Opts::try_parse_from(["scx_magpie", "--slice-us", "99"]).unwrap_err();
        assert_eq!(err.kind(), ErrorKind::ValueValidation);
        assert!(err.to_string().contains("100..=100000"), "{err}");
    }

    /// Each flag that takes a number says its unit and, unless it is boundless, its range.
    #[test]
    fn help_names_units() {
        for arg in Opts::command().get_arguments() {
            let unit = match arg.get_value_names().and_then(|names| names.first()).map(|n| n.as_str()) {
                Some("US") => "Microseconds, ",
                Some("MS") => "Milliseconds, ",
                Some("SEC") => "Seconds, ",
                Some("BYTES") => "Bytes, ",
                Some("PCT") => "Percent, ",
                _ => continue,
            };
            let help = arg.get_help().map(|h| h.to_string()).unwrap_or_default();
            assert!(help.contains(unit), "--{}: {help}", arg.get_id());
        }
    }
}

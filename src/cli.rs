// SPDX-License-Identifier: GPL-2.0-only
//! The command line: flags with unit, range and default, and the subcommands.

use std::path::PathBuf;

use clap::{Parser, Subcommand};
use clap_complete::Shell;
use scx_utils::libbpf_clap_opts::LibbpfOpts;

use crate::config::{DEFAULT_FILE, Settings};
use crate::exit;
use crate::export::ExportOpts;
use crate::nr_scan::ScanTableOpts;
use crate::record::RecordOpts;
use crate::stats::table::TableOpts;
use crate::top::TopOpts;
use crate::units::interval;

/// The heading of flags that libbpf defines.
const LIBBPF_OPTIONS: &str = "Options of libbpf";

/// The heading of flags that tell how another program starts and replaces the scheduler.
const SUPERVISOR_OPTIONS: &str = "Options for Kubernetes and other supervisors";

/// CPU scheduler for sched_ext: a BPF program decides which task runs on which CPU.
///
/// Without a command, scx_magpie attaches its scheduler to the kernel and runs until Ctrl-C or
/// SIGTERM. It needs root, and Linux 6.12 or newer with sched_ext. When it exits, for whatever
/// reason, the kernel's own scheduler takes over.
#[derive(Debug, Parser)]
#[command(name = crate::SCHEDULER_NAME, disable_version_flag = true, after_help = exit::AFTER_SHORT_HELP, after_long_help = exit::after_help())]
pub struct Opts {
    #[command(subcommand)]
    pub command: Option<Command>,

    #[command(flatten)]
    pub settings: Settings,

    /// Read the configuration from this file.
    ///
    /// The file is TOML: one flag, without its dashes, and its value on each line. Flags of the
    /// command line override it. Only a start of the scheduler and the commands config and
    /// verifier-stats read it.
    ///
    /// Example: --config /root/test.toml
    #[arg(long, global = true, default_value = DEFAULT_FILE, value_name = "FILE")]
    pub config: PathBuf,

    /// Attach the scheduler and print its statistics at this interval.
    ///
    /// Unit: seconds, more than 0. Use it to watch a scheduler that you start by hand.
    ///
    /// Example: --stats 1
    #[arg(long, group = "interval", value_name = "SEC", value_parser = interval)]
    pub stats: Option<f64>,

    /// Print the statistics of the running scheduler at this interval, without attaching.
    ///
    /// Unit: seconds, more than 0. If no scheduler runs, it waits for one. Use it to watch the
    /// service.
    ///
    /// Example: --monitor 500ms
    #[arg(long, group = "interval", value_name = "SEC", value_parser = interval)]
    pub monitor: Option<f64>,

    /// Print statistics as JSON, one line per interval, with --stats or --monitor.
    #[arg(long, requires = "interval")]
    pub json: bool,

    #[command(flatten)]
    pub table: TableOpts,

    /// Explain each statistic and exit.
    #[arg(long)]
    pub help_stats: bool,

    /// Log debug messages, libbpf's included.
    #[arg(short = 'v', long, global = true)]
    pub verbose: bool,

    /// Log this number at the start.
    ///
    /// Use it to tell the logs of several runs apart.
    ///
    /// Example: --run-id 7
    #[arg(long, value_name = "N")]
    pub run_id: Option<u64>,

    /// Print the version and the build id, and exit.
    #[arg(short = 'V', long)]
    pub version: bool,

    /// Reload the configuration file whenever it changes, as the command reload does.
    ///
    /// The file is checked once a second. If it is wrong, nothing changes.
    #[arg(long, help_heading = SUPERVISOR_OPTIONS)]
    pub follow_config: bool,

    /// If another scx_magpie is attached, wait this long until it is detached, then attach.
    ///
    /// Unit: seconds, more than 0. The BPF programs are loaded before the wait, and the command
    /// status succeeds meanwhile. Use it to replace a running scx_magpie with the shortest gap.
    ///
    /// Example: --wait 120
    #[arg(long, value_name = "SEC", value_parser = interval, help_heading = SUPERVISOR_OPTIONS)]
    pub wait: Option<f64>,

    /// After three failures within ten minutes, or after SysRq-S, refuse each further start.
    ///
    /// /run/scx/scx_magpie.stopped marks it; remove that file to allow starts again. Use the flag
    /// where scx_magpie is started again whatever its exit status is, as by Kubernetes.
    #[arg(long, help_heading = SUPERVISOR_OPTIONS)]
    pub give_up: bool,

    #[command(flatten, next_help_heading = LIBBPF_OPTIONS)]
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
    /// Print the nodes, LLCs, cores and capacities of this machine as the scheduler sees them.
    Topology,
    /// Print how many CPUs of an LLC a wakeup searches at each utilization.
    ScanTable(ScanTableOpts),
    /// Show the running scheduler full-screen: utilization, wakeups, LLCs, cgroups, NUMA nodes.
    Top(TopOpts),
    /// Record some seconds of this machine as a trace: what runs, waits, moves and is throttled.
    ///
    /// Perfetto shows a track for each CPU and the states of each thread, and where the scheduler
    /// placed a task that woke up, which CPU stole it, and when cpu.max throttled it. It works
    /// under any scheduler; the reasons are those of scx_magpie. Nothing is slowed down while no
    /// recording runs.
    Record(RecordOpts),
    /// Export metrics of the running scheduler for Prometheus, to a file or over HTTP.
    ///
    /// If no scheduler runs, the metric scx_magpie_up is 0 until one is attached.
    Export(ExportOpts),
    /// Print one line about the running scheduler; exit with 0 if it runs, with 11 if not.
    Status,
    /// Print all flags that are in force and where each value comes from, as a configuration file.
    ///
    /// The flags are those of the running scheduler. If none runs, they are those that a scheduler
    /// would be started with now.
    Config {
        /// Validate the file and the flags of this command line without asking the running
        /// scheduler.
        #[arg(long)]
        check: bool,
    },
    /// Change flags of the running scheduler immediately, until it exits or reloads.
    ///
    /// If one change is refused, none is made.
    ///
    /// Example: scx_magpie set slice-us=5ms handoff-us=0
    Set {
        /// Flags without their dashes, with their values.
        #[arg(value_name = "KEY=VALUE", required_unless_present = "reset")]
        changes: Vec<String>,
        /// Undo all earlier changes by this command first: the file and the command line count
        /// again.
        #[arg(long)]
        reset: bool,
    },
    /// Let the running scheduler read its configuration file again; SIGHUP does the same.
    ///
    /// Changes by the command `set` are undone. If the file is wrong, nothing changes. If a changed
    /// flag needs it, the scheduler is loaded again and replaces the running one.
    Reload,
    /// Load the BPF programs without attaching them, and print what each cost the kernel's
    /// verifier.
    VerifierStats {
        /// Load the programs as for a machine whose CPUs differ in capacity and rank.
        #[arg(long)]
        asymmetric: bool,
    },
    /// Print a shell completion script.
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
    use clap::error::ErrorKind;
    use clap::{Arg, CommandFactory};

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

    fn long_help(arg: &Arg) -> String {
        arg.get_long_help().or(arg.get_help()).map(ToString::to_string).unwrap_or_default()
    }

    /// Each flag that takes a number says its unit and, unless it is boundless, its range.
    #[test]
    fn help_names_units() {
        for arg in Opts::command().get_arguments() {
            let unit = match arg.get_value_names().and_then(|names| names.first()).map(|n| n.as_str()) {
                Some("US") => "Unit: microseconds",
                Some("MS") => "Unit: milliseconds",
                Some("SEC") => "Unit: seconds",
                Some("BYTES") => "Unit: bytes",
                Some("PCT") => "Unit: percent",
                _ => continue,
            };
            assert!(long_help(arg).contains(unit), "--{}: {}", arg.get_id(), long_help(arg));
        }
    }

    /// Each flag that takes a value has an example, which parses.
    #[test]
    fn examples_are_valid() {
        let command = Opts::command();
        let is_ours = |arg: &&Arg| arg.get_help_heading() != Some(LIBBPF_OPTIONS);
        for arg in command.get_arguments().filter(is_ours) {
            let Some(flag) = arg.get_long().filter(|_| arg.get_action().takes_values()) else { continue };
            if matches!(arg.get_value_names(), Some([name]) if name == "BOOL") {
                continue;
            }
            let help = long_help(arg);
            let (_, example) = help.rsplit_once("Example: ").unwrap_or_else(|| panic!("--{flag}: no example"));
            assert!(example.starts_with(&format!("--{flag} ")), "{example}");
            let needs = if ["columns"].contains(&flag) { "--monitor 1 " } else { "" };
            let words = format!("scx_magpie {needs}{example}");
            assert!(Opts::try_parse_from(words.split(' ')).is_ok(), "{example}");
        }
    }
}

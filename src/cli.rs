// SPDX-License-Identifier: GPL-2.0-only
//! The command line: flags with unit, range and default, and the subcommands.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::str::FromStr;

use clap::{Arg, ArgAction, ArgGroup, Args, Parser, Subcommand, ValueEnum, value_parser};
use clap_complete::Shell;
use scx_utils::libbpf_clap_opts::LibbpfOpts;
use serde::Serialize;
use serde_json::Value;

use crate::config::{DEFAULT_FILE, Profile};
use crate::logging::parse_level;
use crate::stats::table::TableOpts;
use crate::top;
use crate::units::{interval, micros, millis};

/// The heading of flags that only a new start of the scheduler changes, in `--help` and for the configuration.
pub const NEW_START: &str = "Options that take a new start (reload)";

/// A sched_ext scheduler that looks around before it lands, and steals what lies idle.
///
/// Attaches until Ctrl-C, which gives the kernel its own scheduler back.
#[derive(Debug, Parser)]
#[command(name = crate::SCHEDULER_NAME, disable_version_flag = true, after_help = crate::preflight::AFTER_HELP)]
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

/// The flags that are keys of the configuration, too.
#[derive(Clone, Debug, Args)]
pub struct Settings {
    /// A set of flags, for those that are not given one by one.
    #[arg(long, value_enum, default_value_t)]
    pub profile: Profile,

    #[command(flatten)]
    pub tunables: Tunables,

    /// Length of the exit dump, 0 = the kernel's default. Bytes, 0..16777216.
    #[arg(long, help_heading = NEW_START, default_value_t = 0, value_name = "BYTES", value_parser = value_parser!(u32).range(0..=16 << 20))]
    pub exit_dump_len: u32,

    /// Which messages are logged: off, error, warn, info, debug, trace, or by module, as in warn,scx_magpie::numa=debug.
    #[arg(long, env = "RUST_LOG", default_value = "info", value_name = "LEVEL", value_parser = parse_level)]
    pub log_level: String,
}

/// What the scheduler can be tuned by: for the simulator too.
#[derive(Clone, Debug, Args, Serialize)]
#[command(mut_args(with_value))]
pub struct Tunables {
    /// Time a task runs before those that wait are considered. Microseconds, 100..100000.
    ///
    /// Looked at on the timer tick, so it is rounded up to the kernel's tick (4 ms at HZ=250).
    #[arg(short = 's', long, default_value_t = 3000, value_name = "US", value_parser = micros::<u64>(100..=100_000))]
    pub slice_us: u64,

    /// How far ahead a task comes that a timer, a device or a futex woke, until it has run for a slice. Microseconds, 0..1000000.
    ///
    /// Tasks that were sent something by a pipe or a socket get nothing: they find more when they come later. More of it
    /// lowers the wakeup latency of light tasks beside such; 0 gives them no preference.
    #[arg(short = 'l', long, default_value_t = 9000, value_name = "US", value_parser = micros::<u64>(0..=1_000_000))]
    pub slice_us_lag: u64,

    /// Woken tasks wait for the running one's slice to end, whatever they are owed.
    #[arg(long)]
    pub no_wakeup_preempt: bool,

    /// How far a CPU about to go idle looks for waiting tasks to take.
    #[arg(long, value_enum, default_value_t = Steal::All)]
    pub steal: Steal,

    /// CPUs that a CPU about to go idle tries to take a task from before it gives up. 1..64.
    #[arg(long, default_value_t = 8, value_name = "N", value_parser = value_parser!(u32).range(1..=64))]
    pub steal_tries: u32,

    /// How long a task that ran is left to the caches of its LLC, by idle CPUs of the node's others. Microseconds, 0..100000.
    ///
    /// 0: they take what waits at once. About the time in which they could fetch what it has in its caches.
    #[arg(long, default_value_t = 50, value_name = "US", value_parser = micros::<u64>(0..=100_000))]
    pub migration_cost_llc_us: u64,

    /// The same, by idle CPUs of other nodes. Microseconds, 0..100000.
    #[arg(long, default_value_t = 100, value_name = "US", value_parser = micros::<u64>(0..=100_000))]
    pub migration_cost_node_us: u64,

    /// On machines with more NUMA nodes than this no task is taken from another node. 1..256.
    #[arg(long, default_value_t = 256, value_name = "N", value_parser = value_parser!(u32).range(1..=256))]
    pub steal_node_limit: u32,

    /// Rules by which a wakeup looks for an idle CPU near the waking one: of idle,sync,weight,wide, or off.
    ///
    /// idle: the waking CPU is idle, the previous is not. sync: the waker is about to sleep. weight: the waking CPU has less
    /// load. wide: none of them for tasks that wake more others than an LLC has CPUs.
    #[arg(long, default_value = "idle,sync,weight,wide", value_name = "RULES")]
    pub wake_affine: WakeAffine,

    /// A waker that usually sleeps within this time of a wakeup by a pipe or socket hands its CPU to the wakee. Microseconds, 0..1000.
    ///
    /// More of it lets slower wakers hand off. 0: the wakee goes to an idle CPU, if there is one.
    #[arg(long, default_value_t = 20, value_name = "US", value_parser = micros::<u64>(0..=1000))]
    pub handoff_us: u64,

    /// How long a task that wake-affine took from its home node is not moved back. Scan periods (1 to 60 s), 0..64.
    ///
    /// 0: not at all, and the two fight over tasks that wake each other and have their memory on different nodes.
    #[arg(long, default_value_t = 4, value_name = "N", value_parser = value_parser!(u32).range(0..=64))]
    pub numa_backoff: u32,

    /// How much of a CPU may be spent to find out where processes have their memory, 0 = do not. Percent, 0..50.
    ///
    /// Nothing is spent on machines with one NUMA node.
    #[arg(long, default_value_t = 2, value_name = "PCT", value_parser = value_parser!(u32).range(0..=50))]
    pub numa_sample_share: u32,

    /// Most time for which one process's memory is looked at, at a time. Milliseconds, 1..1000.
    #[arg(long, default_value_t = 10, value_name = "MS", value_parser = millis::<u64>(1..=1000))]
    pub numa_sample_ms: u64,

    /// Tasks compete by their nice values alone, whatever cgroups they are in: no cpu.weight, cpu.max, cpu.idle.
    #[arg(long, help_heading = NEW_START)]
    pub no_cgroups: bool,

    /// For how many cgroups their cpu.weight, cpu.max and cpu.idle count; more are as part of their parents. 1..65535.
    ///
    /// Each takes 192 bytes of kernel memory from the start, and a hundred more while it is there.
    #[arg(long, help_heading = NEW_START, default_value_t = 16384, value_name = "N", value_parser = value_parser!(u32).range(1..=65535))]
    pub max_cgroups: u32,

    /// CPUs count as equal, however they differ in capacity: tasks go to, and stay on, any of them.
    #[arg(long, help_heading = NEW_START)]
    pub no_capacity: bool,

    /// Whether CPUs' frequencies follow their utilization, where the governor is schedutil.
    #[arg(long, help_heading = NEW_START, value_enum, default_value_t = CpuFreq::Auto)]
    pub cpufreq: CpuFreq,

    /// What matters more, speed or energy: docs/tuning.md has what each sets.
    #[arg(long, help_heading = NEW_START, value_enum, default_value_t = Power::Auto)]
    pub power: Power,

    /// How much of an LLC may be in use before wakeups stop to search it: 100 / this. Percent, 101..1000.
    ///
    /// SIS_UTIL: with the kernel's 117 an LLC is searched up to 85 % utilization, less of it the more it is used.
    #[arg(long, default_value_t = 117, value_name = "PCT", value_parser = value_parser!(u32).range(101..=1000))]
    pub imbalance_pct: u32,

    /// Wakeups search the whole LLC, however busy it is.
    #[arg(long)]
    pub no_scan_limit: bool,

    /// Whether wakeups search more of an LLC of 16 CPUs or fewer than its utilization would allow: nr_scan * 32 / CPUs.
    #[arg(long, value_enum, default_value_t = Switch::On)]
    pub small_llc_boost: Switch,

    /// Count how long searches for an idle CPU take, for --stats.
    #[arg(long)]
    pub latency_hist: bool,

    /// How often each LLC's sum_util and nr_scan are published to the BPF program. Milliseconds, 1..1000.
    #[arg(long, default_value_t = 32, value_name = "MS", value_parser = millis::<u64>(1..=1000))]
    pub util_interval: u64,

    /// The kernel ejects the scheduler when a runnable task waited this long. Milliseconds, 1000..30000.
    #[arg(long, help_heading = NEW_START, env = "SCX_TIMEOUT_MS", default_value_t = 30_000, value_name = "MS", value_parser = millis::<u32>(1000..=30_000))]
    pub timeout_ms: u32,
}

/// Lets a flag that is on or off take `=true` and `=false`, as the configuration has them.
fn with_value(arg: Arg) -> Arg {
    if !matches!(arg.get_action(), ArgAction::SetTrue) {
        return arg;
    }
    let arg = arg.action(ArgAction::Set).value_name("BOOL").num_args(0..=1).require_equals(true);
    arg.default_value("false").default_missing_value("true").hide_default_value(true).hide_possible_values(true)
}

/// A feature that can be turned off.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Switch {
    On,
    Off,
}

/// Does the governor schedutil hear what CPUs use?
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum CpuFreq {
    /// Follow, if any CPU has that governor
    Auto,
    /// Follow, whatever the governor
    On,
    /// Full speed
    #[value(alias = "performance")]
    Off,
}

/// Speed or energy.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Power {
    /// As the system's power profile, also when that changes
    Auto,
    /// Full speed, unless --cpufreq is on
    Performance,
    /// As the kernel's own scheduler
    Balanced,
    /// Less headroom in frequencies; light tasks are packed on few cores, weak ones first
    Powersave,
}

/// CPUs from which waiting tasks are taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Steal {
    /// None: tasks wait for the CPU that they were sent to
    Off,
    /// Those of the own LLC
    Llc,
    /// Those of the own node
    Node,
    /// All, nearest first
    All,
}

/// Wake-affine's rules that are in force.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(into = "String")]
pub struct WakeAffine {
    pub idle: bool,
    pub sync: bool,
    pub weight: bool,
    pub wide: bool,
}

impl From<WakeAffine> for String {
    /// As on the command line.
    fn from(rules: WakeAffine) -> Self {
        let WakeAffine { idle, sync, weight, wide } = rules;
        let all = [("idle", idle), ("sync", sync), ("weight", weight), ("wide", wide)];
        let names: Vec<_> = all.iter().filter(|(_, in_force)| *in_force).map(|&(name, _)| name).collect();
        if names.is_empty() { "off".into() } else { names.join(",") }
    }
}

impl FromStr for WakeAffine {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let mut rules = Self::default();
        if text == "off" {
            return Ok(rules);
        }
        for rule in text.split(',') {
            *match rule {
                "idle" => &mut rules.idle,
                "sync" => &mut rules.sync,
                "weight" => &mut rules.weight,
                "wide" => &mut rules.wide,
                _ => return Err(format!("'{rule}' is none of idle, sync, weight, wide; or off alone")),
            } = true;
        }
        Ok(rules)
    }
}

impl Tunables {
    /// Those that are not the default, as on a command line.
    pub fn changed(&self) -> Vec<String> {
        let values = serde_json::to_value(self).unwrap_or_default();
        let flags = Self::augment_args(clap::Command::new(""))
            .get_arguments()
            .map(|flag| {
                let name = flag.get_long()?;
                let text = match &values[flag.get_id().as_str()] {
                    Value::Bool(set) => return set.then(|| format!("--{name}")),
                    Value::String(text) => text.clone(),
                    other => other.to_string(),
                };
                let default = flag.get_default_values().first().is_some_and(|default| *default == *text);
                (!default).then(|| format!("--{name} {text}"))
            })
            .collect::<Vec<_>>();
        flags.into_iter().flatten().collect()
    }
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
    ScanTable(ScanTable),
    /// Watch the scheduler that runs, full-screen: utilization, wakeups, LLCs, cgroups, NUMA nodes.
    Top(top::TopOpts),
    /// Metrics for Prometheus, of the scheduler that runs or comes: in a file for node_exporter, or over HTTP.
    Export(Export),
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

/// How, and of what.
#[derive(Debug, Args)]
#[command(group = ArgGroup::new("way").required(true).args(["textfile", "listen"]))]
pub struct Export {
    /// Write this file at each interval, for node_exporter's textfile collector. Its name ends in .prom.
    #[arg(long, value_name = "PATH")]
    pub textfile: Option<PathBuf>,

    /// Serve at this port on /metrics, in OpenMetrics or Prometheus' text format. Without ADDR to this machine only.
    #[arg(long, value_name = "[ADDR:]PORT", value_parser = listen_address)]
    pub listen: Option<SocketAddr>,

    /// How often --textfile is written. Seconds, more than 0.
    #[arg(long, default_value_t = 15.0, value_name = "SEC", value_parser = interval, conflicts_with = "listen")]
    pub interval: f64,

    /// How many cgroups have metrics of their own: those throttled for longest, then those that used most CPU time. 0..10000.
    #[arg(long, default_value_t = 20, value_name = "N", value_parser = value_parser!(u32).range(0..=10_000))]
    pub cgroups: u32,
}

/// For which LLC.
#[derive(Debug, Args)]
pub struct ScanTable {
    /// CPUs of the LLC, 1..1024.
    #[arg(long, value_name = "N", value_parser = value_parser!(u32).range(1..=1024))]
    pub llc_weight: u32,

    /// How much of the LLC may be in use before wakeups stop to search it: 100 / this. Percent, 101..1000.
    #[arg(long, default_value_t = 117, value_name = "PCT", value_parser = value_parser!(u32).range(101..=1000))]
    pub imbalance_pct: u32,

    /// Whether an LLC of 16 CPUs or fewer is searched further than its utilization would allow.
    #[arg(long, value_enum, default_value_t = Switch::On)]
    pub small_llc_boost: Switch,

    /// Print JSON.
    #[arg(long)]
    pub json: bool,
}

fn listen_address(s: &str) -> Result<SocketAddr, String> {
    let local = s.parse().map(|port: u16| (Ipv4Addr::LOCALHOST, port).into());
    local.or_else(|_| s.parse()).map_err(|_| "not PORT, ADDR:PORT or [IPV6]:PORT".into())
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

    #[test]
    fn ports_are_of_this_machine_unless_said_otherwise() {
        for (text, address) in [("9999", "127.0.0.1:9999"), ("0.0.0.0:80", "0.0.0.0:80"), ("[::1]:80", "[::1]:80")] {
            assert_eq!(listen_address(text), Ok(address.parse().unwrap()));
        }
        for bad in ["", "70000", "host:80", "127.0.0.1", "::1:x"] {
            assert!(listen_address(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn wake_affine_is_a_list_of_rules() {
        let rules = |idle, sync, weight, wide| Ok(WakeAffine { idle, sync, weight, wide });
        assert_eq!("off".parse(), rules(false, false, false, false));
        assert_eq!("sync".parse(), rules(false, true, false, false));
        assert_eq!("wide,idle".parse(), rules(true, false, false, true));
        let opts = Opts::parse_from(["scx_magpie"]);
        assert_eq!(Ok(opts.settings.tunables.wake_affine), rules(true, true, true, true));
        assert!("idle,off".parse::<WakeAffine>().unwrap_err().contains("'off' is none of idle, sync"));
    }

    #[test]
    fn changed_flags_are_those_that_differ() {
        let changed = |flags: &[&str]| {
            let opts = Opts::parse_from([&["scx_magpie", "--timeout-ms=30000"], flags].concat());
            opts.settings.tunables.changed().join(" ")
        };
        assert_eq!(changed(&[]), "");
        assert_eq!(changed(&["--slice-us", "3000"]), "");
        let flags = "--slice-us 5000 --steal node --wake-affine idle,wide --small-llc-boost off --latency-hist";
        assert_eq!(changed(&flags.split(' ').collect::<Vec<_>>()), flags);
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

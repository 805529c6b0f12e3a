// SPDX-License-Identifier: GPL-2.0-only
//! What the scheduler can be tuned by: flags of the command line, keys of the configuration, and what the simulator takes.

use std::str::FromStr;

use clap::{Arg, ArgAction, Args, Command, FromArgMatches, ValueEnum, value_parser};
use serde::Serialize;
use serde_json::Value;

use crate::units::{micros, millis};

/// The heading of flags that only a new start of the scheduler changes, in `--help` and for the configuration.
pub const NEW_START: &str = "Options that take a new start (reload)";

/// The flags and their defaults.
#[derive(Clone, Debug, Args, Serialize)]
#[command(mut_args(with_value))]
pub struct Tunables {
    /// Time a task runs before those that wait are considered. Microseconds, 100..100000.
    ///
    /// A timer ends it where a task waits when the slice begins or at a tick; else the next tick does (4 ms at HZ=250).
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
    /// 0: they take what waits at once. About the time in which they could fetch what it has in its caches; 500 is the kernel's
    /// own guess, sched_migration_cost.
    #[arg(long, default_value_t = 500, value_name = "US", value_parser = micros::<u64>(0..=100_000))]
    pub migration_cost_llc_us: u64,

    /// The same, by idle CPUs of other nodes. Microseconds, 0..100000.
    #[arg(long, default_value_t = 500, value_name = "US", value_parser = micros::<u64>(0..=100_000))]
    pub migration_cost_node_us: u64,

    /// On machines with more NUMA nodes than this no task is taken from another node. 1..256.
    #[arg(long, default_value_t = 256, value_name = "N", value_parser = value_parser!(u32).range(1..=256))]
    pub steal_node_limit: u32,

    /// Rules by which a wakeup looks for an idle CPU near the waking one: of idle,sync, or off.
    ///
    /// idle: the waking CPU is idle, the previous is not. sync: the waker is about to sleep.
    #[arg(long, default_value = "idle,sync", value_name = "RULES")]
    pub wake_affine: WakeAffine,

    /// A waker that usually sleeps within this time of a wakeup by a pipe or socket hands its CPU to the wakee. Microseconds, 0..1000.
    ///
    /// More of it lets slower wakers hand off. 0: the wakee goes to an idle CPU, if there is one.
    #[arg(long, default_value_t = 20, value_name = "US", value_parser = micros::<u64>(0..=1000))]
    pub handoff_us: u64,

    /// How long a task that wake-affine took from its home node is not moved back, in scan periods of 1 s, 0..64.
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
    /// Each takes 192 bytes of kernel memory from the start, 12 MB for all, and a hundred more while it is there.
    #[arg(long, help_heading = NEW_START, default_value_t = 65535, value_name = "N", value_parser = value_parser!(u32).range(1..=65535))]
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

    /// Count how long searches for an idle CPU take: `top`, `export` and `--stats --details` show it.
    #[arg(long)]
    pub latency_hist: bool,

    /// How often each LLC's sum_util and nr_scan are published to the BPF program. Milliseconds, 1..1000.
    #[arg(long, default_value_t = 32, value_name = "MS", value_parser = millis::<u64>(1..=1000))]
    pub util_interval: u64,

    /// The kernel ejects the scheduler when a runnable task waited this long. Milliseconds, 1000..30000.
    #[arg(long, help_heading = NEW_START, env = "SCX_TIMEOUT_MS", default_value_t = 30_000, value_name = "MS", value_parser = millis::<u32>(1000..=30_000))]
    pub timeout_ms: u32,
}

impl Tunables {
    /// What these flags say, as on a command line. Fails as clap does.
    pub fn parse<T: AsRef<str>>(flags: &[T]) -> Result<Self, clap::Error> {
        let command = Self::augment_args(Command::new(crate::SCHEDULER_NAME).no_binary_name(true));
        Self::from_arg_matches(&command.try_get_matches_from(flags.iter().map(AsRef::as_ref))?)
    }
}

/// Flags that do not have their default, as on a command line.
pub fn changed<T: Args + Serialize>(flags: &T) -> Vec<String> {
    let values = serde_json::to_value(flags).unwrap_or_default();
    let command = T::augment_args(Command::new(""));
    let changed = command.get_arguments().filter_map(|flag| {
        let name = flag.get_long()?;
        let text = match &values[flag.get_id().as_str()] {
            Value::Bool(set) => return set.then(|| format!("--{name}")),
            Value::String(text) => text.clone(),
            other => other.to_string(),
        };
        let is_default = flag.get_default_values().first().is_some_and(|default| *default == *text);
        (!is_default).then(|| format!("--{name} {text}"))
    });
    changed.collect()
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
}

impl From<WakeAffine> for String {
    /// As on the command line.
    fn from(rules: WakeAffine) -> Self {
        let WakeAffine { idle, sync } = rules;
        let all = [("idle", idle), ("sync", sync)];
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
                _ => return Err(format!("'{rule}' is none of idle, sync; or off alone")),
            } = true;
        }
        Ok(rules)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wake_affine_is_a_list_of_rules() {
        let rules = |idle, sync| Ok(WakeAffine { idle, sync });
        assert_eq!("off".parse(), rules(false, false));
        assert_eq!("sync".parse(), rules(false, true));
        assert_eq!("sync,idle".parse(), rules(true, true));
        assert!("idle,off".parse::<WakeAffine>().unwrap_err().contains("'off' is none of idle, sync"));
    }
}

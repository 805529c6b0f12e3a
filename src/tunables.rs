// SPDX-License-Identifier: GPL-2.0-only
//! The tunables: flags of the command line, keys of the configuration, parameters of the simulator.

use std::str::FromStr;

use clap::{Arg, ArgAction, Args, Command, FromArgMatches, ValueEnum, value_parser};
use serde::Serialize;
use serde_json::Value;

use crate::units::{micros, millis};

/// Heading of the flags that need a restart or a reload, in `--help` and for the configuration.
pub const NEW_START: &str = "Options that only a start or a reload changes";

/// The flags and their defaults.
#[derive(Clone, Debug, Args, Serialize)]
#[command(mut_args(with_value))]
pub struct Tunables {
    /// Let a task run for this long before the tasks that wait for its CPU are considered.
    ///
    /// Unit: microseconds. Range: 100..100000. A timer ends the slice if a task waits. The next
    /// tick ends it otherwise (every 4 ms at HZ=250), and for a task that sends messages. Raise it
    /// for fewer context switches among CPU-bound tasks; lower it for shorter waits in the queue.
    ///
    /// Example: --slice-us 5ms
    #[arg(short = 's', long, default_value_t = 3000, value_name = "US", value_parser = micros::<u64>(100..=100_000))]
    pub slice_us: u64,

    /// Run a task sooner after a timer, a device or a futex woke it: credit its virtual deadline
    /// with this time, until the task has run for one slice.
    ///
    /// Unit: microseconds. Range: 0..1000000. A task that was woken through a pipe or a socket gets
    /// no credit, because it finds more data when it runs later. Raise it for lower wakeup latency
    /// of light tasks alongside busy ones; 0 gives no task a preference.
    ///
    /// Example: --slice-us-lag 18ms
    #[arg(short = 'l', long, default_value_t = 9000, value_name = "US", value_parser = micros::<u64>(0..=1_000_000))]
    pub slice_us_lag: u64,

    /// Never preempt the running task in favor of a task that wakes up.
    ///
    /// A task that wakes up waits for the end of the running task's slice, however early its
    /// deadline is. Use it for batch work only: latencies rise.
    #[arg(long)]
    pub no_wakeup_preempt: bool,

    /// Choose how far a CPU that is about to go idle searches for waiting tasks to steal.
    ///
    /// Restrict it to keep tasks near their caches or their memory, at the cost of idle CPUs while
    /// tasks wait elsewhere.
    ///
    /// Example: --steal node
    #[arg(long, value_enum, default_value_t = Steal::All)]
    pub steal: Steal,

    /// Give up stealing after this many CPUs had no task that may be taken.
    ///
    /// Range: 1..64. The CPU that steals then goes idle. Raise it if CPUs go idle while tasks wait
    /// elsewhere and the statistic `steal_miss` is high.
    ///
    /// Example: --steal-tries 16
    #[arg(long, default_value_t = 8, value_name = "N", value_parser = value_parser!(u32).range(1..=64))]
    pub steal_tries: u32,

    /// For this long after a task ran, do not let CPUs of other LLCs on the same node steal it.
    ///
    /// Unit: microseconds. Range: 0..100000. It should be about the time in which a CPU fetches
    /// what the task has in its caches; the default is that of the kernel's sched_migration_cost.
    /// Raise it if tasks lose their caches by moving; 0 lets other LLCs steal a task immediately.
    ///
    /// Example: --migration-cost-llc-us 100
    #[arg(long, default_value_t = 500, value_name = "US", value_parser = micros::<u64>(0..=100_000))]
    pub migration_cost_llc_us: u64,

    /// For this long after a task ran, do not let CPUs of other NUMA nodes steal it.
    ///
    /// Unit: microseconds. Range: 0..100000. Raise it if tasks leave their node too soon; 0 lets
    /// other nodes steal a task immediately.
    ///
    /// Example: --migration-cost-node-us 2ms
    #[arg(long, default_value_t = 500, value_name = "US", value_parser = micros::<u64>(0..=100_000))]
    pub migration_cost_node_us: u64,

    /// Steal no task from another NUMA node on a machine with more nodes than this.
    ///
    /// Range: 1..256. Lower it if a machine of many nodes does less work with stealing across nodes
    /// than without.
    ///
    /// Example: --steal-node-limit 2
    #[arg(long, default_value_t = 256, value_name = "N", value_parser = value_parser!(u32).range(1..=256))]
    pub steal_node_limit: u32,

    /// Choose the rules that may move a task, when it wakes up, near the CPU that wakes it.
    ///
    /// RULES is a list of idle and sync, or off. idle applies if the waking CPU is idle and the
    /// task's previous CPU is not. sync applies if the waker is about to sleep. Remove rules to
    /// keep tasks where they ran last, for comparison.
    ///
    /// Example: --wake-affine sync
    #[arg(long, default_value = "idle,sync", value_name = "RULES")]
    pub wake_affine: WakeAffine,

    /// Hand the waker's CPU to the task that it wakes, if the waker usually sleeps within this time
    /// after a wakeup through a pipe or a socket.
    ///
    /// Unit: microseconds. Range: 0..1000. Raise it if two tasks that answer each other have more
    /// to do before they sleep; 0 sends every such task to an idle CPU, if there is one.
    ///
    /// Example: --handoff-us 50
    #[arg(long, default_value_t = 20, value_name = "US", value_parser = micros::<u64>(0..=1000))]
    pub handoff_us: u64,

    /// Do not move a task back to its preferred node for this many scan periods after a wakeup, or a
    /// core of its own (SMT), took it away.
    ///
    /// Unit: scan periods of 1 s. Range: 0..64. Raise it if tasks that wake each other have their
    /// memory on different nodes and move back and forth; with 0 a task moves back immediately.
    ///
    /// Example: --numa-backoff 8
    #[arg(long, default_value_t = 4, value_name = "N", value_parser = value_parser!(u32).range(0..=64))]
    pub numa_backoff: u32,

    /// Spend at most this share of one CPU on sampling on which NUMA nodes processes have their
    /// memory.
    ///
    /// Unit: percent of one CPU. Range: 0..50. With 0 there is no sampling, and a task's preferred
    /// node is the one where it ran most. Machines with one node spend nothing. Use 0 if processes
    /// with very many mappings suffer from the sampling.
    ///
    /// Example: --numa-sample-share 5
    #[arg(long, default_value_t = 2, value_name = "PCT", value_parser = value_parser!(u32).range(0..=50))]
    pub numa_sample_share: u32,

    /// Sample the memory of one process for at most this long without a pause.
    ///
    /// Unit: milliseconds. Range: 1..1000. The sampler holds the process's mmap lock for a part of
    /// this time. Lower it if a process with many mappings stalls while it is sampled.
    ///
    /// Example: --numa-sample-ms 2
    #[arg(long, default_value_t = 10, value_name = "MS", value_parser = millis::<u64>(1..=1000))]
    pub numa_sample_ms: u64,

    /// Choose by how much the weight of a cgroup counts: once (smp), for each of its runnable tasks
    /// (tasks), for each CPU of its cpuset (max), or for the fewer of both (concur).
    ///
    /// auto does as the running kernel does without this scheduler: smp up to Linux 7.2, later the
    /// mode in /sys/kernel/debug/sched/cgroup_mode, which is concur unless somebody changed it.
    /// Choose smp if cpu.weight is to divide the machine between groups, however many tasks they
    /// have.
    ///
    /// Example: --cgroup-mode smp
    #[arg(long, value_enum, default_value_t = CgroupMode::Auto)]
    pub cgroup_mode: CgroupMode,

    /// Ignore cpu.weight, cpu.max and cpu.idle of all cgroups.
    ///
    /// Tasks then compete by their nice values alone. Use it for comparison, or if the weights that
    /// a container manager sets should not count.
    #[arg(long, help_heading = NEW_START)]
    pub no_cgroups: bool,

    /// Honor cpu.weight, cpu.max and cpu.idle of at most this many cgroups.
    ///
    /// Range: 1..65535. Tasks of a cgroup beyond the limit count as tasks of its parent. The limit
    /// takes 192 bytes of kernel memory per cgroup, 12 MB for 65535; each cgroup that exists takes
    /// about a hundred bytes more. Lower it on machines with little memory.
    ///
    /// Example: --max-cgroups 1000
    #[arg(long, help_heading = NEW_START, default_value_t = 65535, value_name = "N", value_parser = value_parser!(u32).range(1..=65535))]
    pub max_cgroups: u32,

    /// Treat all CPUs as equally strong, even if they differ in capacity (big.LITTLE, P and E
    /// cores).
    ///
    /// Use it for comparison only: big tasks then may stay on weak CPUs.
    #[arg(long, help_heading = NEW_START)]
    pub no_capacity: bool,

    /// Choose whether CPU frequencies follow utilization.
    ///
    /// They can follow only under the frequency governor schedutil. Use off for full speed, or for
    /// comparison.
    ///
    /// Example: --cpufreq off
    #[arg(long, help_heading = NEW_START, value_enum, default_value_t = CpuFreq::Auto)]
    pub cpufreq: CpuFreq,

    /// Choose between speed and energy.
    ///
    /// docs/tuning.md lists what each value changes. Change it if the system's power profile is not
    /// what you want for scheduling.
    ///
    /// Example: --power powersave
    #[arg(long, help_heading = NEW_START, value_enum, default_value_t = Power::Auto)]
    pub power: Power,

    /// Stop searching an LLC for an idle CPU when its utilization exceeds 100 / PCT.
    ///
    /// Unit: percent. Range: 101..1000. This is the bound of SIS_UTIL: with 117, as in the kernel,
    /// wakeups search fewer CPUs as utilization rises, and none above 85 %. Raise it if wakeups on
    /// large LLCs scan many busy CPUs; lower it if tasks wait while CPUs of their LLC are idle.
    ///
    /// Example: --imbalance-pct 130
    #[arg(long, default_value_t = 117, value_name = "PCT", value_parser = value_parser!(u32).range(101..=1000))]
    pub imbalance_pct: u32,

    /// Search the whole LLC for an idle CPU at each wakeup, however busy it is.
    ///
    /// Use it for comparison, or on machines with few CPUs.
    #[arg(long)]
    pub no_scan_limit: bool,

    /// Search LLCs of 16 CPUs or fewer further than their utilization alone would allow.
    ///
    /// nr_scan is multiplied by 32 / CPUs. Turn it off to search small LLCs as little as large
    /// ones, for comparison.
    ///
    /// Example: --small-llc-boost off
    #[arg(long, value_enum, default_value_t = Switch::On)]
    pub small_llc_boost: Switch,

    /// Count how long the searches for an idle CPU take.
    ///
    /// The commands top and export, and --stats with --details, show the histogram. It costs about
    /// 170 instructions at each wakeup, so leave it off unless you need it.
    #[arg(long)]
    pub latency_hist: bool,

    /// Publish the utilization and nr_scan of each LLC to the BPF program at this interval.
    ///
    /// Unit: milliseconds. Range: 1..1000. Lower it for a search bound that follows load faster;
    /// raise it if the loader uses too much CPU time or the statistic `stale` is above 0.
    ///
    /// Example: --util-interval 100
    #[arg(long, default_value_t = 32, value_name = "MS", value_parser = millis::<u64>(1..=1000))]
    pub util_interval: u64,

    /// Let the kernel eject the scheduler when a runnable task has waited for this long.
    ///
    /// Unit: milliseconds. Range: 1000..30000. Lower it to make stalls visible sooner, for example
    /// in tests.
    ///
    /// Example: --timeout-ms 5s
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

/// Choice of frequency targets for the governor schedutil.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum CpuFreq {
    /// Follow utilization if any CPU has the governor schedutil
    Auto,
    /// Request frequencies by utilization under any governor; only schedutil obeys
    On,
    /// Request full speed
    #[value(alias = "performance")]
    Off,
}

/// Power profile: a preference for speed or for energy.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Power {
    /// Follow the power profile of the system, also when it changes
    Auto,
    /// Request full speed, unless --cpufreq is on
    Performance,
    /// Behave like the kernel's own scheduler
    Balanced,
    /// Request lower frequencies, and pack light tasks on few cores, weak ones first
    Powersave,
}

/// CPUs from which a CPU steals waiting tasks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Steal {
    /// Steal nothing: a task waits for the CPU that it was sent to
    Off,
    /// Steal from CPUs of the same LLC
    Llc,
    /// Steal from CPUs of the same NUMA node
    Node,
    /// Steal from all CPUs, the nearest first
    All,
}

/// By how much the weight of a cgroup counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum CgroupMode {
    /// As the running kernel
    Auto,
    /// Once, however many tasks the cgroup has
    Smp,
    /// For each runnable task, but at most for each CPU of the cpuset
    Concur,
    /// For each CPU of the cpuset
    Max,
    /// For each runnable task
    Tasks,
}

impl CgroupMode {
    /// Return the name as in a flag, and in the kernel's file.
    pub fn name(self) -> String {
        self.to_possible_value().map_or_else(String::new, |mode| mode.get_name().into())
    }
}

/// Wake-affine rules that are in force.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(into = "String")]
pub struct WakeAffine {
    pub idle: bool,
    pub sync: bool,
}

impl From<WakeAffine> for String {
    /// Format the rules in the syntax of the flag.
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
                _ => return Err(format!("'{rule}' is not a rule: the rules are idle and sync, or off alone")),
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
        assert!("idle,off".parse::<WakeAffine>().unwrap_err().contains("'off' is not a rule"));
    }
}

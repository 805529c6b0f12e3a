// SPDX-License-Identifier: GPL-2.0-only
//! Names of statistics as metrics of Prometheus.
//!
//! Counters and times start at 0. Rates and percentages are omitted: queries compute them from
//! counters. Figures of the machine are sums over the LLCs.

use std::fmt;

use prometheus_client::registry::Unit;
use scx_stats::prelude::*;
use serde::Serialize;
use serde_json::Value;

use super::Host;
use super::encode::{Families, Labels, MS, NS, US};
use crate::stats::{Group, Metrics};

/// Metrics of each LLC: the metric and its statistic, whose description is the help text.
const LLC_GAUGES: [(&str, &str); 4] =
    [("cpus", "nr_cpus"), ("scan_cpus", "nr_scan"), ("queue_length", "nr_queued"), ("queue_length_max", "max_queued")];
const LLC_COUNTERS: [(&str, &str); 29] = [
    ("searches", "search"),
    ("domain_searches", "domain_search"),
    ("scanned_cpus", "scanned"),
    ("failed_searches", "failed"),
    ("stale_estimates", "stale"),
    ("local_enqueues", "local"),
    ("kthread_enqueues", "kthread"),
    ("queue_enqueues", "queued"),
    ("reenqueues", "reenqueue"),
    ("preemptions", "preempt"),
    ("throttled_tasks", "throttled"),
    ("released_tasks", "released"),
    ("kicks", "kick"),
    ("interrupts", "ipi"),
    ("own_tasks", "own"),
    ("kept_slices", "keep"),
    ("steal_attempts", "steal"),
    ("steal_misses", "steal_miss"),
    ("balanced_tasks", "balance"),
    ("own_slice_runs", "own_slice"),
    ("starved_tasks", "starved"),
    ("idle_dispatches", "empty"),
    ("affine_wakeups", "affine"),
    ("affine_far_wakeups", "affine_far"),
    ("preferred_held_ticks", "preferred_held"),
    ("misfits", "misfit"),
    ("misfit_moves", "misfit_move"),
    ("misfit_swaps", "misfit_swap"),
    ("room_moves", "room_move"),
];

/// Metrics of each LLC: name, help text, label, and the statistic for each value of the label.
type Labelled = (&'static str, &'static str, &'static str, &'static [(&'static str, &'static str)]);
const LLC_LABELLED: [Labelled; 3] = [
    (
        "wakeups",
        "wakeups by the place of the task: an idle CPU (target, previous, recent, another one of the LLC, one of another LLC), \
         the CPU of the waker, or a queue",
        "placed",
        &[
            ("target", "target"),
            ("previous", "prev"),
            ("recent", "recent"),
            ("scan", "scan"),
            ("beyond", "beyond"),
            ("handoff", "handoff"),
            ("queue", "failed"),
        ],
    ),
    (
        "steals",
        "tasks stolen by a CPU about to go idle, by the place where they waited: the same LLC, the same node, or another node",
        "from",
        &[("llc", "steal_llc"), ("node", "steal_node"), ("far", "steal_far")],
    ),
    (
        "preferred_returns",
        "tasks that returned to their preferred node: on wakeup, while they waited, while they ran",
        "by",
        &[("wakeup", "preferred_wake"), ("steal", "preferred_steal"), ("move", "preferred_move")],
    ),
];

/// Metrics of each LLC: name, help text, statistic, and the number of its units in a second.
const LLC_TIMES: [(&str, &str, &str, f64); 3] = [
    ("busy", "CPU time that was not idle", "busy_ns", NS),
    ("stolen_wait", "time that tasks waited before another CPU took them", "stolen_ns", NS),
    ("misfit", "time that tasks ran on a CPU too small for them", "misfit_ms", MS),
];

/// Return the label of one LLC, or of another thing that has an index or a name.
fn label(name: &'static str, value: impl ToString) -> Labels {
    vec![(name, value.to_string())]
}

/// Return the statistics as a map by name.
fn by_name(statistics: &impl Serialize) -> Value {
    // Plain structs cannot fail.
    serde_json::to_value(statistics).unwrap_or_default()
}

impl Families<'_> {
    /// Write the metrics that do not need an attached scx_magpie.
    pub fn host(&mut self, host: &Host) -> fmt::Result {
        let help = "the scheduler that the kernel runs: a sched_ext scheduler, or EEVDF; always 1";
        self.gauge("scheduler_info", help, None, &[(label("scheduler", &host.scheduler), 1u64)])?;
        let help = "ejections, crashes and kills of scx_magpie since boot";
        self.counter("failures", help, None, &[(vec![], host.nr_failures)])?;
        let attached: Vec<_> = host.nr_attached.into_iter().map(|count| (vec![], count)).collect();
        self.counter("attaches", "sched_ext schedulers that were attached since boot", None, &attached)?;
        let help = "time in which at least one task waited for a CPU, under any scheduler (PSI)";
        let waited: Vec<_> = host.pressure_us.into_iter().map(|us| (vec![], us as f64 / US)).collect();
        self.counter("cpu_pressure", help, Some(&Unit::Seconds), &waited)
    }

    pub fn llcs(&mut self, metrics: &Metrics) -> fmt::Result {
        let meta = Group::meta();
        let help = |field: &str| meta.fields[field].attrs.desc.clone().unwrap_or_default();
        let llcs: Vec<_> = metrics.llcs.iter().map(|(id, llc)| (label("llc", id), by_name(llc))).collect();
        let counts = |field: &str| -> Vec<_> {
            llcs.iter().map(|(labels, llc)| (labels.clone(), llc[field].as_u64().unwrap_or(0))).collect()
        };
        for (name, field) in LLC_GAUGES {
            self.gauge(name, &help(field), None, &counts(field))?;
        }
        let util: Vec<_> = metrics.llcs.iter().map(|(id, llc)| (label("llc", id), llc.util / 100.0)).collect();
        let ratio = Unit::Other("ratio".into());
        self.gauge(
            "utilization",
            "utilization (PELT), as a part of the capacity; at 1 all CPUs are busy at full speed",
            Some(&ratio),
            &util,
        )?;
        let of_target = |(id, llc): (&usize, &Group)| (label("llc", id), llc.cpuperf_target / 100.0);
        let targets: Vec<_> = metrics.llcs.iter().map(of_target).collect();
        self.gauge("frequency_target", &help("cpuperf_target"), Some(&ratio), &targets)?;
        for (name, field) in LLC_COUNTERS {
            self.counter(name, &help(field), None, &counts(field))?;
        }
        for (name, help, key, fields) in LLC_LABELLED {
            let mut samples = Vec::new();
            for &(value, field) in fields {
                let labelled = |(labels, count)| ([labels, label(key, value)].concat(), count);
                samples.extend(counts(field).into_iter().map(labelled));
            }
            self.counter(name, help, None, &samples)?;
        }
        for (name, help, field, unit) in LLC_TIMES {
            let samples: Vec<_> =
                counts(field).into_iter().map(|(labels, time)| (labels, time as f64 / unit)).collect();
            self.counter(name, help, Some(&Unit::Seconds), &samples)?;
        }
        let timed = metrics.llcs.iter().filter(|(_, llc)| llc.latencies.iter().any(|&count| count > 0));
        let timed: Vec<_> = timed.map(|(id, llc)| (label("llc", id), &llc.latencies[..])).collect();
        self.histogram("search_duration", "duration of searches for an idle CPU, with --latency-hist", &timed)
    }

    pub fn nodes(&mut self, metrics: &Metrics) -> fmt::Result {
        let ticks = metrics.nodes.iter().flat_map(|(id, node)| {
            let of =
                |preferred: bool, count| (vec![("node", id.to_string()), ("preferred", preferred.to_string())], count);
            [of(true, node.checks_preferred), of(false, node.checks - node.checks_preferred)]
        });
        let help = "ticks that found a task with a preferred node running on the node; preferred is true if the task prefers it";
        self.counter("node_ticks", help, None, &ticks.collect::<Vec<_>>())
    }

    /// Write the sampler's metrics. Nothing if memory is not sampled.
    pub fn memory(&mut self, metrics: &Metrics) -> fmt::Result {
        let memory = &metrics.memory;
        if metrics.nodes.is_empty() {
            return Ok(());
        }
        let seconds = Some(&Unit::Seconds);
        self.counter(
            "memory_samples",
            "processes whose memory was sampled completely",
            None,
            &[(vec![], memory.samples)],
        )?;
        let help = "samplings interrupted after --numa-sample-ms, to be continued later";
        self.counter("memory_cut_samples", help, None, &[(vec![], memory.cut)])?;
        self.counter(
            "memory_sampling",
            "CPU time of memory sampling",
            seconds,
            &[(vec![], memory.cpu_ns as f64 / NS)],
        )?;
        let longest = memory.longest_us as f64 / US;
        let help = "CPU time of the longest sampling without a pause";
        self.gauge("memory_longest_sample", help, seconds, &[(vec![], longest)])?;
        let help = "processes known now to have most of their memory on one node";
        self.gauge("memory_known", help, None, &[(vec![], memory.known)])
    }

    pub fn cgroups(&mut self, metrics: &Metrics) -> fmt::Result {
        let cgroups = &metrics.cgroups;
        let help = "cgroups with a weight of their own, without the root";
        self.gauge("cgroups", help, None, &[(vec![], cgroups.nr_groups)])?;
        let help = "cgroups beyond --max-cgroups, whose tasks count as tasks of the parent cgroup";
        self.gauge("lost_cgroups", help, None, &[(vec![], cgroups.nr_lost)])?;
        let help = "limit of cgroups with a weight of their own (--max-cgroups)";
        self.gauge("max_cgroups", help, None, &[(vec![], metrics.max_cgroups)])?;

        let top: Vec<_> = cgroups.top.iter().map(|(path, cgroup)| (label("cgroup", path), cgroup)).collect();
        let weights: Vec<_> = top.iter().map(|(labels, of)| (labels.clone(), of.weight)).collect();
        self.gauge("cgroup_weight", "cpu.weight", None, &weights)?;
        let periods: Vec<_> = top.iter().map(|(labels, of)| (labels.clone(), of.nr_periods)).collect();
        let help = "periods of cpu.max in which the cgroup ran or was throttled";
        self.counter("cgroup_periods", help, None, &periods)?;
        let throttled: Vec<_> = top.iter().map(|(labels, of)| (labels.clone(), of.nr_throttled)).collect();
        self.counter(
            "cgroup_throttled_periods",
            "periods of cpu.max in which the cgroup was throttled",
            None,
            &throttled,
        )?;
        let seconds = Some(&Unit::Seconds);
        let throttled: Vec<_> = top.iter().map(|(labels, of)| (labels.clone(), of.throttled_ms as f64 / MS)).collect();
        let help = "time that the cgroup was throttled, counted when it is unthrottled";
        self.counter("cgroup_throttled", help, seconds, &throttled)?;
        let usage: Vec<_> = top.iter().map(|(labels, of)| (labels.clone(), of.usage_us as f64 / US)).collect();
        self.counter("cgroup_cpu", "CPU time of the tasks of the cgroup and its descendants", seconds, &usage)
    }

    /// Write the wake cases. Nothing if CPUs are of one kind.
    pub fn wake_cases(&mut self, metrics: &Metrics) -> fmt::Result {
        let samples = metrics.wake_cases.values().flat_map(|of| {
            [
                ("little", "fast", of.little_fast),
                ("little", "scan", of.little_scan),
                ("little", "queue", of.little_fallback),
                ("big", "fast", of.big_fast),
                ("big", "scan", of.big_scan),
                ("big", "queue", of.big_fallback),
            ]
            .map(|(cpu, placed, count)| {
                let labels = [("case", of.case.clone()), ("cpu", cpu.into()), ("placed", placed.into())];
                (labels.into(), count)
            })
        });
        let help = "wakeups by case (size of the task, the previous CPU and the waking CPU: l(ittle) or b(ig)) and by the place of \
                    the task";
        self.counter("capacity_wakeups", help, None, &samples.collect::<Vec<_>>())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Rates that queries compute, and statistics with separate code.
    const LEFT_OUT: [&str; 9] = [
        "se_eff",
        "dom_eff",
        "fast_rate",
        "success_rate",
        "busy",
        "stolen",
        "stolen_from",
        "stolen_wait_us",
        "on_preferred",
    ];
    const BY_HAND: [&str; 3] = ["util", "cpuperf_target", "latencies"];

    #[test]
    fn each_statistic_of_an_llc_is_exported_or_left_out() {
        let pairs = LLC_GAUGES.iter().chain(&LLC_COUNTERS).map(|(_, field)| *field);
        let labelled = LLC_LABELLED.iter().flat_map(|(.., fields)| fields.iter().map(|(_, field)| *field));
        let times = LLC_TIMES.iter().map(|(_, _, field, _)| *field);
        let mut listed: Vec<_> = pairs.chain(labelled).chain(times).chain(LEFT_OUT).chain(BY_HAND).collect();
        listed.sort_unstable();
        listed.dedup();
        assert_eq!(listed, Group::meta().fields.keys().collect::<Vec<_>>());
    }
}

// SPDX-License-Identifier: GPL-2.0-only
//! Statistics of an LLC, a node or the machine in an interval: the figures that users see.

use std::time::Duration;

use scx_stats_derive::{Stats, stat_doc};
use serde::{Deserialize, Serialize};

use super::search::SearchCounts;
use super::snapshot::LlcSnapshot;
use super::{percent, rise};
use crate::bpf_intf::*;

const CAPACITY_SCALE: usize = pelt_consts_CAPACITY_SCALE as usize;

/// Statistics of an LLC or the machine in an interval. Events are counted on the CPU that caused
/// them: a wakeup on the waker's, a steal on the thief's.
#[stat_doc]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, Stats)]
#[stat(_om_prefix = "l_", _om_label = "llc")]
#[serde(default)]
pub struct Group {
    #[stat(desc = "CPUs online")]
    pub nr_cpus: u64,
    #[stat(desc = "utilization (PELT) in % of the capacity; at 100 all CPUs are busy at full speed")]
    pub util: f64,
    #[stat(
        desc = "mean frequency target that the governor schedutil gets now, in %; 100 is full speed, as with --cpufreq off"
    )]
    pub cpuperf_target: f64,
    #[stat(desc = "tasks that wait in queues now")]
    pub nr_queued: u64,
    #[stat(desc = "tasks that wait in the longest queue now")]
    pub max_queued: u64,
    #[stat(desc = "CPUs of the LLC that a search may scan now; the machine has the sum of its LLCs")]
    pub nr_scan: u64,
    #[stat(desc = "searches for an idle CPU; one per wakeup")]
    pub search: u64,
    #[stat(desc = "searches that scanned the LLC because target, previous and recent CPU were busy")]
    pub domain_search: u64,
    #[stat(
        desc = "CPUs that searches checked: 1 if target, previous or recent CPU was idle, else all that were scanned"
    )]
    pub scanned: u64,
    #[stat(desc = "searches that found no idle CPU; the task waits in a queue")]
    pub failed: u64,
    #[stat(desc = "idle CPUs found per CPU checked, in %: (search - failed) / scanned")]
    pub se_eff: f64,
    #[stat(
        desc = "idle CPUs found per CPU scanned, of searches that scanned the LLC, in %: (domain_search - failed) / CPUs scanned"
    )]
    pub dom_eff: f64,
    #[stat(desc = "searches that found target, previous or recent CPU idle, in %: (search - domain_search) / search")]
    pub fast_rate: f64,
    #[stat(desc = "searches that found an idle CPU, in %: (search - failed) / search")]
    pub success_rate: f64,
    #[stat(desc = "histogram of search times with --latency-hist: item i counts searches of 2^i to 2^(i+1) ns")]
    pub latencies: Vec<u64>,
    #[stat(desc = "times that the BPF program started to compute nr_scan itself because the loader was late")]
    pub stale: u64,
    #[stat(desc = "wakeups placed on the target if it was idle: the previous CPU or the waking CPU")]
    pub target: u64,
    #[stat(desc = "wakeups placed on the previous CPU if it was idle and not the target")]
    pub prev: u64,
    #[stat(desc = "wakeups placed on the CPU that the task used before the previous one, if it was idle")]
    pub recent: u64,
    #[stat(desc = "wakeups placed on another idle CPU of the LLC of the target")]
    pub scan: u64,
    #[stat(desc = "wakeups placed on an idle CPU of another LLC")]
    pub beyond: u64,
    #[stat(desc = "wakeups without a search, because the waker was about to sleep and handed its CPU to the wakee")]
    pub handoff: u64,
    #[stat(desc = "tasks enqueued on a CPU that was found idle; mostly pinned tasks")]
    pub local: u64,
    #[stat(desc = "per-CPU kernel threads and the loader, which run without waiting in a queue")]
    pub kthread: u64,
    #[stat(desc = "wakeups that preempted the running task")]
    pub preempt: u64,
    #[stat(desc = "tasks inserted into a queue")]
    pub queued: u64,
    #[stat(desc = "tasks held back because their cgroup had used up its cpu.max")]
    pub throttled: u64,
    #[stat(desc = "throttled tasks that a CPU took after their cgroup was unthrottled")]
    pub released: u64,
    #[stat(desc = "idle CPUs woken to take a waiting task")]
    pub kick: u64,
    #[stat(desc = "interrupts sent to other CPUs, to take a task or to preempt one")]
    pub ipi: u64,
    #[stat(desc = "tasks that a CPU took from its own queue")]
    pub own: u64,
    #[stat(desc = "slices extended because no task with an earlier deadline was waiting")]
    pub keep: u64,
    #[stat(desc = "times that a CPU without work searched the queues of other CPUs")]
    pub steal: u64,
    #[stat(desc = "tasks stolen from a CPU of the same LLC")]
    pub steal_llc: u64,
    #[stat(desc = "tasks stolen from another LLC of the same node")]
    pub steal_node: u64,
    #[stat(desc = "tasks stolen from another node")]
    pub steal_far: u64,
    #[stat(desc = "tasks stolen by CPUs about to go idle: steal_llc + steal_node + steal_far")]
    pub stolen: u64,
    #[stat(desc = "tasks stolen from other LLCs: item i counts those from LLC i; the first 8 LLCs only")]
    pub stolen_from: Vec<u64>,
    #[stat(desc = "mean time that a task waited before another CPU took it, in microseconds")]
    pub stolen_wait_us: f64,
    #[stat(desc = "total time that tasks waited before another CPU took them, in nanoseconds")]
    pub stolen_ns: u64,
    #[stat(desc = "time that CPUs were not idle, in %")]
    pub busy: f64,
    #[stat(desc = "time that CPUs were not idle, in nanoseconds, up to the last tick of each CPU")]
    pub busy_ns: u64,
    #[stat(desc = "waiting tasks that a busy CPU took from another one where tasks waited longer or had more lag")]
    pub balance: u64,
    #[stat(desc = "runs of tasks whose program asked for a slice of its own (sched_attr.sched_runtime)")]
    pub own_slice: u64,
    #[stat(desc = "tasks run ahead of their turn because they had waited for a quarter of --timeout-ms")]
    pub starved: u64,
    #[stat(desc = "overloaded CPUs that had no task to steal when they were tried")]
    pub steal_miss: u64,
    #[stat(desc = "times that a CPU found no task to run")]
    pub empty: u64,
    #[stat(desc = "tasks enqueued again because a higher scheduling class took their CPU")]
    pub reenqueue: u64,
    #[stat(desc = "wakeups that wake-affine moved from the previous CPU to the waking CPU")]
    pub affine: u64,
    #[stat(desc = "wakeups that wake-affine moved from another node to the waking CPU")]
    pub affine_far: u64,
    #[stat(desc = "tasks that returned to their preferred node when they woke up")]
    pub preferred_wake: u64,
    #[stat(desc = "waiting tasks that a CPU of their preferred node took")]
    pub preferred_steal: u64,
    #[stat(desc = "running tasks that were moved to their preferred node")]
    pub preferred_move: u64,
    #[stat(desc = "ticks that found a task off its preferred node and left it there because of --numa-backoff")]
    pub preferred_held: u64,
    #[stat(desc = "run time of tasks on their preferred node, in %, sampled by ticks; 0 on machines with one node")]
    pub on_preferred: f64,
    #[stat(desc = "running tasks found too big for their CPU; 0 if all CPUs have the same capacity")]
    pub misfit: u64,
    #[stat(desc = "time that tasks ran on a CPU too small for them, in milliseconds")]
    pub misfit_ms: u64,
    #[stat(desc = "running tasks moved to a stronger CPU because they were too big for theirs")]
    pub misfit_move: u64,
    #[stat(desc = "of misfit_move, tasks that took the CPU of a smaller task")]
    pub misfit_swap: u64,
    #[stat(desc = "long-running tasks moved off a shared core, to a preferred core, or to an LLC with more idle CPUs")]
    pub room_move: u64,
}

impl LlcSnapshot {
    /// Return the increase since `prev`.
    pub fn since(&self, prev: Option<&Self>, interval: Duration) -> Group {
        let of = |stat: magpie_stat| {
            let count = |llc: &Self| llc.counters[stat as usize];
            rise(count(self), prev.map_or(0, count))
        };
        let busy = self.busy_ns.saturating_sub(prev.map_or(0, |prev| prev.busy_ns));
        let counts = SearchCounts::of(of);
        let cpu_time = interval.as_nanos() as u64 * self.nr_cpus as u64;
        let stolen = of(magpie_stat_STAT_STEAL_LLC) + of(magpie_stat_STAT_STEAL_NODE) + of(magpie_stat_STAT_STEAL_FAR);
        let taken = stolen + of(magpie_stat_STAT_BALANCE);
        Group {
            nr_cpus: self.nr_cpus as u64,
            util: percent(u64::from(self.sum_util), self.capacity as u64),
            cpuperf_target: percent(self.sum_target, (self.nr_cpus * CAPACITY_SCALE) as u64),
            nr_queued: self.nr_queued,
            max_queued: self.max_queued,
            nr_scan: u64::from(self.nr_scan),
            search: counts.search,
            domain_search: counts.domain_search,
            scanned: counts.scanned(),
            failed: counts.failed,
            se_eff: counts.se_eff(),
            dom_eff: counts.dom_eff(),
            fast_rate: counts.fast_rate(),
            success_rate: counts.success_rate(),
            latencies: rises(&self.latencies, prev.map(|prev| &prev.latencies[..])),
            stale: of(magpie_stat_STAT_STALE),
            target: of(magpie_stat_STAT_TARGET),
            prev: of(magpie_stat_STAT_PREV),
            recent: of(magpie_stat_STAT_RECENT),
            scan: of(magpie_stat_STAT_SCAN),
            beyond: of(magpie_stat_STAT_BEYOND),
            handoff: of(magpie_stat_STAT_HANDOFF),
            local: of(magpie_stat_STAT_LOCAL),
            kthread: of(magpie_stat_STAT_KTHREAD),
            preempt: of(magpie_stat_STAT_PREEMPT),
            queued: of(magpie_stat_STAT_QUEUED),
            throttled: of(magpie_stat_STAT_THROTTLED),
            released: of(magpie_stat_STAT_RELEASED),
            kick: of(magpie_stat_STAT_KICK),
            ipi: of(magpie_stat_STAT_IPI),
            own: of(magpie_stat_STAT_OWN),
            keep: of(magpie_stat_STAT_KEEP),
            steal: of(magpie_stat_STAT_STEAL),
            stolen_wait_us: of(magpie_stat_STAT_STOLEN_NS) as f64 / 1000.0 / taken.max(1) as f64,
            stolen_ns: of(magpie_stat_STAT_STOLEN_NS),
            busy: percent(busy, cpu_time),
            busy_ns: of(magpie_stat_STAT_BUSY_NS),
            steal_llc: of(magpie_stat_STAT_STEAL_LLC),
            steal_node: of(magpie_stat_STAT_STEAL_NODE),
            steal_far: of(magpie_stat_STAT_STEAL_FAR),
            stolen,
            stolen_from: rises(&self.stolen_from, prev.map(|prev| &prev.stolen_from[..])),
            balance: of(magpie_stat_STAT_BALANCE),
            own_slice: of(magpie_stat_STAT_OWN_SLICE),
            starved: of(magpie_stat_STAT_STARVED),
            steal_miss: of(magpie_stat_STAT_STEAL_MISS),
            empty: of(magpie_stat_STAT_EMPTY),
            reenqueue: of(magpie_stat_STAT_REENQUEUE),
            affine: of(magpie_stat_STAT_AFFINE),
            affine_far: of(magpie_stat_STAT_AFFINE_FAR),
            preferred_wake: of(magpie_stat_STAT_PREFERRED_WAKE),
            preferred_steal: of(magpie_stat_STAT_PREFERRED_STEAL),
            preferred_move: of(magpie_stat_STAT_PREFERRED_MOVE),
            preferred_held: of(magpie_stat_STAT_PREFERRED_HELD),
            misfit: of(magpie_stat_STAT_MISFIT),
            misfit_ms: of(magpie_stat_STAT_MISFIT_NS) / 1_000_000,
            misfit_move: of(magpie_stat_STAT_MISFIT_MOVE),
            misfit_swap: of(magpie_stat_STAT_MISFIT_SWAP),
            room_move: of(magpie_stat_STAT_ROOM_MOVE),
            on_preferred: percent(
                of(magpie_stat_STAT_ON_PREFERRED),
                of(magpie_stat_STAT_ON_PREFERRED) + of(magpie_stat_STAT_OFF_PREFERRED),
            ),
        }
    }
}

fn rises(now: &[u64], prev: Option<&[u64]>) -> Vec<u64> {
    let before = |i: usize| prev.map_or(0, |prev| prev[i]);
    now.iter().enumerate().map(|(i, &now)| rise(now, before(i))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stats::metrics::tests::{SECOND, snapshot};

    #[test]
    fn times_are_shares_of_cpu_time_and_waits_an_average() {
        let mut now = snapshot([0, 0]);
        let mut count = |stat: magpie_stat, count| now.llcs[0].counters[stat as usize] = count;
        count(magpie_stat_STAT_BUSY_NS, 1_490_000_000);
        count(magpie_stat_STAT_STEAL_LLC, 2);
        count(magpie_stat_STAT_BALANCE, 1);
        count(magpie_stat_STAT_STOLEN_NS, 60_000);
        now.llcs[0].busy_ns = 1_500_000_000;
        let llc = &now.since(&snapshot([0, 0]), SECOND).llcs[&0];
        let cpus = llc.nr_cpus as f64;
        assert_eq!(llc.busy * cpus, 150.0);
        assert_eq!((llc.stolen, llc.stolen_wait_us), (2, 20.0));
        assert_eq!((llc.busy_ns, llc.stolen_ns), (1_490_000_000, 60_000));
    }
}

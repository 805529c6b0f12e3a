// SPDX-License-Identifier: GPL-2.0-only
//! What an interval added, of an LLC, a node or the machine: the figures that users see.

use std::time::Duration;

use scx_stats_derive::{Stats, stat_doc};
use serde::{Deserialize, Serialize};

use super::search::SearchCounts;
use super::snapshot::LlcSnapshot;
use super::{percent, rise};
use crate::bpf_intf::*;

const CAPACITY_SCALE: usize = pelt_consts_CAPACITY_SCALE as usize;

/// What an interval added, of an LLC or the machine. Events count where the CPU was that did them: a wakeup at
/// the waker's, a steal at the thief's.
#[stat_doc]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, Stats)]
#[stat(_om_prefix = "l_", _om_label = "llc")]
#[serde(default)]
pub struct Group {
    #[stat(desc = "CPUs")]
    pub nr_cpus: u64,
    #[stat(desc = "utilization % of the capacity (100% means all CPUs busy at full speed)")]
    pub util: f64,
    #[stat(
        desc = "mean target that the kernel has for the governor schedutil now %; 100 is full speed, as with --cpufreq off"
    )]
    pub cpuperf_target: f64,
    #[stat(desc = "tasks waiting in queues now")]
    pub nr_queued: u64,
    #[stat(desc = "tasks waiting in the longest queue now")]
    pub max_queued: u64,
    #[stat(desc = "CPUs that a search may go over now, of all in nr_cpus")]
    pub nr_scan: u64,
    #[stat(desc = "searches for an idle CPU, one a wakeup")]
    pub search: u64,
    #[stat(desc = "searches that went past the fast candidates: target, previous and recently used CPU")]
    pub domain_search: u64,
    #[stat(desc = "CPUs that searches went over: 1 for a fast hit, all up to the one found in the LLC and beyond")]
    pub scanned: u64,
    #[stat(desc = "searches that found no idle CPU")]
    pub failed: u64,
    #[stat(desc = "search efficiency, CPUs found per CPU scanned %: (search - failed) / scanned")]
    pub se_eff: f64,
    #[stat(desc = "the same past the fast candidates %: (domain_search - failed) / CPUs scanned there")]
    pub dom_eff: f64,
    #[stat(desc = "searches that ended at a fast candidate %: (search - domain_search) / search")]
    pub fast_rate: f64,
    #[stat(desc = "searches that found a CPU %: (search - failed) / search")]
    pub success_rate: f64,
    #[stat(desc = "searches by time, with --latency-hist: item i took 2^i .. 2^(i+1) ns")]
    pub latencies: Vec<u64>,
    #[stat(desc = "times that the BPF program began to estimate nr_scan itself, for the loader was late")]
    pub stale: u64,
    #[stat(desc = "wakeups placed on an idle target: the previous or the waking CPU")]
    pub target: u64,
    #[stat(desc = "wakeups placed on the idle previous CPU, when it was not the target")]
    pub prev: u64,
    #[stat(desc = "wakeups placed on the idle CPU used before the previous one")]
    pub recent: u64,
    #[stat(desc = "wakeups placed on another idle CPU of the target's LLC")]
    pub scan: u64,
    #[stat(desc = "wakeups placed on an idle CPU of another LLC")]
    pub beyond: u64,
    #[stat(desc = "wakeups without a search: the waker was about to sleep, and handed its CPU off")]
    pub handoff: u64,
    #[stat(desc = "tasks enqueued on a CPU that turned out idle, pinned tasks mostly")]
    pub local: u64,
    #[stat(desc = "per-CPU kernel threads and the loader, run at once")]
    pub kthread: u64,
    #[stat(desc = "wakees that preempted current")]
    pub preempt: u64,
    #[stat(desc = "tasks put into a queue")]
    pub queued: u64,
    #[stat(desc = "tasks made to wait, for their cgroup had used up its cpu.max")]
    pub throttled: u64,
    #[stat(desc = "throttled tasks that a CPU took when their group was released")]
    pub released: u64,
    #[stat(desc = "idle CPUs woken to take a waiting task")]
    pub kick: u64,
    #[stat(desc = "interrupts sent to other CPUs, to take a task or to preempt one")]
    pub ipi: u64,
    #[stat(desc = "tasks taken from the CPU's own queue")]
    pub own: u64,
    #[stat(desc = "slices prolonged: no task with an earlier deadline was waiting")]
    pub keep: u64,
    #[stat(desc = "times that a CPU without work looked for some at others")]
    pub steal: u64,
    #[stat(desc = "tasks stolen from a CPU of the same LLC")]
    pub steal_llc: u64,
    #[stat(desc = "tasks stolen from another LLC of the node")]
    pub steal_node: u64,
    #[stat(desc = "tasks stolen from another node")]
    pub steal_far: u64,
    #[stat(desc = "tasks stolen: steal_llc + steal_node + steal_far")]
    pub stolen: u64,
    #[stat(desc = "steal_node and steal_far by where the tasks came from: item i from LLC i, of the first 8")]
    pub stolen_from: Vec<u64>,
    #[stat(desc = "microseconds that a task taken by another CPU had waited, on average")]
    pub stolen_wait_us: f64,
    #[stat(desc = "time that tasks taken by another CPU had waited, nanoseconds")]
    pub stolen_ns: u64,
    #[stat(desc = "time that CPUs were not idle %")]
    pub busy: f64,
    #[stat(desc = "the same in nanoseconds, up to each CPU's last tick")]
    pub busy_ns: u64,
    #[stat(desc = "tasks that a busy CPU took from one where they are owed more, or waited longer")]
    pub balance: u64,
    #[stat(desc = "tasks run out of turn, for they had waited for a quarter of --timeout-ms")]
    pub starved: u64,
    #[stat(desc = "victims with no task to steal")]
    pub steal_miss: u64,
    #[stat(desc = "times a CPU found nothing to run")]
    pub empty: u64,
    #[stat(desc = "tasks re-enqueued, for a higher scheduling class took their CPU")]
    pub reenqueue: u64,
    #[stat(desc = "wakeups that wake-affine pulled to the waking CPU, away from the previous one")]
    pub affine: u64,
    #[stat(desc = "the same, from another node")]
    pub affine_far: u64,
    #[stat(desc = "tasks that returned to their home node when they woke")]
    pub home_wake: u64,
    #[stat(desc = "waiting tasks that a CPU of their home node took")]
    pub home_steal: u64,
    #[stat(desc = "running tasks moved to their home node")]
    pub home_move: u64,
    #[stat(desc = "times that a tick found a task away from home, held back by --numa-backoff")]
    pub home_held: u64,
    #[stat(desc = "run time of tasks on their home nodes %, by ticks; 0 on machines with one node")]
    pub at_home: f64,
    #[stat(desc = "running tasks too big for their CPU; 0, as the next three, where CPUs are of one kind")]
    pub misfit: u64,
    #[stat(desc = "milliseconds for which such tasks ran there")]
    pub misfit_ms: u64,
    #[stat(desc = "such tasks that were moved to a stronger CPU")]
    pub misfit_move: u64,
    #[stat(desc = "... which a task had to leave that fits elsewhere")]
    pub misfit_swap: u64,
    #[stat(
        desc = "long-running tasks that were moved off a shared core, to a preferred core, or to an LLC with more room"
    )]
    pub room_move: u64,
}

impl LlcSnapshot {
    /// What came since `prev`.
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
            starved: of(magpie_stat_STAT_STARVED),
            steal_miss: of(magpie_stat_STAT_STEAL_MISS),
            empty: of(magpie_stat_STAT_EMPTY),
            reenqueue: of(magpie_stat_STAT_REENQUEUE),
            affine: of(magpie_stat_STAT_AFFINE),
            affine_far: of(magpie_stat_STAT_AFFINE_FAR),
            home_wake: of(magpie_stat_STAT_HOME_WAKE),
            home_steal: of(magpie_stat_STAT_HOME_STEAL),
            home_move: of(magpie_stat_STAT_HOME_MOVE),
            home_held: of(magpie_stat_STAT_HOME_HELD),
            misfit: of(magpie_stat_STAT_MISFIT),
            misfit_ms: of(magpie_stat_STAT_MISFIT_NS) / 1_000_000,
            misfit_move: of(magpie_stat_STAT_MISFIT_MOVE),
            misfit_swap: of(magpie_stat_STAT_MISFIT_SWAP),
            room_move: of(magpie_stat_STAT_ROOM_MOVE),
            at_home: percent(of(magpie_stat_STAT_HOME), of(magpie_stat_STAT_HOME) + of(magpie_stat_STAT_AWAY)),
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

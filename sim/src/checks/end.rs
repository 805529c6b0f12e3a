// SPDX-License-Identifier: GPL-2.0-only
//! Invariants at the end of a run: counters agree with observations, and shares follow weights.

use scx_magpie::bpf_intf::*;

use crate::costs::TICK;
use crate::dsq::TaskId;
use crate::kernel::{Kernel, fail_if, violate};
use crate::time::{MSEC, USEC};
use crate::trace::Op;

impl Kernel {
    pub fn check_counters(&mut self) {
        let mut sums = [0u64; magpie_stat_MAGPIE_NR_STATS as usize];
        for cpu in 0..self.cpus.len() {
            let stats = self.native.cpu_ctx(cpu).stats;
            sums.iter_mut().zip(stats).for_each(|(sum, count)| *sum += count);
        }
        let sum = |stats: &[magpie_stat]| -> u64 { stats.iter().map(|&stat| sums[stat as usize]).sum() };
        let called = |op: Op| self.trace.counts[op as usize] - self.checks.counts[op as usize];
        let pairs = [
            ("select_cpu() calls", called(Op::SelectCpu), sum(&[magpie_stat_STAT_SEARCH, magpie_stat_STAT_HANDOFF])),
            (
                "where wakeups went",
                called(Op::SelectCpu),
                sum(&[
                    magpie_stat_STAT_TARGET,
                    magpie_stat_STAT_PREV,
                    magpie_stat_STAT_RECENT,
                    magpie_stat_STAT_SCAN,
                    magpie_stat_STAT_BEYOND,
                    magpie_stat_STAT_HANDOFF,
                    magpie_stat_STAT_FAILED,
                ]),
            ),
            (
                "enqueue() calls",
                called(Op::Enqueue) - self.checks.uncounted,
                sum(&[
                    magpie_stat_STAT_LOCAL,
                    magpie_stat_STAT_KTHREAD,
                    magpie_stat_STAT_PREEMPT,
                    magpie_stat_STAT_QUEUED,
                    magpie_stat_STAT_THROTTLED,
                    magpie_stat_STAT_PREFERRED_MOVE,
                    magpie_stat_STAT_MISFIT_MOVE,
                    magpie_stat_STAT_ROOM_MOVE,
                ]),
            ),
            (
                "tasks that dispatch() brought",
                self.checks.moved,
                sum(&[
                    magpie_stat_STAT_OWN,
                    magpie_stat_STAT_STEAL_LLC,
                    magpie_stat_STAT_STEAL_NODE,
                    magpie_stat_STAT_STEAL_FAR,
                    magpie_stat_STAT_BALANCE,
                ]),
            ),
            (
                "dispatch() calls",
                called(Op::Dispatch) - self.checks.moved,
                sum(&[magpie_stat_STAT_KEEP, magpie_stat_STAT_EMPTY]),
            ),
            ("kicks of idle CPUs", self.checks.kicked, sum(&[magpie_stat_STAT_KICK])),
            ("tasks that fled", self.checks.reenqueued, sum(&[magpie_stat_STAT_REENQUEUE])),
        ];
        for (what, seen, counted) in pairs {
            fail_if!(self, seen != counted, "counters", "{what}: {seen}, and the program counted {counted}");
        }
    }

    /// Check that hogs on one CPU have run by weight since `from`, except for a few slices, turns
    /// by the guard against starvation, and a wakeup's credit.
    pub fn check_shares(&mut self, hogs: &[TaskId], from: u64) {
        for cpu in 0..self.cpus.len() {
            self.update_curr(cpu);
        }
        let starve = u64::from(self.tunables.timeout_ms) * MSEC / 4;
        let turns = 3 + (self.now - from) / starve;
        for cpu in 0..self.cpus.len() {
            let on: Vec<TaskId> = (hogs.iter().copied())
                .filter(|&task| self.tasks[task].traits.allowed.is_only(cpu) && self.tasks[task].cgroup == 0)
                .collect();
            // Run times weighted to ns of nice 0.
            let share = |kernel: &Self, task: TaskId| {
                let weight = u64::from(kernel.tasks[task].weight());
                (kernel.tasks[task].raw().se.sum_exec_runtime * 1024 / weight, weight)
            };
            let slice = self.longest_slice() + 2 * TICK;
            for (i, &a) in on.iter().enumerate() {
                for &b in &on[i + 1..] {
                    let ((ran_a, weight_a), (ran_b, weight_b)) = (share(self, a), share(self, b));
                    let credit = self.tunables.slice_us_lag * USEC;
                    let slack = (turns * slice + credit) * 1024 / weight_a + (turns * slice + credit) * 1024 / weight_b;
                    if ran_a.abs_diff(ran_b) > slack {
                        violate!(
                            self,
                            "fairness",
                            "tasks {a} and {b} of weights {weight_a} and {weight_b} share CPU {cpu}: {} and {} us by weight",
                            ran_a / USEC,
                            ran_b / USEC
                        );
                    }
                }
            }
        }
    }
}

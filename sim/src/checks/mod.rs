// SPDX-License-Identifier: GPL-2.0-only
//! Invariants of each run, for any flags, machine, load and faults. The first violated one is the
//! run's [`Violation`].
//!
//! ```text
//! at each callback    bounds of loops; place of a task, and its distance from the clock; utilization: this file
//!   capacity.rs       ... where CPUs differ: the CPU fits the task
//! anytime.rs          each CHECK_EVERY: every task in one place; no wait next to an idle CPU; bits agree with queues;
//!                     waits are bounded
//! service.rs          at each switch, and each CHECK_EVERY: the lag of each task in a fluid model is bounded
//! end.rs              counters add up; shares follow weights
//! ```

mod anytime;
mod capacity;
mod end;
mod service;

use scx_magpie::bpf_intf::*;
use scx_magpie::tunables::Steal;

use crate::cgroup::NR_AUTOGROUPS;
use crate::dsq::{TaskId, is_pinned_queue, is_throttled_queue, local_on, queue_cpu};
pub use crate::kernel::Violation;
use crate::kernel::cpufreq::MAX_FREQ;
use crate::kernel::{Call, Curr, Event, FULL_MARGINS, Kernel, Moment, Notes, Util, fail_if, violate};
use crate::native::{GROUP_FLAGS, SCX_ENQ_PREEMPT, SCX_ENQ_WAKEUP, SHORT_SHARE, WEIGHT_SHIFT};
use crate::task::{Insert, Place, SCHED_BATCH, SCHED_IDLE, Task};
use crate::time::{MSEC, USEC};
use crate::trace::Op;

const CHECK_EVERY: u64 = 500 * USEC;

/// Number of LLCs that a search or a kick reaches: MAX_BEYOND and the CPU's LLC.
const REACH: usize = 9;

/// Waiting tasks that one loop checks (MAX_PULL_CHECKS, MAX_UNTHROTTLES and the first that is not due).
const MAX_CHECKS: u32 = 9;

/// Throttled tasks that dispatch() checks after a limit has changed.
const MAX_RECHECKS: u32 = 257;

/// Negative lag that a task may have, besides a slice (OVERRUN_NS).
const OVERRUN: u64 = 20 * MSEC;

/// Time in which utilization halves: 32 periods of 1024 us.
const HALF_LIFE: f64 = 32.0 * 1024.0 * USEC as f64;

/// Difference due to parts of periods. Complete periods are exact.
const UTIL_SLACK: f64 = 32.0;
/// Time in ns within which the kernel enqueues again the tasks of a CPU taken by a higher class.
const PUT_BACK_SLACK: u64 = 1_000_000;

pub fn observe(kernel: &mut Kernel, moment: Moment) {
    match moment {
        Moment::Loaded => {
            let (nr_cpus, now) = (kernel.cpus.len(), kernel.now);
            let mut fluid = std::mem::take(&mut kernel.checks.fluid);
            fluid.restart(nr_cpus, now);
            kernel.checks = Notes { fluid, counts: kernel.trace.counts, ..Notes::new(nr_cpus, now) };
        }
        Moment::Selects => {
            let stats = kernel.native.cpu_ctx(kernel.cpu).stats;
            kernel.checks.scanned = stats[magpie_stat_STAT_SCANNED as usize];
            kernel.checks.scans = stats[magpie_stat_STAT_SCAN as usize];
        }
        Moment::Selected { task, cpu } => {
            kernel.check_selected(task, cpu);
            kernel.check_scanned(task);
        }
        Moment::Dispatches { cpu } => {
            kernel.checks.steal_misses = kernel.native.cpu_ctx(cpu).stats[magpie_stat_STAT_STEAL_MISS as usize];
            kernel.checks.missed = 0;
        }
        Moment::Dispatched { cpu } => kernel.check_dispatch(cpu),
        Moment::Called => {
            kernel.check_call();
            kernel.model_call();
        }
        Moment::Released { cpu } => kernel.check_released(cpu),
        Moment::Notified { cpu, running } => {
            kernel.check_util(cpu, running);
            if running {
                kernel.check_share(cpu);
            }
        }
        Moment::Sent { task, dsq_id } => kernel.check_sent(task, dsq_id),
        Moment::Inserts { task, to } => kernel.check_insert(task, &to),
        Moment::Enqueued { task, cpu, enq_flags } => {
            kernel.check_enqueued(task, cpu, enq_flags);
            kernel.model_place(task);
        }
        Moment::Absent => kernel.checks.uncounted += 1,
        Moment::Starts { task, cpu } => kernel.check_start(cpu, task),
        Moment::Switched { cpu, prev } => kernel.model_switch(cpu, prev),
        Moment::Moved { task } => {
            kernel.checks.moved += 1;
            kernel.model_place(task);
        }
        Moment::Missed => kernel.checks.missed += 1,
        Moment::Kicked => kernel.checks.kicked += 1,
        Moment::Reenqueued => kernel.checks.reenqueued += 1,
        Moment::Period => {
            kernel.check();
            kernel.check_services();
        }
    }
}

impl Util {
    /// Set the CPU to `running` at `freq` (0..1), by which PELT's time advances until it idles.
    fn update(&mut self, now: u64, capacity: u64, running: bool, freq: f64) {
        let capacity = capacity as f64;
        let passed = (now - self.at) as f64;
        for ((avg, behind), margin) in self.avgs.iter_mut().zip(FULL_MARGINS) {
            if self.running {
                approach(avg, capacity, passed * self.freq);
                *behind += passed * (1.0 - self.freq);
                if *avg + margin >= capacity {
                    *behind = 0.0;
                }
            } else {
                approach(avg, 0.0, passed);
            }
            if !running {
                approach(avg, 0.0, std::mem::take(behind));
            }
        }
        (self.at, self.running, self.freq) = (now, running, freq);
    }
}

fn approach(avg: &mut f64, goal: f64, ns: f64) {
    *avg = goal + (*avg - goal) * (-ns / HALF_LIFE).exp2();
}

impl Kernel {
    /// Start the periodic calls of check().
    pub fn start_checks(&mut self) {
        self.push(self.now + CHECK_EVERY, Event::Check);
    }

    pub fn check_selected(&mut self, task: TaskId, cpu: usize) {
        let might = self.tasks[task].mask().and(&self.online);
        if self.online.test(cpu) && !might.test(cpu) && !might.is_empty() {
            violate!(self, "affinity", "select_cpu() sends task {task} to CPU {cpu}, which it may not use");
        }
        let claims = self.tasks[task].ddsp.is_some();
        if claims && self.native.slot(cpu).is_some_and(|slot| self.native.is_idle_bit(slot)) {
            violate!(self, "idle bit", "select_cpu() sends task {task} to CPU {cpu}, and leaves it for others");
        }
        if claims {
            self.check_fits(task, cpu);
        }
    }

    /// Check the number of CPUs that select_cpu() scanned; the loader scans all. Applies to
    /// machines with one LLC, without searches for idle cores or strong CPUs.
    pub fn check_scanned(&mut self, task: TaskId) {
        let stats = self.native.cpu_ctx(self.cpu).stats;
        let scanned = stats[magpie_stat_STAT_SCANNED as usize] - self.checks.scanned;
        if stats[magpie_stat_STAT_SCAN as usize] > self.checks.scans && scanned == 0 {
            violate!(self, "counters", "a search found a CPU and went over none");
        }
        let [llc] = &self.layout.llcs[..] else { return };
        let nr_scan = u64::from(self.native.nr_scan(0));
        let present = (0..self.cpus.len()).filter(|&cpu| self.native.slot(cpu).is_some()).count() as u64;
        let loader = self.tasks[task].traits.loader;
        let bounded = !self.tunables.no_scan_limit && nr_scan < present && !loader;
        let budget = if bounded { nr_scan } else { llc.nr_slots as u64 };
        if self.layout.smt_width == 1 && self.layout.nr_stronger() == 0 && scanned > budget {
            violate!(self, "budget", "a search went over {scanned} CPUs, more than {budget}");
        }
    }

    pub fn check_start(&mut self, cpu: usize, task: TaskId) {
        fail_if!(self, !self.online.test(cpu), "affinity", "task {task} runs on CPU {cpu}, which is offline");
        if !self.tasks[task].may_run_on(cpu) {
            violate!(self, "affinity", "task {task} runs on CPU {cpu}, which it may not use");
        }
    }

    pub fn check_call(&mut self) {
        let Some(Call { op, task, checks, checks_back, .. }) = self.call else { return };
        if let (Op::Stopping, Some(task)) = (op, task) {
            let by = self.tasks[task].tctx().map(|tctx| u32::from(tctx.preempted_by));
            self.tasks[task].behind_kthread = by == Some(preempter_BY_KTHREAD);
        }
        let most = if op == Op::Dispatch { MAX_RECHECKS } else { MAX_CHECKS };
        for (checks, most) in [(checks, most), (checks_back, magpie_limits_MAX_STARVE_CHECKS)] {
            if checks > most && op != Op::CpuOffline {
                violate!(self, "budget", "{op:?} checked {checks} waiting tasks, more than {most}");
            }
        }
    }

    pub fn check_dispatch(&mut self, cpu: usize) {
        // The program may notice in dispatch() that a CPU idles, as one that goes offline.
        let busy = (self.checks.utils[cpu].running, self.native.cpu_ctx(cpu).pelt.running != 0);
        if self.cpus[cpu].curr == Curr::Idle && busy == (true, false) {
            self.check_util(cpu, false);
        }
        let misses = self.native.cpu_ctx(cpu).stats[magpie_stat_STAT_STEAL_MISS as usize] - self.checks.steal_misses;
        // balance() does not count its victim. With costs, tasks of other LLCs are checked, too.
        let missed = self.checks.missed;
        let at_least =
            if self.tunables.migration_cost_llc_us + self.tunables.migration_cost_node_us > 0 { 0 } else { misses };
        if !(at_least..=misses + 1).contains(&missed) {
            violate!(self, "counters", "CPU {cpu} tried {missed} victims in vain, and counted {misses}");
        }
        // Once, and again if the idle task runs after the CPU was marked idle.
        let attempts = if self.cpus[cpu].curr == Curr::Idle { 2 } else { 1 };
        let max = u64::from(attempts * self.tunables.steal_tries);
        fail_if!(self, misses > max, "budget", "CPU {cpu} tried {misses} victims in vain, more than {max}");
    }

    pub fn check_insert(&mut self, task: TaskId, to: &Insert) {
        let Task { traits, .. } = &self.tasks[task];
        // On a nohz_full CPU a patient task preempts too, because current may have no tick.
        let nohz_full = self.machine.is_nohz_full(local_on(to.dsq_id).unwrap_or(self.tasks[task].cpu));
        let patient =
            matches!(traits.policy, SCHED_BATCH | SCHED_IDLE) && !traits.kthread && !traits.loader && !nohz_full;
        if patient && to.enq_flags & SCX_ENQ_PREEMPT != 0 {
            let policy = traits.policy;
            violate!(self, "preemption", "task {task} of policy {policy} preempts");
        }
    }

    /// Check the queue named by select_cpu() or enqueue(). Only running tasks go to local DSQs of
    /// other CPUs: to a stronger CPU, to more room, or to the preferred node unless in back-off.
    pub fn check_sent(&mut self, task: TaskId, dsq_id: u64) {
        let (Some(to), Some(tctx)) = (local_on(dsq_id), self.tasks[task].tctx()) else { return };
        let (preferred, held) = (tctx.preferred_node, tctx.numa_backoff != 0);
        if self.moves_up(task, to) {
            return self.check_moved_up(task, to);
        }
        if self.moves_to_room(task, to) {
            return;
        }
        if self.machine.places[to].node as i32 != preferred || held {
            self.violate(
                "preferred node",
                format!("task {task} is sent to CPU {to}; its preferred node is {preferred}, held back: {held}"),
            );
        }
    }

    pub fn check_enqueued(&mut self, task: TaskId, cpu: usize, enq_flags: u64) {
        let Place::Dsq(id) = self.tasks[task].place else { return };
        if is_throttled_queue(id) {
            return self.check_throttled(task, queue_cpu(id));
        }
        let (pinned, id) = (is_pinned_queue(id), queue_cpu(id));
        let cctx = self.native.cpu_ctx(id);
        let waiting = cctx.queued != 0;
        let overloaded = u32::from(cctx.queued) & queued_QUEUED_MOVABLE != 0;
        let vtime = cctx.vtime;

        // The deadline is at most the request after the vruntime, which is near the virtual time.
        let weight = self.weight(task);
        let by_weight = |ns: u64| (ns * (1024 << WEIGHT_SHIFT) / weight) as i64;
        let Some(tctx) = self.tasks[task].tctx() else { return };
        let (burst, slice, limit) = (tctx.charged - tctx.woke_exec, tctx.slice, tctx.short_ns);
        let is_short = burst < limit && tctx.burst_est < limit;
        let of_short = (by_weight(slice) - slice as i64).max(0) / i64::from(SHORT_SHARE);
        let request = if is_short { of_short } else { by_weight(slice) };
        let ahead = tctx.vruntime.wrapping_sub(vtime) as i64;
        let credit = (tctx.vruntime.wrapping_add_signed(request)).wrapping_sub(tctx.deadline) as i64;
        // A task that is preempted keeps its earlier deadline.
        if credit < -1 || credit > 1 && tctx.has_credit == 0 && tctx.resumes == 0 {
            violate!(self, "virtual time", "task {task} has a credit of {credit} ns");
        }
        let before = tctx.deadline.wrapping_sub(self.tasks[task].raw().scx.dsq_vtime);
        // A task that wakes has no lag, except for a short one of little weight.
        let wakes = enq_flags & SCX_ENQ_WAKEUP != 0;
        let kept = if is_short { of_short } else { 0 };
        let (least, most) = if wakes { (-kept, 0) } else { (i64::MIN, by_weight(self.longest_slice() + OVERRUN)) };
        let first = self.tasks[task].traits.loader && enq_flags & SCX_ENQ_WAKEUP != 0;
        if first && !pinned && self.dsqs[id].as_ref().unwrap().iter().next() != Some(task) {
            violate!(self, "urgent", "task {task}, the loader, is not the first that waits on CPU {id}");
        }
        // A preempted task precedes others. Long tasks that wake with credit come after it.
        let in_place = match (before as i64).signum() {
            0 => true,
            1 => tctx.resumes != 0,
            _ => tctx.resumes != 0 || tctx.has_credit != 0 && !is_short,
        };
        fail_if!(self, !first && !in_place, "virtual time", "task {task} waits {before} ns before its deadline");
        if !first && !(least.saturating_sub(1)..=most + 1).contains(&ahead) {
            violate!(
                self,
                "virtual time",
                "task {task} is {ahead} ns ahead of CPU {id}'s clock, and not {least}..{most}"
            );
        }
        let traits = &self.tasks[task].traits;
        let urgent = (traits.kthread || traits.loader) && self.tasks[task].raw().nr_cpus_allowed == 1;
        if urgent && enq_flags & SCX_ENQ_WAKEUP != 0 {
            violate!(self, "urgent", "task {task}, which serves a CPU, waits in line");
        }
        fail_if!(self, id != cpu, "lost", "task {task} of CPU {cpu} waits in the queue of CPU {id}");
        fail_if!(self, !waiting, "lost", "CPU {id} does not know that task {task} waits");
        if pinned && self.may_be_stolen(task) {
            violate!(self, "pinned", "task {task} may move, and waits on CPU {id} where no CPU looks for it");
        }
        if !pinned {
            self.checks.stale_since[id] = None;
        }
        if !overloaded && self.may_be_stolen(task) {
            violate!(self, "overload bit", "CPU {id} hides task {task}, which waits and may move");
        }
    }

    fn check_throttled(&mut self, task: TaskId, cpu: usize) {
        let used_up = |id| {
            let group = self.native.group(self.program_id(id));
            group.quota > 0 && group.budget <= 0
        };
        if !self.cgroup_path(self.tasks[task].cgroup).any(used_up) {
            violate!(self, "throttled", "task {task} waits for its cpu.max, and no group above it has used it up");
        }
        if self.tasks[task].tctx().is_none_or(|tctx| tctx.at_user == 0) {
            violate!(self, "throttled", "task {task} waits for its cpu.max, and may hold a kernel lock");
        }
        // It is not counted twice if one of its parameters was changed.
        if self.tasks[task].tctx().is_some_and(|tctx| tctx.enqueued_at < self.now) {
            self.checks.uncounted += 1;
        }
        let cctx = self.native.cpu_ctx(cpu);
        if cctx.throttle_timer_at == 0 && cctx.throttle_timer_fired == 0 {
            violate!(self, "lost", "CPU {cpu} does not know that task {task} waits for its cpu.max");
        }
    }

    /// Return the program's last value of the task's weight, in its units.
    fn weight(&self, task: TaskId) -> u64 {
        self.tasks[task].tctx().map_or(0, |tctx| u64::from(tctx.share & !GROUP_FLAGS))
    }

    /// Return the right weight by the groups' sums, which [`Kernel::check_groups`] checks.
    fn share(&self, task: TaskId) -> f64 {
        let unit = f64::from(1u32 << WEIGHT_SHIFT);
        let plain = f64::from(self.tasks[task].weight());
        if self.tunables.no_cgroups {
            return plain * unit;
        }
        let group = self.tasks[task].tctx().map_or(0, |tctx| tctx.group);
        if (0..NR_AUTOGROUPS).any(|session| group != 0 && group == self.autogroup_id(session)) {
            let group = self.native.group(group);
            let share = plain * 1024.0 * self.times(group) as f64 / plain.max(group.sum as f64);
            return share.min(102_400.0) * unit;
        }
        let (share, _) = self.cgroup_path(self.tasks[task].cgroup).fold((plain, plain), |(share, part), id| {
            let cgroup = &self.cgroups[id];
            let group = self.native.group(self.program_id(id));
            let weight = f64::from(cgroup.kernel_weight()) * self.times(group) as f64;
            // A share is at most 1: sums may be out of date.
            (share * weight / part.max(group.sum as f64), weight)
        });
        (share * unit).clamp(1.0, 102_400.0 * unit)
    }

    /// Check after cpu_release() that tasks about to run there wait where they can be stolen.
    pub fn check_released(&mut self, cpu: usize) {
        let moves = self.cpus[cpu].push_away;
        let left = self.cpus[cpu].local.iter().find(|&task| Some(task) != moves);
        if let Some(task) = left.filter(|_| self.native.slot(cpu).is_some()) {
            violate!(self, "left behind", "task {task} stays on CPU {cpu}, which a higher class has taken");
        }
    }

    /// Check that no movable task waits on a CPU that a higher class has had for a while.
    pub fn check_put_back(&mut self, cpu: usize) {
        if !self.quirks.reenqueues_from_anywhere || self.native.slot(cpu).is_none() {
            return;
        }
        let moves = self.cpus[cpu].push_away;
        let left = (self.cpus[cpu].local.iter()).find(|&task| {
            let waits = self.now.saturating_sub(self.tasks[task].runnable_at) > PUT_BACK_SLACK;
            waits && Some(task) != moves && self.tasks[task].raw().nr_cpus_allowed > 1
        });
        if let Some(task) = left {
            violate!(self, "left behind", "task {task} waits on CPU {cpu}, which a higher class has");
        }
    }

    /// Check the program's utilization as it notes that the CPU is `running` or not.
    pub fn check_util(&mut self, cpu: usize, running: bool) {
        let capacity = self.machine.places[cpu].capacity;
        let pelt = self.native.cpu_ctx(cpu).pelt;
        let util = &mut self.checks.utils[cpu];
        util.update(self.now, capacity, running, self.cpus[cpu].freq.now as f64 / MAX_FREQ as f64);
        let (seen, avg) = (util.avgs.map(|(avg, _)| avg), pelt.util_avg);
        let is_right = seen.iter().any(|seen| (seen - f64::from(avg)).abs() <= UTIL_SLACK);
        // Less than a period is added later.
        let folded = std::mem::replace(&mut util.summed, pelt.updated_at) != pelt.updated_at;
        if folded && self.native.slot(cpu).is_some() && !is_right {
            violate!(self, "utilization", "CPU {cpu}'s is {:.0}, and the program has {avg}", seen[1]);
        }
    }

    /// Check the task's share after a tick, if the program has read it.
    fn check_share(&mut self, cpu: usize) {
        let Curr::Task(task) = self.cpus[cpu].curr else { return };
        if self.tasks[task].tctx().is_none_or(|tctx| tctx.group == 0 || tctx.share_at != self.now) {
            return;
        }
        let (weight, share) = (self.weight(task), self.share(task));
        if (weight as f64 - share).abs() > 2.0 + share / 1000.0 {
            violate!(self, "cgroup", "task {task}'s weight is {weight}, and its share {share:.1}");
        }
    }

    fn is_migratable(&self, task: TaskId) -> bool {
        self.tasks[task].raw().nr_cpus_allowed > 1 && !self.tasks[task].is_migration_disabled()
    }

    fn may_be_stolen(&self, task: TaskId) -> bool {
        self.tunables.steal != Steal::Off && self.is_migratable(task)
    }

    /// Return true if --steal allows `thief` to take tasks that wait for `cpu`.
    fn steals_from(&self, thief: usize, cpu: usize) -> bool {
        let (thief, cpu) = (&self.machine.places[thief], &self.machine.places[cpu]);
        match self.tunables.steal {
            Steal::Off => false,
            Steal::Llc => thief.llc == cpu.llc,
            Steal::Node => thief.node == cpu.node,
            Steal::All => true,
        }
    }
}

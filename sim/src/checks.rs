// SPDX-License-Identifier: GPL-2.0-only
//! What must hold in each run, whatever the scheduler's flags, the machine, the load and the faults. The first thing
//! that does not is the run's [`Violation`].
//!
//! ```text
//! at each callback    budgets of loops; a task is where it may be, and as far from the clock; utilization
//! each CHECK_EVERY    every task in one place; nobody waits while a CPU idles; bits agree with queues; waits are bounded
//! at the end          counters add up; shares follow weights
//! ```

use std::fmt;

use scx_magpie::bpf_intf::*;
use scx_magpie::cli::Steal;
use serde::{Deserialize, Serialize};

use crate::costs::TICK;
use crate::dsq::{TaskId, is_pinned_queue, pinned_queue, queue_cpu, queue_group};
use crate::kernel::{Call, Curr, Event, Kernel};
use crate::native::{GROUP_FLAGS, Native, PROMPT_NS, SCX_ENQ_PREEMPT, SCX_ENQ_WAKEUP, WEIGHT_SHIFT};
use crate::sched::local_on;
use crate::task::{Insert, Place, SCHED_BATCH, SCHED_IDLE, State, Task};
use crate::time::{MSEC, USEC};
use crate::trace::Op;

const CHECK_EVERY: u64 = 500 * USEC;

/// No CPU of an LLC idles while a task that may use all CPUs waits there for longer than that: a kick, the way out of
/// idle and a steal take a few us.
const WAKEUP_GRACE: u64 = MSEC;
/// After which one that made way for an urgent task is offered: OFFER_NS.
const OFFER: u64 = MSEC / 4;
/// MAX_OFFER_LOOKS, MAX_HEAT_LOOKS.
const LOOKS: usize = 16;

/// The same where the scheduler's rules leave help to the tick: tasks with affinity, behind an urgent task, between LLCs;
/// tasks that were sent to an idle CPU which another took a moment before they arrived.
const TICK_GRACE: u64 = 3 * TICK;

/// A bit whose reason is gone may stay until the next tick.
const STALE_GRACE: u64 = 3 * TICK;

/// Waiting tasks that one loop looks at (MAX_OFFER_LOOKS, MAX_STARVE).
const MAX_LOOKS: u32 = 16;

/// What a task may be ahead of its CPU's clock, besides a slice (OVERRUN_NS).
const OVERRUN: u64 = 20 * MSEC;
/// CPU time without a sleep from which on a task counts as one that has none (HOG_NS).
const HOG: u64 = 100 * MSEC;

/// Time in which utilization halves: 32 periods of 1024 us.
const HALF_LIFE: f64 = 32.0 * 1024.0 * USEC as f64;

/// What its parts of periods make of it: it is exact for those that are over.
const UTIL_SLACK: f64 = 32.0;

/// LLCs that a wakeup or a kick reaches (MAX_BEYOND and the own one).
const REACH: usize = 9;

/// An invariant that did not hold.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Violation {
    pub kind: String,
    /// Simulated ns.
    pub at: u64,
    pub what: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {} (at {} us)", self.kind, self.what, self.at / USEC)
    }
}

pub struct Checks {
    /// Since when a CPU's overload bit has no reason; since when it is idle and nobody could know.
    stale_since: Vec<Option<u64>>,
    unknown_since: Vec<Option<u64>>,
    /// Victims without a task for dispatch(), as the program counted them until then, and as seen in this one.
    steal_misses: u64,
    missed: u64,
    /// Counted before the search that goes on: CPUs gone over, and searches that found one so.
    scanned: u64,
    scans: u64,
    utils: Vec<Util>,
    /// Callbacks before the scheduler attached last, by Op.
    counts: [u64; Op::COUNT],
    /// Tasks that dispatch() brought since then, and that were enqueued on a CPU that the program does not know.
    moved: u64,
    absent: u64,
    /// Kicks of idle CPUs; tasks that fled a higher class.
    kicked: u64,
    reenqueued: u64,
}

/// Utilization of a CPU, in the real numbers that PELT stands for.
#[derive(Clone, Copy, Default)]
struct Util {
    avg: f64,
    at: u64,
    running: bool,
}

impl Util {
    /// The CPU is `running` from here on.
    fn update(&mut self, now: u64, capacity: u64, running: bool) {
        let goal = if self.running { capacity as f64 } else { 0.0 };
        self.avg = goal + (self.avg - goal) * (-((now - self.at) as f64) / HALF_LIFE).exp2();
        (self.at, self.running) = (now, running);
    }
}

impl Checks {
    pub fn new(nr_cpus: usize, now: u64) -> Self {
        Self {
            stale_since: vec![None; nr_cpus],
            unknown_since: vec![None; nr_cpus],
            steal_misses: 0,
            scanned: 0,
            scans: 0,
            missed: 0,
            utils: vec![Util { at: now, ..Util::default() }; nr_cpus],
            counts: [0; Op::COUNT],
            moved: 0,
            absent: 0,
            kicked: 0,
            reenqueued: 0,
        }
    }

    pub fn before_select(&mut self, native: &Native, cpu: usize) {
        let stats = native.cpu_ctx(cpu).stats;
        self.scanned = stats[magpie_stat_STAT_SCANNED as usize];
        self.scans = stats[magpie_stat_STAT_SCAN as usize];
    }

    pub fn before_dispatch(&mut self, native: &Native, cpu: usize) {
        self.steal_misses = native.cpu_ctx(cpu).stats[magpie_stat_STAT_STEAL_MISS as usize];
        self.missed = 0;
    }
}

impl Kernel {
    /// A program without a past runs from here on.
    pub fn checks_attached(&mut self) {
        self.checks = Checks::new(self.cpus.len(), self.now);
        self.checks.counts = self.trace.counts;
    }

    /// Has check() run now and then.
    pub fn start_checks(&mut self) {
        self.push(self.now + CHECK_EVERY, Event::Check);
    }

    /// select_cpu() chose `cpu`.
    pub fn check_selected(&mut self, task: TaskId, cpu: usize) {
        let might = self.tasks[task].mask().and(&self.online);
        if self.online.test(cpu) && !might.test(cpu) && !might.is_empty() {
            self.violate("affinity", format!("select_cpu() sends task {task} to CPU {cpu}, which it may not use"));
        }
        let claims = self.tasks[task].ddsp.is_some();
        if claims && self.native.slot(cpu).is_some_and(|slot| self.native.is_idle_bit(slot)) {
            self.violate("idle bit", format!("select_cpu() sends task {task} to CPU {cpu}, and leaves it for others"));
        }
        if claims {
            self.check_fits(task, cpu);
        }
    }

    /// select_cpu() has returned: it searched as far as it might. Judged where there is one LLC, and no search for cores nor
    /// for strong CPUs.
    pub fn check_scanned(&mut self) {
        let stats = self.native.cpu_ctx(self.cpu).stats;
        let scanned = stats[magpie_stat_STAT_SCANNED as usize] - self.checks.scanned;
        if stats[magpie_stat_STAT_SCAN as usize] > self.checks.scans && scanned == 0 {
            return self.violate("counters", "a search found a CPU and went over none".into());
        }
        let [llc] = &self.layout.llcs[..] else { return };
        let nr_scan = u64::from(self.native.nr_scan(0));
        let bounded = !self.tunables.no_scan_limit && nr_scan < llc.nr_cpus as u64;
        let budget = if bounded { nr_scan } else { llc.nr_slots as u64 };
        if self.layout.smt_width == 1 && self.layout.nr_stronger() == 0 && scanned > budget {
            self.violate("budget", format!("a search went over {scanned} CPUs, more than {budget}"));
        }
    }

    /// The task starts to run on `cpu`.
    pub fn check_start(&mut self, cpu: usize, task: TaskId) {
        if !self.online.test(cpu) {
            self.violate("affinity", format!("task {task} runs on CPU {cpu}, which is offline"));
        }
        if !self.tasks[task].may_run_on(cpu) {
            self.violate("affinity", format!("task {task} runs on CPU {cpu}, which it may not use"));
        }
    }

    /// A callback has returned.
    pub fn check_call(&mut self) {
        let Some(Call { op, looks, .. }) = self.call else { return };
        if looks > MAX_LOOKS {
            self.violate("budget", format!("{op:?} looked at {looks} waiting tasks, more than {MAX_LOOKS}"));
        }
    }

    /// dispatch() has returned.
    pub fn check_dispatch(&mut self, cpu: usize) {
        let misses = self.native.cpu_ctx(cpu).stats[magpie_stat_STAT_STEAL_MISS as usize] - self.checks.steal_misses;
        // Balance has one, and does not count it. Of other LLCs the program looks at tasks, not only at queues, with a cost.
        let missed = self.checks.missed;
        let at_least =
            if self.tunables.migration_cost_llc_us + self.tunables.migration_cost_node_us > 0 { 0 } else { misses };
        if !(at_least..=misses + 1).contains(&missed) {
            self.violate("counters", format!("CPU {cpu} tried {missed} victims in vain, and counted {misses}"));
        }
        // Once, and when the idle task runs once again after the CPU was marked idle.
        let attempts = if self.cpus[cpu].curr == Curr::Idle { 2 } else { 1 };
        let max = u64::from(attempts * self.tunables.steal_tries);
        if misses > max {
            self.violate("budget", format!("CPU {cpu} tried {misses} victims in vain, more than {max}"));
        }
    }

    /// A task is about to be inserted where select_cpu() or enqueue() said.
    pub fn check_insert(&mut self, task: TaskId, to: &Insert) {
        let Task { traits, .. } = &self.tasks[task];
        let patient = matches!(traits.policy, SCHED_BATCH | SCHED_IDLE) && !traits.kthread && !traits.loader;
        if patient && to.enq_flags & SCX_ENQ_PREEMPT != 0 {
            let policy = traits.policy;
            self.violate("preemption", format!("task {task} of policy {policy} preempts"));
        }
    }

    /// select_cpu() or enqueue() names the queue. Only running tasks go to other CPUs' local ones: up, if they have outgrown
    /// theirs, or home, if nothing holds them back.
    pub fn check_sent(&mut self, task: TaskId, dsq_id: u64) {
        let (Some(to), Some(tctx)) = (local_on(dsq_id), self.tasks[task].tctx()) else { return };
        let (home, held) = (tctx.home_node, tctx.held != 0);
        if self.moves_up(task, to) {
            return self.check_moved_up(task, to);
        }
        if self.machine.places[to].node as i32 != home || held {
            self.violate(
                "home",
                format!("task {task} is sent to CPU {to}; its home is node {home}, held back: {held}"),
            );
        }
    }

    /// A task was put somewhere by enqueue().
    pub fn check_enqueued(&mut self, task: TaskId, cpu: usize, enq_flags: u64) {
        let Place::Dsq(id) = self.tasks[task].place else { return };
        if let Some(group) = queue_group(id) {
            return self.check_throttled(task, group);
        }
        let (pinned, queue, id) = (is_pinned_queue(id), id, queue_cpu(id));
        let cctx = self.native.cpu_ctx(id);
        let (waiting, overloaded) = (cctx.waiting != 0, cctx.overloaded != 0);
        let vclock = cctx.vclock;

        // Its deadline is what it may ask for after its virtual time, which is not far from the clock.
        let raw = self.tasks[task].raw();
        let weight = self.weight(task);
        let by_weight = |ns: u64| (ns * (100 << WEIGHT_SHIFT) / weight) as i64;
        let slice = self.tunables.slice_us * USEC;
        // Who was held back for its group and released begins anew, as if it woke.
        let released_at = self.tasks[task].tctx().map_or(0, |tctx| tctx.woke_exec);
        let asks = match raw.se.sum_exec_runtime - self.tasks[task].woke_exec.max(released_at) {
            HOG.. => by_weight(slice) + (self.tunables.slice_us_lag * USEC) as i64,
            burst if burst < slice => by_weight(slice).min(slice as i64),
            _ => by_weight(slice),
        };
        let prompt = (self.tasks[task].tctx())
            .is_some_and(|tctx| tctx.prompt != 0 && raw.se.sum_exec_runtime - tctx.woke_exec < slice);
        let asks = asks - if prompt { (self.tunables.slice_us_lag * USEC + u64::from(PROMPT_NS)) as i64 } else { 0 };
        let ahead = (raw.scx.dsq_vtime.wrapping_sub(vclock) as i64).saturating_sub(asks);
        let least = if enq_flags & SCX_ENQ_WAKEUP != 0 { 0 } else { i64::MIN };
        let most = by_weight(slice + OVERRUN);
        let first = self.tasks[task].traits.loader && enq_flags & SCX_ENQ_WAKEUP != 0;
        if first && !pinned && self.dsqs[id].as_ref().unwrap().iter().next() != Some(task) {
            return self.violate("urgent", format!("task {task}, the loader, is not the first that waits on CPU {id}"));
        }
        // Who lends its CPU is where those are that wait for their first turn.
        let vtime = raw.scx.dsq_vtime;
        let lent = enq_flags & SCX_ENQ_WAKEUP == 0
            && (self.dsqs[queue].as_ref().unwrap().iter())
                .any(|other| other != task && self.tasks[other].raw().scx.dsq_vtime.wrapping_sub(vtime) <= 1);
        if !first && !lent && !(least..=most).contains(&ahead) {
            let what = format!("task {task} is {ahead} ns ahead of CPU {id}'s clock, and not {least}..{most}");
            return self.violate("virtual time", what);
        }
        let share = self.share(task);
        if (weight as f64 - share).abs() > 2.0 + share / 1000.0 {
            self.violate("cgroup", format!("task {task}'s weight is {weight}, and its share {share:.1}"));
        }
        let traits = &self.tasks[task].traits;
        let urgent = (traits.kthread || traits.loader) && self.tasks[task].raw().nr_cpus_allowed == 1;
        if urgent && enq_flags & SCX_ENQ_WAKEUP != 0 {
            self.violate("urgent", format!("task {task}, which serves a CPU, waits in line"));
        }
        if id != cpu {
            self.violate("lost", format!("task {task} of CPU {cpu} waits in the queue of CPU {id}"));
        }
        if !waiting {
            self.violate("lost", format!("CPU {id} does not know that task {task} waits"));
        }
        if pinned && self.may_be_stolen(task) {
            self.violate("pinned", format!("task {task} may move, and waits on CPU {id} where nobody looks for it"));
        }
        if !pinned {
            self.checks.stale_since[id] = None;
        }
        if !overloaded && self.may_be_stolen(task) {
            self.violate("overload bit", format!("CPU {id} hides task {task}, which waits and may move"));
        }
    }

    /// A task waits in the queue of a group.
    fn check_throttled(&mut self, task: TaskId, group: u32) {
        let above = self.cgroup_path(self.tasks[task].cgroup).any(|id| self.program_id(id) == group);
        if !above || self.native.group(group).throttled == 0 {
            self.violate(
                "throttled",
                format!("task {task} waits for group {group}, which is none of its throttled ones"),
            );
        }
        if self.native.group(group).waiting == 0 {
            self.violate("lost", format!("group {group} does not know that task {task} waits"));
        }
    }

    /// What the program took for the task's weight when it last looked, in its units.
    fn weight(&self, task: TaskId) -> u64 {
        let task = &self.tasks[task];
        match task.tctx() {
            Some(tctx) if tctx.group != 0 => tctx.cached & u64::from(!GROUP_FLAGS),
            _ => u64::from(task.raw().scx.weight) << WEIGHT_SHIFT,
        }
    }

    /// What it should be by the sums of the groups, which [`Kernel::check_groups`] checks.
    fn share(&self, task: TaskId) -> f64 {
        let unit = f64::from(1u32 << WEIGHT_SHIFT);
        let plain = f64::from(self.tasks[task].raw().scx.weight);
        if self.tunables.no_cgroups {
            return plain * unit;
        }
        let share = self.cgroup_path(self.tasks[task].cgroup).fold(plain, |share, id| {
            let cgroup = &self.cgroups[id];
            let weight = if cgroup.is_idle() { 1.0 } else { f64::from(cgroup.weight) };
            share * weight / self.native.group(self.program_id(id)).sum as f64
        });
        (share * unit).clamp(1.0, 10_000.0 * unit)
    }

    /// cpu_release() has returned: what was about to run there waits where it can be stolen.
    pub fn check_released(&mut self, cpu: usize) {
        // Some kernels move them a moment later; the program's part is the same.
        if self.quirks.defers_reenqueue {
            return;
        }
        let moves = self.cpus[cpu].push_away;
        let left = self.cpus[cpu].local.iter().find(|&task| Some(task) != moves);
        if let Some(task) = left.filter(|_| self.native.slot(cpu).is_some()) {
            self.violate("left behind", format!("task {task} stays on CPU {cpu}, which a higher class has taken"));
        }
    }

    /// The program has taken note that the CPU is `running` from here on.
    pub fn check_util(&mut self, cpu: usize, running: bool) {
        let capacity = self.machine.places[cpu].capacity;
        let util = &mut self.checks.utils[cpu];
        util.update(self.now, capacity, running);
        let (seen, avg) = (util.avg, self.native.cpu_ctx(cpu).pelt.util_avg);
        if self.native.slot(cpu).is_some() && (seen - f64::from(avg)).abs() > UTIL_SLACK {
            self.violate("utilization", format!("CPU {cpu}'s is {seen:.0}, and the program has {avg}"));
        }
    }

    fn may_move(&self, task: TaskId) -> bool {
        self.tasks[task].raw().nr_cpus_allowed > 1 && !self.tasks[task].is_migration_disabled()
    }

    fn may_be_stolen(&self, task: TaskId) -> bool {
        self.tunables.steal != Steal::Off && self.may_move(task)
    }

    /// May `thief` take tasks that wait for `cpu`, by --steal?
    fn steals_from(&self, thief: usize, cpu: usize) -> bool {
        let (thief, cpu) = (&self.machine.places[thief], &self.machine.places[cpu]);
        match self.tunables.steal {
            Steal::Off => false,
            Steal::Llc => thief.llc == cpu.llc,
            Steal::Node => thief.node == cpu.node,
            Steal::All => true,
        }
    }

    /// Everything that holds at any time.
    pub fn check(&mut self) {
        self.check_places();
        for cpu in self.online.iter().collect::<Vec<_>>() {
            if let Some(slot) = self.native.slot(cpu) {
                self.check_bits(cpu, slot);
            }
        }
        self.check_lines();
        self.check_groups();
        self.check_waits();
        self.push(self.now + CHECK_EVERY, Event::Check);
    }

    /// No bit is set where there are no slots, and none where nobody looks.
    fn check_lines(&mut self) {
        let fault = (0..self.layout.llcs.len()).find_map(|llc| {
            self.native.map_lines(llc).into_iter().find_map(|(lines, word)| {
                lines.iter().enumerate().find_map(|(i, line)| match line.bits {
                    bits if bits >> magpie_limits_SLOTS_PER_LINE != 0 => {
                        Some(format!("bits beyond line {i} of LLC {llc}"))
                    }
                    bits if bits != 0 && word & 1 << i == 0 => Some(format!("line {i} of LLC {llc} is hidden")),
                    _ => None,
                })
            })
        });
        if let Some(fault) = fault {
            self.violate("bitmap", fault);
        }
    }

    /// Each runnable task is in the queue where we put it, and in no other; nothing is under way for ever.
    fn check_places(&mut self) {
        let mut seen = vec![0u32; self.tasks.len()];
        for cpu in &self.cpus {
            cpu.local.iter().for_each(|task| seen[task] += 1);
        }
        self.dsqs.iter().flatten().flat_map(|dsq| dsq.iter()).for_each(|task| seen[task] += 1);
        for (task, seen) in seen.into_iter().enumerate() {
            let t = &self.tasks[task];
            let queued = u32::from(t.state == State::Runnable);
            if seen != queued {
                let (state, place) = (t.state, t.place);
                let kind = if seen > queued { "two places" } else { "lost" };
                self.violate(kind, format!("task {task}, {state:?} in {place:?}, is in {seen} queues"));
            } else if t.state == State::Waking && self.now > t.runnable_at + TICK_GRACE {
                self.violate("lost", format!("task {task} is still waking"));
            }
        }
    }

    /// A group's sum is that of the weights of what is runnable in it, and of what CPUs keep for those who have just
    /// fallen asleep; its weight is in its parent's as long as there is any.
    fn check_groups(&mut self) {
        if self.tunables.no_cgroups || self.cgroups.len() == 1 {
            return;
        }
        let ids: Vec<u32> = (0..self.cgroups.len()).map(|id| self.program_id(id)).collect();
        let mut sums = vec![0u64; self.cgroups.len()];
        for (id, task) in self.tasks.iter().enumerate().filter(|(_, task)| task.is_alive()) {
            let Some(tctx) = task.tctx() else { continue };
            let weight = task.raw().scx.weight;
            let counts = match task.state {
                // Moved or reniced on its way to a CPU: it counts when it runs.
                State::Runnable if matches!(task.place, Place::Local(_)) => true,
                State::Runnable | State::Running => tctx.counted == weight,
                State::Sleeping => tctx.counted == 0,
                State::Waking | State::Dead => true,
            };
            if tctx.group != ids[task.cgroup] {
                let what = format!("task {id} of cgroup {} is in group {}", task.cgroup, tctx.group);
                return self.violate("cgroup", what);
            }
            if tctx.group != 0 && !counts {
                let (state, counted) = (task.state, tctx.counted);
                return self.violate("cgroup", format!("task {id}, {state:?}, of weight {weight} counts {counted}"));
            }
            sums[task.cgroup] += u64::from(tctx.counted);
        }
        // Children come after their parents.
        for id in (1..self.cgroups.len()).rev().filter(|&id| self.cgroups[id].alive) {
            let group = self.native.group(ids[id]);
            let sum = sums[id] + self.native.lazy_weight(ids[id]);
            let cgroup = &self.cgroups[id];
            let weight = if cgroup.is_idle() { 1 } else { u64::from(cgroup.weight) };
            let counted = if sum > 0 && cgroup.parent != 0 { weight } else { 0 };
            if (group.sum, group.counted) != (sum, counted) {
                let (has, counts) = (group.sum as i64, group.counted);
                let what = format!("cgroup {id} has {has} and counts {counts}, not {sum} and {counted}");
                return self.violate("cgroup", what);
            }
            sums[cgroup.parent] += counted;
        }
    }

    /// Idle and overload bits tell the truth, or did a moment ago.
    fn check_bits(&mut self, cpu: usize, slot: usize) {
        let cctx = self.native.cpu_ctx(cpu);
        let (idle, waiting, overloaded) = (cctx.idle != 0, cctx.waiting != 0, cctx.overloaded != 0);
        let shown = overloaded && self.tunables.steal != Steal::Off;
        let bit = self.native.is_overload_bit(slot);
        if bit && !shown {
            return self.violate("overload bit", format!("CPU {cpu}'s bit is set, and it thinks it is not"));
        }
        let is_idle = self.cpus[cpu].curr == Curr::Idle;
        if self.native.is_idle_bit(slot) && !(is_idle && idle) {
            return self.violate("idle bit", format!("CPU {cpu} is busy and its idle bit is set"));
        }
        let dsq = self.dsqs[cpu].as_ref();
        let queued = dsq.map_or(0, |dsq| dsq.len());
        let pinned = self.dsqs[pinned_queue(cpu)].as_ref().map_or(0, |dsq| dsq.len());
        let line: u64 = (self.tasks.iter())
            .filter(|task| matches!(task.place, Place::Dsq(id) if queue_group(id).is_none() && queue_cpu(id) == cpu))
            .filter_map(|task| task.tctx())
            .map(|tctx| u64::from(tctx.line_weight))
            .sum();
        if cctx.line_load != line || (queued + pinned > 0 && line == 0) {
            let load = cctx.line_load;
            return self.violate("load", format!("the load of those in line on CPU {cpu} is {line}, not {load}"));
        }
        let movable = dsq.is_some_and(|dsq| dsq.iter().any(|task| self.may_be_stolen(task)));
        if queued + pinned > 0 && !waiting {
            let queued = queued + pinned;
            return self.violate("lost", format!("CPU {cpu} does not know that {queued} tasks wait in its queues"));
        }
        if movable && (!overloaded || shown && !bit) {
            return self.violate("overload bit", format!("CPU {cpu} hides tasks that wait and may move"));
        }

        // The tick clears it.
        let stale = bit && queued == 0 && self.cpus[cpu].curr != Curr::HigherClass;
        let since = self.checks.stale_since[cpu].filter(|_| stale).or(stale.then_some(self.now));
        self.checks.stale_since[cpu] = since;
        if since.is_some_and(|since| self.now > since + STALE_GRACE) {
            return self.violate("overload bit", format!("CPU {cpu}'s bit stays set, and nothing that may move waits"));
        }
        let unknown = is_idle && !self.native.is_idle_bit(slot) && self.now > self.cpus[cpu].busy_until;
        let since = self.checks.unknown_since[cpu].filter(|_| unknown).or(unknown.then_some(self.now));
        self.checks.unknown_since[cpu] = since;
        // Not if it only happened to be claimed whenever we looked.
        if since.is_some_and(|since| self.now > since.max(self.cpus[cpu].idle_since) + WAKEUP_GRACE) {
            self.violate("idle bit", format!("CPU {cpu} is idle and its idle bit is not set"));
        }
    }

    /// Work conservation, and bounded waits.
    fn check_waits(&mut self) {
        let idle: Vec<usize> = (self.online.iter())
            .filter(|&cpu| {
                let state = &self.cpus[cpu];
                state.curr == Curr::Idle
                    && self.now > state.idle_since + WAKEUP_GRACE
                    && self.native.slot(cpu).is_some()
            })
            .collect();
        let within_reach = self.layout.llcs.len() <= REACH;
        let capacities = || self.machine.places.iter().map(|place| place.capacity);
        let strongest = capacities().max().unwrap_or(0);
        let alike = capacities().all(|capacity| capacity == strongest);
        let watchdog = u64::from(self.tunables.timeout_ms) * MSEC;
        for task in 0..self.tasks.len() {
            if !self.is_waiting(task) {
                continue;
            }
            let t = &self.tasks[task];
            let waited = self.now.saturating_sub(t.runnable_at);
            let could_move = self.now.saturating_sub(t.runnable_at.max(t.allowed_at));
            if waited > watchdog {
                let cpu = t.cpu;
                return self.violate("starved", format!("task {task} waits on CPU {cpu} for {} ms", waited / MSEC));
            }
            // Sent to an idle CPU that a higher class took before it arrived: the kernel tells nobody (cpu_release() is
            // for CPUs that run a task of ours).
            let taken = matches!(t.place, Place::Local(cpu) if self.cpus[cpu].curr == Curr::HigherClass);
            // Who is released goes on when a CPU has its slice over, or the next period begins.
            let throttled = matches!(t.place, Place::Dsq(id) if queue_group(id).is_some());
            if could_move <= WAKEUP_GRACE || idle.is_empty() || taken || throttled {
                continue;
            }
            // SCHED_BATCH and SCHED_IDLE tasks do not take the CPU from who came there at the same time.
            let second = matches!(t.place, Place::Local(_)) && matches!(t.traits.policy, SCHED_BATCH | SCHED_IDLE);
            let confined = t.mask().and(&self.online) != self.online || second;
            let making_way = if self.native.cpu_ctx(t.cpu).making_way != 0 { OFFER } else { 0 };
            // From afar, and by weak CPUs, only the first of a queue are looked at, and who comes up to them need not have been there for long.
            let deep = matches!(t.place, Place::Dsq(id) if self.dsqs[id].as_ref().unwrap().iter().nth(LOOKS).is_some());
            let tick_grace = TICK_GRACE.max(self.tunables.slice_us * USEC + 2 * TICK);
            let helper = idle.iter().copied().find(|&cpu| {
                let place = &self.machine.places[cpu];
                // Who is told of a waiting task may be a weak CPU, which does not look far for it.
                let near =
                    place.llc == self.machine.places[t.cpu].llc && (alike || place.capacity >= strongest && !deep);
                let grace = if near && !confined { WAKEUP_GRACE + making_way } else { tick_grace };
                let may = cpu == t.cpu || t.may_run_on(cpu) && self.may_move(task) && self.steals_from(cpu, t.cpu);
                may && (near || within_reach && !deep)
                    && could_move > grace
                    && self.now > self.cpus[cpu].idle_since + grace
            });
            if let Some(cpu) = helper {
                let (at, place) = (t.cpu, t.place);
                return self.violate(
                    "work conservation",
                    format!("CPU {cpu} idles while task {task} waits on CPU {at} ({place:?}) for {} us", waited / USEC),
                );
            }
        }
    }

    /// Counters of the program against what was seen from outside.
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
                called(Op::Enqueue) - self.checks.absent,
                sum(&[
                    magpie_stat_STAT_LOCAL,
                    magpie_stat_STAT_KTHREAD,
                    magpie_stat_STAT_PREEMPT,
                    magpie_stat_STAT_NEXT,
                    magpie_stat_STAT_QUEUED,
                    magpie_stat_STAT_THROTTLED,
                    magpie_stat_STAT_HOME_MOVE,
                    magpie_stat_STAT_MISFIT_MOVE,
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
                    magpie_stat_STAT_STARVED,
                    magpie_stat_STAT_RELEASED,
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
            if seen != counted {
                return self.violate("counters", format!("{what}: {seen}, and the program counted {counted}"));
            }
        }
    }

    /// `task` was brought to a local DSQ by dispatch().
    pub fn note_moved(&mut self) {
        self.checks.moved += 1;
    }

    /// Another CPU's queue had none.
    pub fn note_missed(&mut self) {
        self.checks.missed += 1;
    }

    /// An idle CPU is kicked.
    pub fn note_kicked(&mut self) {
        self.checks.kicked += 1;
    }

    /// A task flees a CPU that the program knows.
    pub fn note_reenqueued(&mut self) {
        self.checks.reenqueued += 1;
    }

    /// enqueue() was called for a CPU that the program does not know.
    pub fn note_absent(&mut self) {
        self.checks.absent += 1;
    }

    /// Tasks that never slept since `from`: those that share one CPU have shares that follow their weights, but for a few
    /// slices, the turns that the guard against starvation gave, and what the first that is known for a hog waits longer.
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
            // Each in ns of weight 100.
            let share = |kernel: &Self, task: TaskId| {
                let raw = kernel.tasks[task].raw();
                (raw.se.sum_exec_runtime * 100 / u64::from(raw.scx.weight), u64::from(raw.scx.weight))
            };
            let slice = self.tunables.slice_us * USEC + 2 * TICK;
            for (i, &a) in on.iter().enumerate() {
                for &b in &on[i + 1..] {
                    let ((ran_a, weight_a), (ran_b, weight_b)) = (share(self, a), share(self, b));
                    let lag = self.tunables.slice_us_lag * USEC;
                    let slack = turns * slice * 100 / weight_a + turns * slice * 100 / weight_b + lag;
                    if ran_a.abs_diff(ran_b) > slack {
                        return self.violate(
                            "fairness",
                            format!(
                                "tasks {a} and {b} of weights {weight_a} and {weight_b} share CPU {cpu}: {} and {} us by weight",
                                ran_a / USEC,
                                ran_b / USEC
                            ),
                        );
                    }
                }
            }
        }
    }
}

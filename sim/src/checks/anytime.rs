// SPDX-License-Identifier: GPL-2.0-only
//! Invariants that hold at any time, checked each CHECK_EVERY: lines and bits of CPUs, the place of
//! each task, sums of groups, and the length of waits.

use std::cmp::min;

use scx_magpie::bpf_intf::*;
use scx_magpie::tunables::CgroupMode;

use super::{CHECK_EVERY, REACH};
use crate::cgroup::NR_AUTOGROUPS;
use crate::costs::TICK;
use crate::dsq::{is_throttled_queue, pinned_queue, queue_cpu};
use crate::kernel::{Curr, Event, Kernel, fail_if, violate};
use crate::task::{Place, SCHED_BATCH, SCHED_IDLE, State, Task};
use crate::time::{MSEC, USEC};

/// Longest time that a CPU of an LLC idles while a task that may use all CPUs waits there: a kick,
/// an exit from idle and a steal take a few us.
const WAKEUP_GRACE: u64 = MSEC;

/// The same where the scheduler leaves help to the tick: for tasks with affinity, behind an urgent
/// task, between LLCs, or sent to an idle CPU that another task took just before.
const TICK_GRACE: u64 = 3 * TICK;

const LOOKS: usize = 8;

/// A bit may remain without its reason until the next tick.
const STALE_GRACE: u64 = 3 * TICK;

impl Kernel {
    /// Check all invariants that hold at any time.
    pub fn check(&mut self) {
        self.check_state();
        self.check_waits();
        self.push(self.now + CHECK_EVERY, Event::Check);
    }

    /// Check those that do not depend on how long a state lasts.
    pub fn check_state(&mut self) {
        self.check_places();
        for cpu in self.online.iter().collect::<Vec<_>>() {
            if let Some(slot) = self.native.slot(cpu) {
                self.check_bits(cpu, slot);
            }
        }
        let lines = (0..self.layout.llcs.len()).flat_map(|llc| self.native.map_lines(llc)).flatten();
        let beyond = lines.into_iter().any(|line| line.bits >> magpie_limits_SLOTS_PER_LINE != 0);
        fail_if!(self, beyond, "bitmap", "bits beyond a line");
        self.check_groups();
    }

    /// Check that each runnable task is in one queue, that of `place`, and no transfer hangs.
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
                violate!(self, "lost", "task {task} is still waking");
            }
        }
    }

    /// Check that a group's sum, plus changes that CPUs have not flushed, is the weight of its
    /// runnable tasks and children, and that its weight counts in its parent while that is not 0.
    fn check_groups(&mut self) {
        if self.tunables.no_cgroups || self.cgroups.len() == 1 {
            return;
        }
        let ids: Vec<u32> = (0..self.cgroups.len()).map(|id| self.program_id(id)).collect();
        let (mut sums, mut runnable) = (vec![0i64; self.cgroups.len()], vec![0i64; self.cgroups.len()]);
        for (id, task) in self.tasks.iter().enumerate().filter(|(_, task)| task.is_alive()) {
            let Some(tctx) = task.tctx() else { continue };
            let weight = task.weight();
            let counts = match task.state {
                // Moved or reniced on its way to a CPU: the task counts once it runs.
                State::Runnable if matches!(task.place, Place::Local(_)) => true,
                State::Runnable if matches!(task.place, Place::Dsq(id) if is_throttled_queue(id)) => tctx.counted == 0,
                State::Runnable | State::Running => tctx.counted == weight,
                State::Sleeping => tctx.counted == 0,
                State::Waking | State::Dead => true,
            };
            let autogroup = task.session.filter(|_| task.cgroup == 0).map_or(0, |session| self.autogroup_id(session));
            // A task joins its autogroup when it becomes runnable and the autogroup has an id.
            let is_member = tctx.group != 0 && tctx.group == autogroup;
            // Then it also leaves its former group.
            let has_left = task.state != State::Sleeping || task.session.is_none();
            if !is_member && has_left && tctx.group != ids[task.cgroup] {
                violate!(self, "cgroup", "task {id} of cgroup {} is in group {}", task.cgroup, tctx.group);
            }
            if tctx.group != 0 && !counts {
                let (state, counted) = (task.state, tctx.counted);
                violate!(self, "cgroup", "task {id}, {state:?}, of weight {weight} counts {counted}");
            }
            sums[task.cgroup] += i64::from(tctx.counted);
            runnable[task.cgroup] += i64::from(tctx.counted > 0);
        }
        for session in 0..NR_AUTOGROUPS {
            let id = self.autogroup_id(session);
            let counted = |task: &Task| task.tctx().filter(|tctx| tctx.group == id).map_or(0, |tctx| tctx.counted);
            let members: u32 = self.tasks.iter().filter(|task| task.is_alive()).map(counted).sum();
            let told = self.native.group(id).sum + self.native.untold(id).0;
            if id != 0 && told != i64::from(members) {
                violate!(self, "cgroup", "session {session} has {told}, not {members}");
            }
        }
        // Children follow their parents in `cgroups`.
        for id in (1..self.cgroups.len()).rev().filter(|&id| self.cgroups[id].alive) {
            let group = self.native.group(ids[id]);
            let (untold_sum, untold_tasks) = self.native.untold(ids[id]);
            let (sum, tasks) = (sums[id] - untold_sum, runnable[id] - untold_tasks);
            let cgroup = &self.cgroups[id];
            let weight = u64::from(cgroup.kernel_weight()) * self.times(group);
            let counted = if sum > 0 && cgroup.parent != 0 { weight } else { 0 };
            if (group.sum, group.counted, group.tasks) != (sum, counted, tasks) {
                let (has, counts, nr) = (group.sum, group.counted, group.tasks);
                violate!(
                    self,
                    "cgroup",
                    "cgroup {id} has {has}, counts {counts}, {nr} tasks, not {sum}, {counted}, {tasks}"
                );
            }
            sums[cgroup.parent] += counted as i64;
            runnable[cgroup.parent] += tasks;
        }
    }

    /// Return how often the weight of the group counts, by --cgroup-mode.
    pub fn times(&self, group: &group) -> u64 {
        let (tasks, cpus) = (((group.tasks_avg as u32) >> 10).into(), group.cpus.into());
        let times: u64 = match self.tunables.cgroup_mode {
            CgroupMode::Auto | CgroupMode::Smp => 1,
            CgroupMode::Concur => min(tasks, cpus),
            CgroupMode::Max => cpus,
            CgroupMode::Tasks => tasks,
        };
        times.max(1)
    }

    /// Check that idle and overload bits are right, or were a moment ago.
    fn check_bits(&mut self, cpu: usize, slot: usize) {
        let cctx = self.native.cpu_ctx(cpu);
        let (idle, waiting) = (cctx.idle != 0, cctx.queued != 0);
        let overloaded = u32::from(cctx.queued) & queued_QUEUED_MOVABLE != 0;
        let bit = self.native.is_overload_bit(slot);
        fail_if!(self, bit && !overloaded, "overload bit", "CPU {cpu}'s bit is set, and it thinks it is not");
        let is_idle = self.cpus[cpu].curr == Curr::Idle;
        if self.native.is_idle_bit(slot) && !(is_idle && idle) {
            violate!(self, "idle bit", "CPU {cpu} is busy and its idle bit is set");
        }
        let dsq = self.dsqs[cpu].as_ref();
        let queued = dsq.map_or(0, |dsq| dsq.len());
        let pinned = self.dsqs[pinned_queue(cpu)].as_ref().map_or(0, |dsq| dsq.len());
        let line: u64 = (self.tasks.iter())
            .filter(|task| matches!(task.place, Place::Dsq(id) if !is_throttled_queue(id) && queue_cpu(id) == cpu))
            .filter_map(|task| task.tctx())
            .map(|tctx| u64::from(tctx.queued_weight))
            .sum();
        if cctx.queued_load != line || (queued + pinned > 0 && line == 0) {
            let load = cctx.queued_load;
            violate!(self, "load", "the load of those in line on CPU {cpu} is {line}, not {load}");
        }
        let movable = dsq.is_some_and(|dsq| dsq.iter().any(|task| self.may_be_stolen(task)));
        if queued + pinned > 0 && !waiting {
            let queued = queued + pinned;
            violate!(self, "lost", "CPU {cpu} does not know that {queued} tasks wait in its queues");
        }
        fail_if!(self, movable && !(overloaded && bit), "overload bit", "CPU {cpu} hides tasks that wait and may move");

        // The tick clears the bit.
        let stale = bit && queued == 0 && self.cpus[cpu].curr != Curr::HigherClass;
        let since = self.checks.stale_since[cpu].filter(|_| stale).or(stale.then_some(self.now));
        self.checks.stale_since[cpu] = since;
        if since.is_some_and(|since| self.now > since + STALE_GRACE) {
            violate!(self, "overload bit", "CPU {cpu}'s bit stays set, and nothing that may move waits");
        }
        let waits = queued + pinned > 0 || !self.cpus[cpu].local.is_empty();
        let stuck = waits && self.cpus[cpu].tick_stopped && matches!(self.cpus[cpu].curr, Curr::Task(_));
        let since = self.checks.stuck_since[cpu].filter(|_| stuck).or(stuck.then_some(self.now));
        self.checks.stuck_since[cpu] = since;
        if since.is_some_and(|since| self.now > since + WAKEUP_GRACE) {
            violate!(self, "no tick", "tasks wait on CPU {cpu}, whose current has no tick");
        }
        let unknown = is_idle && !self.native.is_idle_bit(slot) && self.now > self.cpus[cpu].busy_until;
        let since = self.checks.unknown_since[cpu].filter(|_| unknown).or(unknown.then_some(self.now));
        self.checks.unknown_since[cpu] = since;
        // Except if the CPU happened to be claimed at each check.
        if since.is_some_and(|since| self.now > since.max(self.cpus[cpu].idle_since) + WAKEUP_GRACE) {
            violate!(self, "idle bit", "CPU {cpu} is idle and its idle bit is not set");
        }
    }

    /// Check work conservation and bounds of waits.
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
        for cpu in self.online.iter() {
            if self.dsqs[cpu].as_ref().is_some_and(|dsq| dsq.iter().nth(LOOKS).is_some()) {
                self.checks.deep_at[cpu] = self.now;
            }
        }
        for task in 0..self.tasks.len() {
            if !self.is_waiting(task) {
                continue;
            }
            let t = &self.tasks[task];
            let waited = self.now.saturating_sub(t.runnable_at);
            let could_move = self.now.saturating_sub(t.runnable_at.max(t.allowed_at));
            if waited > watchdog {
                let cpu = t.cpu;
                violate!(self, "starved", "task {task} waits on CPU {cpu} for {} ms", waited / MSEC);
            }
            // Sent to an idle CPU that a higher class took before the arrival: the kernel does not
            // report that (cpu_release() is only for CPUs that run a sched_ext task).
            let taken = matches!(t.place, Place::Local(cpu) if self.cpus[cpu].curr == Curr::HigherClass);
            let throttled = matches!(t.place, Place::Dsq(id) if is_throttled_queue(id));
            if could_move <= WAKEUP_GRACE || idle.is_empty() || taken || throttled {
                continue;
            }
            // SCHED_BATCH and SCHED_IDLE tasks do not preempt a task that arrived at the same time.
            let second = matches!(t.place, Place::Local(_)) && matches!(t.traits.policy, SCHED_BATCH | SCHED_IDLE);
            let confined = t.mask().and(&self.online) != self.online || second;
            // Not offered before the tick: behind a kernel thread or a waker that should sleep.
            let cctx = self.native.cpu_ctx(t.cpu);
            let soon = u32::from(cctx.preempted_by) == preempter_BY_KTHREAD
                || t.behind_kthread
                || cctx.curr_critical != 0
                || matches!(t.place, Place::Local(_)) && cctx.handed_off != 0;
            let tick_grace = TICK_GRACE.max(self.longest_slice() + 2 * TICK);
            // A walk checks the first tasks of a queue, which may have advanced to there recently.
            let deep = self.now < self.checks.deep_at[t.cpu] + tick_grace;
            let helper = idle.iter().copied().find(|&cpu| {
                let place = &self.machine.places[cpu];
                // The kicked CPU may be a weak one, which does not search far.
                let near =
                    place.llc == self.machine.places[t.cpu].llc && !deep && (alike || place.capacity >= strongest);
                let grace = if near && !confined && !soon { WAKEUP_GRACE } else { tick_grace };
                let may = cpu == t.cpu || t.may_run_on(cpu) && self.is_migratable(task) && self.steals_from(cpu, t.cpu);
                may && (near || within_reach && !deep)
                    && could_move > grace
                    && self.now > self.cpus[cpu].idle_since + grace
            });
            if let Some(cpu) = helper {
                let (at, place) = (t.cpu, t.place);
                violate!(
                    self,
                    "work conservation",
                    "CPU {cpu} idles while task {task} waits on CPU {at} ({place:?}) for {} us",
                    waited / USEC
                );
            }
        }
    }
}

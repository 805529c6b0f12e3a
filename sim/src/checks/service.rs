// SPDX-License-Identifier: GPL-2.0-only
//! The bound of service: the positive lag of a task in the fluid model (`fluid.rs`) is at most
//! [`Kernel::service_bound`]. The model is independent of the program's virtual time, so a task that
//! waits while time stands still, or while newcomers pass it, is seen here.
//!
//! In the model are the tasks that wait in the queues of a usable CPU or in its local DSQ, or run
//! there, with the program's weights. Tasks that sleep, wake, or wait for their cpu.max are not.
//!
//! Not counted, and why:
//!
//! 1. The time of a higher class, and of critical tasks (kernel threads of one CPU, the loader),
//!    which run immediately when they wake, however much they have run.
//! 2. The time of a task that runs because it has waited for starve_ns: the watchdog would end the
//!    program otherwise.
//! 3. A task that has yielded, until it runs again.
//! 4. Lag of SCHED_IDLE and cpu.idle tasks, which run when no other task wants to.

use scx_magpie::bpf_intf::magpie_stat_STAT_STARVED;

use crate::costs::TICK;
use crate::dsq::{TaskId, is_throttled_queue, queue_cpu};
use crate::fluid::Largest;
use crate::kernel::{Curr, Kernel, violate};
use crate::native::{GROUP_IDLE, WEIGHT_SHIFT};
use crate::task::{Place, SCHED_IDLE, State};
use crate::time::{MSEC, USEC};

/// Keys of tasks that come before all others are further than this before the virtual time.
const FAR_BEFORE: i64 = -(1 << 57);

/// The program's weight of nice 0 outside of cgroups.
const NICE_0: f64 = (1024u64 << WEIGHT_SHIFT) as f64;

impl Kernel {
    /// Return the largest positive lag that is allowed, ns of the CPU time of a task of this weight:
    ///
    /// 1. the credit, which is virtual time: more CPU time for a task that is heavier than nice 0;
    /// 2. a slice by which its deadline is after its vruntime, and a slice of current that ends at
    ///    a tick; the same once more, because a preempted task resumes first;
    /// 3. OVERRUN_NS of negative lag that a task keeps which ran for too long;
    /// 4. a slice that tasks of other CPUs are ahead, which come with what they lack, and leave when they have had it;
    /// 5. a slice for each task of `cpu` that ran because it had waited for starve_ns, as the model
    ///    does not see when such a task is preempted and resumes.
    ///
    /// A slice is the longest that any program has asked for, and takes at least a tick where no timer
    /// ends it.
    fn service_bound(&self, cpu: usize, weight: u64) -> f64 {
        let slice = self.longest_slice().max(TICK);
        let starved = self.native.cpu_ctx(cpu).stats[magpie_stat_STAT_STARVED as usize];
        let credit = (self.tunables.slice_us_lag * USEC) as f64;
        ((5 + starved) * slice + 20 * MSEC) as f64 + credit * (weight as f64 / NICE_0).max(1.0)
    }

    /// Update the model after `cpu` has switched from `prev`.
    pub fn model_switch(&mut self, cpu: usize, prev: Curr) {
        if let Curr::Task(task) = prev {
            self.model_place(task);
        }
        let next = match self.cpus[cpu].curr {
            Curr::Task(task) => {
                self.model_place(task);
                self.check_service(task);
                Some((task, !self.ran_as_starved(task) && !self.is_critical(task)))
            }
            Curr::Idle | Curr::HigherClass => None,
        };
        self.checks.fluid.run(cpu, next, self.now);
    }

    /// Return true if the task runs immediately whenever it wakes: a kernel thread of one CPU, or
    /// the loader.
    fn is_critical(&self, task: TaskId) -> bool {
        let traits = &self.tasks[task].traits;
        traits.loader || traits.kthread && self.tasks[task].raw().nr_cpus_allowed == 1
    }

    /// Return true if the task that starts to run had waited for so long that requeue_late() moved
    /// it before all others.
    fn ran_as_starved(&self, task: TaskId) -> bool {
        let task = &self.tasks[task];
        let waited = self.now.saturating_sub(task.runnable_at);
        let first = task.raw().scx.dsq_vtime.wrapping_sub(self.native.cpu_ctx(task.cpu).vtime) as i64;
        waited >= u64::from(self.tunables.timeout_ms) * MSEC / 4 && first < FAR_BEFORE
    }

    /// Update the model of a task that was queued, moved, or stopped running.
    pub fn model_place(&mut self, task: TaskId) {
        let t = &self.tasks[task];
        let cpu = match (t.state, t.place) {
            (State::Running, _) => Some(t.cpu),
            (State::Runnable, _) if t.tctx().is_some_and(|tctx| tctx.yielded != 0) => None,
            (State::Runnable, Place::Local(cpu)) => Some(cpu),
            (State::Runnable, Place::Dsq(id)) if !is_throttled_queue(id) => Some(queue_cpu(id)),
            _ => None,
        };
        let cpu = cpu.filter(|&cpu| self.online.test(cpu) && self.native.slot(cpu).is_some());
        let weight = self.weight(task).max(1);
        self.checks.fluid.place(task, cpu, weight, self.now);
    }

    /// Update the model after a callback, which may have changed the weight of its task.
    pub fn model_call(&mut self) {
        let Some(call) = self.call else { return };
        let Some(task) = call.task else { return };
        let weight = self.weight(task).max(1);
        self.checks.fluid.reweigh(task, weight, self.now);
    }

    /// Update the model from all tasks and CPUs, after changes that are not reported (hotplug, the
    /// end of a throttling, weights of waiting tasks), and check the bound.
    pub fn check_services(&mut self) {
        for cpu in 0..self.cpus.len() {
            let curr = self.cpus[cpu].curr;
            if !matches!(curr, Curr::Task(_)) {
                self.checks.fluid.run(cpu, None, self.now);
            }
        }
        for task in 0..self.tasks.len() {
            let state = self.tasks[task].state;
            if !matches!(state, State::Runnable | State::Running) && self.checks.fluid.cpu(task).is_none() {
                continue;
            }
            self.model_place(task);
            self.check_service(task);
        }
    }

    /// Return a table of the tasks of a CPU in the model, the one that lacks most first: to explain
    /// the violation at `now`. "program's" is the lag by the program's virtual time, "deadline" the
    /// distance to the deadline, both in us of the task's CPU time.
    pub fn lags_on(&mut self, cpu: usize, now: u64) -> String {
        let mut tasks: Vec<TaskId> =
            (0..self.tasks.len()).filter(|&task| self.checks.fluid.cpu(task) == Some(cpu)).collect();
        tasks.sort_by_cached_key(|&task| -self.checks.fluid.lag(task, now) as i64);
        let vtime = self.native.cpu_ctx(cpu).vtime;
        let mut text = format!(
            "CPU {cpu}, virtual time {vtime}\n  task  weight  as queued   lag us   program's  deadline        key\n"
        );
        for task in tasks {
            let lag = self.checks.fluid.lag(task, now) / USEC as f64;
            let (weight, _) = self.checks.fluid.weights(task);
            let t = &self.tasks[task];
            let name = &self.programs[t.program].name;
            let Some(tctx) = t.tctx() else { continue };
            let us = |at: u64| at.wrapping_sub(vtime) as i64 as f64 * weight as f64 / NICE_0 / USEC as f64;
            let (behind, deadline, key) = (-us(tctx.vruntime), us(tctx.deadline), us(t.raw().scx.dsq_vtime));
            let queued = tctx.queued_weight;
            let waits = (now - t.runnable_at.min(now)) / USEC;
            let (state, place, nice, group) = (t.state, t.place, t.traits.nice, t.cgroup);
            text += &format!(
                "{task:6} {weight:7} {queued:10} {lag:8.0} {behind:10.0} {deadline:10.0} {key:10.0}  {name}, nice {nice}, cgroup {group}, \
                 {state:?} in {place:?} for {waits} us\n"
            );
        }
        text
    }

    fn check_service(&mut self, task: TaskId) {
        let Some(cpu) = self.checks.fluid.cpu(task) else { return };
        let is_idle = self.tasks[task].raw().policy == SCHED_IDLE
            || self.tasks[task].tctx().is_some_and(|tctx| tctx.share & GROUP_IDLE != 0);
        if is_idle {
            return;
        }
        let (weight, all) = self.checks.fluid.weights(task);
        let (lag, bound) = (self.checks.fluid.lag(task, self.now), self.service_bound(cpu, weight));
        let of_bound = lag / bound;
        if of_bound > self.checks.fluid.largest.of_bound {
            let slices = lag / (self.tunables.slice_us * USEC) as f64;
            let (lag_us, at_us) = (lag / USEC as f64, self.now / USEC);
            self.checks.fluid.largest = Largest { of_bound, slices, lag_us, task, cpu, at_us };
        }
        if lag > bound && self.checks.fluid.enforced {
            violate!(
                self,
                "service",
                "task {task} of weight {weight} among {all} lacks {:.0} us on CPU {cpu}, more than {:.0}",
                lag / USEC as f64,
                bound / USEC as f64
            );
        }
    }
}

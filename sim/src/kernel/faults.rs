// SPDX-License-Identifier: GPL-2.0-only
//! Carry out faults: affinity and nice changes, cgroups, higher scheduling classes, hotplug.
//!
//! ```text
//! affinity, nice   change.rs
//! higher class     the CPU is taken; cpu_release()
//! hotplug          cpu_offline(), the CPU's tasks move; cpu_online(), and the loader places it or restarts
//! ```

use scx_magpie::bpf_intf::NO_NODE;
use serde::{Deserialize, Serialize};

use crate::cgroup::{CgroupId, NR_AUTOGROUPS, Spec};
use crate::costs::{CONTEXT_SWITCH, IPI};
use crate::dsq::TaskId;
use crate::kernel::{Curr, Event, Kernel};
use crate::mask::Mask;
use crate::native::{place, sched_ext_ops};
use crate::task::{Place, State, Task};
use crate::time::{MSEC, USEC};
use crate::trace::Op;

/// A change to a running system that the scheduler must survive.
///
/// - `pick` selects among the tasks that are alive then, except kernel threads and the loader.
/// - `cpu` selects among the CPUs that are online then; for `Online`, offline.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Fault {
    /// A real-time task takes the CPU for `ns`.
    HigherClass { cpu: usize, ns: u64 },
    /// sched_setaffinity()
    Affinity { pick: usize, allowed: Mask },
    /// setpriority()
    Nice { pick: usize, nice: i32 },
    /// sched_setattr(): a slice of its own; 0: none.
    OwnSlice { pick: usize, us: u64 },
    /// The task moves to a cgroup. `to` and `cgroup` are modulo the number ever created.
    Move { pick: usize, to: CgroupId },
    /// setsid(): the task moves to one of a few sessions, modulo.
    Session { pick: usize, to: usize },
    /// cpu.weight
    Weight { cgroup: CgroupId, weight: u32 },
    /// cpu.idle
    Idle { cgroup: CgroupId, idle: bool },
    /// cpu.max; no limit without a quota.
    Limit { cgroup: CgroupId, quota_us: Option<u64>, period_us: u64, burst_us: u64 },
    /// mkdir
    Make(Spec),
    /// rmdir; does nothing if the cgroup has tasks or children.
    Remove { cgroup: CgroupId },
    /// The loader finds the memory of the task's process on this node, modulo; None: spread.
    Memory { pick: usize, node: Option<usize> },
    /// The CPU goes offline.
    Offline { cpu: usize },
    /// The CPU comes online.
    Online { cpu: usize },
}

/// Time until the loader notices hotplug.
const LOOK: u64 = 5 * MSEC;

impl Kernel {
    pub fn plan(&mut self, faults: &[(u64, Fault)]) {
        for (at, fault) in faults {
            self.push(*at, Event::Fault(self.faults.len()));
            self.faults.push((*at, fault.clone()));
        }
    }

    pub fn fault(&mut self, index: usize) {
        match self.faults[index].1.clone() {
            Fault::HigherClass { cpu, ns } => {
                let cpu = self.pick_cpu(cpu, true).unwrap_or(self.cpu);
                self.take_cpu(cpu, ns);
            }
            Fault::Affinity { pick, allowed } => {
                let allowed = allowed.and(&self.possible);
                if let Some(task) = self.pick(pick)
                    && !allowed.and(&self.online).is_empty()
                    && !self.tasks[task].is_migration_disabled()
                {
                    self.set_affinity(task, allowed);
                }
            }
            Fault::Nice { pick, nice } => self.with_task(pick, |kernel, task| kernel.set_nice(task, nice)),
            Fault::OwnSlice { pick, us } => {
                self.with_task(pick, |kernel, task| kernel.set_own_slice(task, us * USEC));
            }
            Fault::Move { pick, to } => {
                self.with_task(pick, |kernel, task| kernel.move_to_cgroup(task, to % kernel.cgroups.len()));
            }
            Fault::Session { pick, to } => {
                self.with_task(pick, |kernel, task| kernel.set_session(task, to % NR_AUTOGROUPS));
            }
            Fault::Weight { cgroup, weight } => self.set_cgroup_weight(cgroup % self.cgroups.len(), weight),
            Fault::Idle { cgroup, idle } => self.set_cgroup_idle(cgroup % self.cgroups.len(), idle),
            Fault::Limit { cgroup, quota_us, period_us, burst_us } => {
                self.set_cgroup_max(cgroup % self.cgroups.len(), quota_us, period_us, burst_us);
            }
            Fault::Make(spec) => {
                let parent = spec.parent % self.cgroups.len();
                if self.cgroups[parent].alive {
                    self.make_cgroup(&Spec { parent, ..spec });
                }
            }
            Fault::Remove { cgroup } => self.remove_cgroup(cgroup % self.cgroups.len()),
            Fault::Memory { pick, node } => self.with_task(pick, |kernel, task| {
                let nodes: Vec<_> = kernel.layout.cpus.values().map(|cpu| cpu.node).collect();
                let node = node.map_or(NO_NODE, |node| nodes[node % nodes.len()] as i32);
                kernel.set_memory(kernel.tasks[task].raw().tgid, node);
            }),
            Fault::Offline { cpu } => {
                if let Some(cpu) = self.pick_cpu(cpu, true)
                    && self.online.len() > 1
                {
                    self.offline(cpu);
                }
            }
            Fault::Online { cpu } => {
                if let Some(cpu) = self.pick_cpu(cpu, false) {
                    self.bring_online(cpu);
                }
            }
        }
    }

    fn pick(&self, pick: usize) -> Option<TaskId> {
        let may = |task: &Task| task.is_alive() && !task.traits.kthread && !task.traits.loader;
        let alive: Vec<_> = (0..self.tasks.len()).filter(|&task| may(&self.tasks[task])).collect();
        (!alive.is_empty()).then(|| alive[pick % alive.len()])
    }

    fn with_task(&mut self, pick: usize, run: impl FnOnce(&mut Self, TaskId)) {
        if let Some(task) = self.pick(pick) {
            run(self, task);
        }
    }

    fn pick_cpu(&self, pick: usize, online: bool) -> Option<usize> {
        let cpus: Vec<_> = (0..self.cpus.len()).filter(|&cpu| self.online.test(cpu) == online).collect();
        (!cpus.is_empty()).then(|| cpus[pick % cpus.len()])
    }

    /// Call a callback on `cpu`, as its hotplug thread does.
    fn on_its_own(&mut self, cpu: usize, op: Op, call: impl FnOnce(&sched_ext_ops)) {
        let executing = std::mem::replace(&mut self.cpu, cpu);
        self.call(op, None, cpu as u64, call);
        self.cpu = executing;
    }

    /// sched_cpu_activate()
    pub fn bring_online(&mut self, cpu: usize) {
        self.on_its_own(cpu, Op::CpuOnline, |ops| unsafe { ops.cpu_online.unwrap()(cpu as i32) });
        self.online.set(cpu);
        self.cpus[cpu].idle_since = self.now;
        // A CPU comes online with the idle task running.
        self.resched_curr(cpu);
        if self.native.slot(cpu).is_none() {
            self.push(self.now + LOOK, Event::FollowHotplug);
        }
    }

    /// sched_cpu_deactivate() and the following steps.
    pub fn offline(&mut self, cpu: usize) {
        self.account(cpu);
        self.update_curr(cpu);
        self.online.clear(cpu);
        if self.cpu == cpu {
            self.cpu = self.boot_cpu();
        }
        self.on_its_own(cpu, Op::CpuOffline, |ops| unsafe { ops.cpu_offline.unwrap()(cpu as i32) });
        // The running task leaves: the stopper that takes the CPU down preempts it.
        if let Curr::Task(task) = self.cpus[cpu].curr {
            self.stopping(task, true);
            self.tasks[task].state = State::Runnable;
            self.tasks[task].runnable_at = self.now;
            self.tasks[task].enable_migration();
            self.cpus[cpu].local.push_back(task);
            self.set_place(task, Place::Local(cpu));
        }
        self.cpus[cpu].curr = Curr::Idle;
        self.cpus[cpu].armed += 1;
        self.cpus[cpu].higher_class_ns = 0;
        self.cpus[cpu].push_away = None;
        self.cpus[cpu].need_resched = false;
        self.set_speeds(cpu);
        for task in 0..self.tasks.len() {
            if self.tasks[task].state == State::Runnable && self.tasks[task].cpu == cpu {
                if let Place::Dsq(id) = self.tasks[task].place {
                    self.violate(
                        "left behind",
                        format!("task {task} waits in DSQ {id:#x} of CPU {cpu}, which is offline"),
                    );
                }
                self.tasks[task].enable_migration();
                self.move_if_disallowed(task);
            }
        }
        if self.cpus[self.cpu].need_resched {
            self.push(self.now + self.cost + IPI, Event::Resched(self.cpu));
        }
    }

    /// Place new CPUs as the loader does, or restart.
    pub fn follow_hotplug(&mut self) {
        let fresh = match self.machine.layout(&self.online.iter().collect()) {
            Ok(fresh) => fresh,
            Err(err) => return self.violate("layout", format!("{err:#}")),
        };
        let Some(came) = self.layout.follow(&fresh, |_| true) else { return self.restart() };
        for cpu in came {
            self.publisher.set_layout(&self.layout);
            let layout = self.layout.clone();
            self.in_program(|| place(&layout, cpu));
            self.resched_curr(cpu);
        }
    }

    /// Restart: the loader attaches again. The program loses its state and gets all tasks again.
    pub fn restart(&mut self) {
        let waiting: Vec<_> = (0..self.tasks.len()).filter(|&task| self.is_waiting(task)).collect();
        for &task in &waiting {
            self.take_out(task);
        }
        for task in &mut self.tasks {
            task.ddsp = None;
            task.work = None;
        }
        if let Err(err) = self.attach() {
            return self.violate("attach", format!("{err:#}"));
        }
        for cpu in 0..self.cpus.len() {
            if let Curr::Task(task) = self.cpus[cpu].curr {
                self.update_curr(cpu);
                self.running(task);
            }
        }
        for task in waiting {
            let cpu = self.tasks[task].cpu;
            // A throttled task now waits for a CPU, not for its cpu.max.
            self.tasks[task].runnable_at = self.now;
            self.do_enqueue(task, cpu, 0);
        }
        for cpu in self.online.iter().collect::<Vec<_>>() {
            self.cpus[cpu].released = false;
            self.resched_curr(cpu);
        }
        self.cost += CONTEXT_SWITCH;
    }
}

// SPDX-License-Identifier: GPL-2.0-only
//! The loader: load the program, report cgroups and tasks to it, and publish measurements.

use std::collections::BTreeSet;
use std::time::Duration;

use anyhow::Result;
use scx_magpie::bpf_config::{BpfConfig, Possible};
use scx_magpie::bpf_intf::process;
use scx_magpie::nr_scan::ScanLimit;
use scx_magpie::publisher::Publisher;
use scx_magpie::stats::Snapshot;
use scx_magpie::tunables::{CpuFreq, Power, Tunables};

use crate::dsq::{MAX_DSQS, TaskId};
use crate::kernel::{Event, Kernel, Moment};
use crate::native::{decay_cpuperfs, poll_groups, register_loader, sample_queues, scx_init_task_args};
use crate::task::{Task, Traits};
use crate::trace::Op;

impl Kernel {
    /// Load the program for the CPUs that are online, and run init() and init_task().
    pub fn attach(&mut self) -> Result<()> {
        let online: BTreeSet<_> = self.online.iter().collect();
        self.layout = self.machine.layout_for(&online, self.tunables.power == Power::Powersave)?;
        self.publisher = Publisher::new(self.layout.clone(), ScanLimit::from(&self.tunables));
        let possible = Possible { cpus: self.machine.nr_cpus(), ids: self.machine.nr_cpus() };
        let mut config = BpfConfig::new(&self.layout, &self.tunables, possible);
        config.machine.autogroups = (!self.tunables.no_cgroups).into();
        self.native.load(&config);
        self.ops = self.native.ops();
        self.dsqs = vec![None; MAX_DSQS];
        self.arrays.clear();
        self.hashes.clear();
        self.timers.clear();
        self.tell(Moment::Loaded);
        let err = self.call(Op::Init, None, 0, |ops| unsafe { ops.init.unwrap()() });
        if err != 0 {
            self.violate("init", format!("init() returned {err}"));
        }
        self.run_program(register_loader);
        self.publish();
        for id in 0..self.cgroups.len() {
            if self.cgroups[id].alive {
                self.init_cgroup(id);
            }
        }
        for task in 0..self.tasks.len() {
            if self.tasks[task].is_alive() {
                self.init_task(task, false);
            }
        }
        Ok(())
    }

    pub fn set(&mut self, tunables: Tunables) {
        self.native.set(&self.layout, &tunables);
        self.publisher.set_limit(ScanLimit::from(&tunables));
        self.tunables = tunables;
    }

    fn init_task(&mut self, task: TaskId, fork: bool) {
        self.tasks[task].storage.clear();
        let raw = self.tasks[task].raw;
        let mut args = scx_init_task_args { fork, cgroup: &raw mut *self.cgroups[self.tasks[task].cgroup].raw };
        let err = self.call(Op::InitTask, Some(task), 0, |ops| unsafe { ops.init_task.unwrap()(raw, &mut args) });
        fail_if!(self, err != 0, "init", "init_task() returned {err}");
    }

    /// Create a sleeping task. [`Kernel::start`] wakes it for the first time.
    pub fn spawn(&mut self, program: usize, traits: Traits, cpu: usize) -> TaskId {
        let task = self.tasks.len();
        self.longest_own_slice = self.longest_own_slice.max(traits.own_slice);
        self.tasks.push(Task::new(task, program, traits, cpu, self.now));
        self.set_task_group(task);
        self.init_task(task, true);
        task
    }

    pub fn start(&mut self, task: TaskId, at: u64) {
        self.push(at, Event::Timer(task));
    }

    /// Publish utilization, as the loader does each util_interval.
    pub fn publish(&mut self) {
        let shared = self.native.shared();
        self.publisher.publish(
            shared.cpu_ctxs,
            shared.cpu_layouts,
            shared.llc_publisheds,
            Duration::from_nanos(self.now),
        );
        self.publisher.publish_capacities(shared.capacities);
        if self.tunables.cpufreq == CpuFreq::On {
            self.run_program(decay_cpuperfs);
        }
        if !self.tunables.no_cgroups {
            self.run_program(poll_groups);
        }
    }

    /// Set the node of a process's memory, as the loader's sampler does; -1: spread over nodes.
    pub fn set_memory(&mut self, tgid: i32, node: i32) {
        let process = process { checks: 0, node, pad: 0 };
        let words: [u64; size_of::<process>() / 8] = bytemuck::cast(process);
        self.hashes.insert((self.native.processes(), tgid as u64), words.into());
    }

    /// Set the capacity that each CPU reaches under its frequency limit, as the loader does.
    pub fn set_reachable(&mut self, reachable: impl Fn(usize, usize) -> usize) {
        self.publisher.set_reachable(reachable);
        self.publish();
    }

    /// Sample the lengths of queues, and return the statistics.
    pub fn snapshot(&mut self) -> Snapshot {
        self.run_program(sample_queues);
        let now = Duration::from_nanos(self.now);
        Snapshot::new(&self.layout, &self.native.shared(), &self.sum_util(), None, now)
    }

    pub fn sum_util(&self) -> Vec<u32> {
        self.publisher.sum_util(self.native.shared().cpu_ctxs, Duration::from_nanos(self.now))
    }
}

// SPDX-License-Identifier: GPL-2.0-only
//! A scenario: machine, scheduler flags, workloads, faults, simulated time and seed. A failed run
//! is written as JSON, and `magpie-sim replay` runs it again.

use anyhow::{Context, Result, ensure};
use scx_magpie::tunables::Tunables;
use serde::{Deserialize, Serialize};

use crate::cgroup::{CgroupId, Spec};
use crate::checks::{Violation, observe};
use crate::costs::{LINES_PER_KB, NOISE_INTERVAL, NOISE_WORK, TICK};
use crate::kernel::Fault;
use crate::kernel::{Kernel, Observer};
use crate::machine::{Machine, Shape};
use crate::mask::Mask;
use crate::program::{Dist, Step};
use crate::report::Report;
use crate::time::{MSEC, USEC};
use crate::workload::{Builder, HOG, Workload};

/// Work of the loader each util_interval: a constant, and more per CPU.
const PUBLISH_WORK: u64 = 20 * USEC;
const PUBLISH_WORK_CPU: u64 = 50;

/// Tests and the command line change fields of the default with struct update syntax.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(default)]
pub struct Scenario {
    pub machine: Shape,
    /// Flags of the scheduler, in the syntax of its command line.
    pub flags: String,
    pub workloads: Vec<Workload>,
    /// Cgroups with ids from 1 on; 0 is the root.
    pub cgroups: Vec<Spec>,
    /// Cgroup of each workload; the root if there is no entry.
    pub places: Vec<CgroupId>,
    /// Faults with their simulated time in us.
    pub faults: Vec<(u64, Fault)>,
    pub ms: u64,
    /// Simulated time before `ms` that is not reported.
    pub warm_up_ms: u64,
    pub seed: u64,
    /// Working set of each task; `None`: the default in `costs.rs`.
    pub working_set_kb: Option<u64>,
    /// Additional time for work on another node than the task's first, %.
    pub remote_memory_pct: u64,
    /// Workloads start on this many CPUs, the first ones; `None`: on all.
    pub start_cpus: Option<usize>,
    /// Add kernel threads and the loader in the background.
    pub noise: bool,
}

impl Default for Scenario {
    fn default() -> Self {
        Self {
            machine: Shape::default(),
            flags: String::new(),
            workloads: vec![],
            cgroups: vec![],
            places: vec![],
            faults: vec![],
            ms: 1000,
            warm_up_ms: 0,
            seed: 1,
            working_set_kb: None,
            remote_memory_pct: 0,
            start_cpus: None,
            noise: true,
        }
    }
}

/// Parse the scheduler's flags as its command line does, but without quotes: no flag needs them.
pub fn parse_flags(flags: &str) -> Result<Tunables> {
    let words: Vec<_> = flags.split_whitespace().map(String::from).collect();
    Tunables::parse(&words).context("scheduler flags")
}

pub struct Outcome {
    pub report: Report,
    pub violation: Option<Violation>,
    pub kernel: Kernel,
}

impl Kernel {
    /// Create a kernel with the checks as observer and the program loaded.
    pub fn new(shape: &Shape, flags: &str, seed: u64) -> Result<Self> {
        Self::observed(shape, flags, seed, observe)
    }

    /// Create a kernel with this observer and the program loaded.
    pub fn observed(shape: &Shape, flags: &str, seed: u64, observer: Observer) -> Result<Self> {
        let mut kernel = Self::bare(Machine::new(shape), &parse_flags(flags)?, seed, observer)?;
        kernel.attach()?;
        Ok(kernel)
    }
}

impl Scenario {
    /// Return a scenario of the machine, the flags and the workloads, all as on the command line.
    pub fn of(machine: &str, flags: &str, workloads: &[&str]) -> Result<Self> {
        let workloads = workloads.iter().map(|text| text.parse()).collect::<Result<_>>()?;
        Ok(Self { machine: machine.parse()?, flags: flags.into(), workloads, ..Self::default() })
    }

    /// Run the scenario. Fails if it cannot run; a violated invariant is in the outcome.
    pub fn run(&self, keep_trace: bool) -> Result<Outcome> {
        self.run_with(keep_trace, |_| {})
    }

    /// Run the scenario on a kernel that `prepare` has changed.
    pub fn run_with(&self, keep_trace: bool, prepare: impl FnOnce(&mut Kernel)) -> Result<Outcome> {
        let mut kernel = Kernel::new(&self.machine, &self.flags, self.seed)?;
        kernel.trace.keep = keep_trace;
        prepare(&mut kernel);
        let from = kernel.now + TICK;
        if self.noise {
            add_noise(&mut kernel, from);
        }
        for spec in &self.cgroups {
            ensure!(spec.parent < kernel.cgroups.len(), "cgroup {} comes before its parent", kernel.cgroups.len());
            kernel.make_cgroup(spec);
        }
        let places = self.places.iter().copied().chain(std::iter::repeat(0));
        for (workload, cgroup) in self.workloads.iter().zip(places) {
            ensure!(cgroup < kernel.cgroups.len(), "there is no cgroup {cgroup}");
            let mut builder = Builder::new(&mut kernel, from, cgroup);
            builder.working_set = self.working_set_kb.map_or(builder.working_set, |kb| kb * LINES_PER_KB);
            builder.remote_memory_pct = self.remote_memory_pct;
            builder.start_cpus = self.start_cpus;
            workload.add(builder)?;
        }
        let faults: Vec<_> = self.faults.iter().map(|(us, fault)| (from + us * USEC, fault.clone())).collect();
        kernel.plan(&faults);
        kernel.start_checks();
        if self.warm_up_ms > 0 {
            kernel.run_until(from + self.warm_up_ms * MSEC);
            kernel.end_warm_up();
        }
        kernel.run_until(from + (self.warm_up_ms + self.ms) * MSEC);
        if kernel.violation.is_none() {
            kernel.check_counters();
        }
        let shares_move = |fault: &Fault| !matches!(fault, Fault::HigherClass { .. });
        if kernel.violation.is_none() && !self.faults.iter().any(|(_, fault)| shares_move(fault)) {
            let hogs: Vec<_> = (0..kernel.tasks.len())
                .filter(|&task| kernel.programs[kernel.tasks[task].program].name == HOG)
                .collect();
            kernel.check_shares(&hogs, from);
        }
        let report = kernel.report(from);
        Ok(Outcome { report, violation: kernel.violation.clone(), kernel })
    }
}

/// Add the background of every machine: a kernel thread per CPU, and the loader.
fn add_noise(kernel: &mut Kernel, at: u64) {
    let interval = kernel.tunables.util_interval * MSEC;
    let mut builder = Builder::new(kernel, at, 0);
    let group = builder.group("noise", true);
    let steps = vec![Step::Sleep(Dist::Exp(NOISE_INTERVAL)), Step::Run(Dist::Exp(NOISE_WORK)), Step::Jump(0)];
    let kworker = builder.program(group, "kworker", steps);
    for cpu in 0..builder.nr_cpus() {
        let mut traits = builder.traits();
        traits.kthread = true;
        traits.allowed = Mask::only(cpu);
        builder.task(kworker, traits);
    }
    let work = PUBLISH_WORK + PUBLISH_WORK_CPU * builder.nr_cpus() as u64;
    let steps = vec![Step::Sleep(Dist::Fixed(interval)), Step::Run(Dist::About(work)), Step::Publish, Step::Jump(0)];
    let loader = builder.program(group, "loader", steps);
    let mut traits = builder.traits();
    traits.loader = true;
    builder.task(loader, traits);
}

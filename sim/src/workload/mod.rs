// SPDX-License-Identifier: GPL-2.0-only
//! Workloads, and their names on the command line.
//!
//! ```text
//! "hogs:nr=4,nice=5" --Workload--> add() --> programs, channels and tasks of a Kernel
//! ```

/// Define a workload's parameters with their defaults.
macro_rules! parameters {
    ($vis:vis struct $name:ident { $($(#[$doc:meta])* $field_vis:vis $field:ident: $type:ty = $default:expr,)* }) => {
        #[derive(Clone, Debug, PartialEq, serde::Serialize, serde::Deserialize)]
        #[serde(default, deny_unknown_fields)]
        $vis struct $name { $($(#[$doc])* $field_vis $field: $type,)* }

        impl Default for $name {
            fn default() -> Self {
                Self { $($field: $default,)* }
            }
        }
    };
}

pub mod chaos;
mod hackbench;
pub mod hogs;
mod loopback;
mod schbench;

use std::str::FromStr;

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::cgroup::CgroupId;
use crate::costs::WORKING_SET_LINES;
use crate::dsq::TaskId;
use crate::kernel::Kernel;
use crate::mask::Mask;
use crate::program::{Channel, ChannelId, Program, ProgramId, Step};
use crate::stats::GroupStats;
use crate::task::Traits;

/// A workload and its parameters with defaults; `NAME[:KEY=VALUE,...]` on the command line.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "workload", rename_all = "lowercase")]
pub enum Workload {
    Chaos(chaos::Chaos),
    ForkLoops(hogs::ForkLoops),
    Frames(hogs::Frames),
    Hackbench(hackbench::Hackbench),
    Hogs(hogs::Hogs),
    Pool(hogs::Pool),
    Rr(loopback::Rr),
    Schbench(schbench::Schbench),
    Sleepers(hogs::Sleepers),
    Tbench(loopback::Tbench),
}

/// Name of programs whose tasks never sleep, and therefore get CPU time by weight.
pub const HOG: &str = "hog";

/// Help for the workloads: names, parameters with defaults, descriptions.
pub const HELP: &str = "\
  forkloops:nr=1,run=2000,nice=0,cpu=-1  tasks that fork a child of run us and wait for it, again and again
  frames:nr=1,run=7000,period=16600,nice=0,cpu=-1  tasks that need run us of each period us, by a timer
  hackbench:groups=1,fds=20,loops=100,pipe=true  groups of fds senders and fds receivers; pipes or sockets
  hogs:nr=1,nice=0,policy=0,cpu=-1    tasks that never sleep; all on one CPU, if that is not -1
  pool:nr=8,run=2000,nice=0,cpu=-1    nr tasks that work one at a time, run us each, in turn
  rr:pairs=1,work=10                  request and response over loopback (netperf TCP_RR); us of work on each side
  schbench:m=2,t=16,s=10000,c=15000   m message threads that wake t workers each, which spin c us; s us between
  sleepers:nr=30,run=500,sleep=20000  tasks that run and sleep for so many us
  tbench:clients=0                    clients (0: half as many as CPUs) and servers, mixed requests over loopback";

impl FromStr for Workload {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> Result<Self> {
        let (name, parameters) = text.split_once(':').unwrap_or((text, ""));
        let mut map = Map::from_iter([("workload".to_string(), Value::from(name))]);
        for pair in parameters.split(',').filter(|pair| !pair.is_empty()) {
            let (key, value) = pair.split_once('=').with_context(|| format!("'{pair}' is not KEY=VALUE"))?;
            // Numbers and booleans are parsed, other values are text.
            map.insert(key.into(), serde_json::from_str(value).unwrap_or_else(|_| value.into()));
        }
        serde_json::from_value(Value::Object(map)).with_context(|| format!("workload '{text}'"))
    }
}

impl Workload {
    /// Add the tasks of the workload, which start within a millisecond of the builder's time.
    pub fn add(&self, mut builder: Builder<'_>) -> Result<()> {
        match self {
            Self::Chaos(chaos) => chaos.add(&mut builder),
            Self::ForkLoops(loops) => loops.add(&mut builder),
            Self::Frames(frames) => frames.add(&mut builder),
            Self::Hackbench(hackbench) => hackbench.add(&mut builder),
            Self::Hogs(hogs) => hogs.add(&mut builder),
            Self::Pool(pool) => pool.add(&mut builder),
            Self::Rr(rr) => rr.add(&mut builder),
            Self::Schbench(schbench) => schbench.add(&mut builder),
            Self::Sleepers(sleepers) => sleepers.add(&mut builder),
            Self::Tbench(tbench) => tbench.add(&mut builder),
        }
    }
}

/// Builder that adds a workload's parts to a kernel.
pub struct Builder<'a> {
    kernel: &'a mut Kernel,
    at: u64,
    spawned: usize,
    cgroup: CgroupId,
    /// Lines of the working set of a task.
    pub working_set: u64,
    pub remote_memory_pct: u64,
    /// Tasks start on this many CPUs, the first ones.
    pub start_cpus: Option<usize>,
}

impl<'a> Builder<'a> {
    pub fn new(kernel: &'a mut Kernel, at: u64, cgroup: CgroupId) -> Self {
        Self { kernel, at, spawned: 0, cgroup, working_set: WORKING_SET_LINES, remote_memory_pct: 0, start_cpus: None }
    }

    pub fn nr_cpus(&self) -> usize {
        self.kernel.cpus.len()
    }

    pub fn slice(&self) -> u64 {
        self.kernel.tunables.slice_us * crate::time::USEC
    }

    pub fn nr_cgroups(&self) -> usize {
        self.kernel.cgroups.len()
    }

    /// Add a group for statistics of related tasks. `background` tasks are not reported.
    pub fn group(&mut self, name: &str, background: bool) -> usize {
        self.kernel.groups.push(GroupStats::new(name, background));
        self.kernel.groups.len() - 1
    }

    /// Add a program. `name` is the name of its tasks in traces.
    pub fn program(&mut self, group: usize, name: &str, steps: Vec<Step>) -> ProgramId {
        self.kernel.programs.push(Program { steps, group, name: name.into() });
        self.kernel.programs.len() - 1
    }

    pub fn channel(&mut self, capacity: usize, sync: bool) -> ChannelId {
        self.kernel.channels.push(Channel { futex: !sync, ..Channel::new(capacity, sync) });
        self.kernel.channels.len() - 1
    }

    /// Add a pipe or socket whose waiting senders are woken when `low` messages or fewer are left.
    pub fn pipe(&mut self, capacity: usize, low: usize) -> ChannelId {
        let id = self.channel(capacity, true);
        self.kernel.channels[id].low = low;
        id
    }

    pub fn traits(&self) -> Traits {
        Traits {
            allowed: Mask::first(self.nr_cpus()),
            cgroup: self.cgroup,
            working_set: self.working_set,
            remote_memory_pct: self.remote_memory_pct,
            ..Traits::default()
        }
    }

    pub fn tasks(&mut self, program: ProgramId, nr: usize, traits: &Traits) {
        (0..nr).for_each(|_| _ = self.task(program, traits.clone()));
    }

    /// Add a task, asleep on an allowed CPU until about the start of the workload.
    pub fn task(&mut self, program: ProgramId, traits: Traits) -> TaskId {
        let first = self.start_cpus.unwrap_or(self.nr_cpus());
        let mut cpus: Vec<_> = traits.allowed.iter().filter(|&cpu| cpu < first).collect();
        if cpus.is_empty() {
            cpus = traits.allowed.iter().collect();
        }
        let cpu = cpus[self.spawned % cpus.len()];
        self.spawned += 1;
        let task = self.kernel.spawn(program, traits, cpu);
        let at = self.at + self.kernel.rng.u64(..crate::time::MSEC);
        self.kernel.tasks[task].started_at = at;
        self.kernel.tasks[task].due_at = at;
        self.kernel.start(task, at);
        task
    }
}

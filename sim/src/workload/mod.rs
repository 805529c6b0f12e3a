// SPDX-License-Identifier: GPL-2.0-only
//! Workloads: what each is made of, a file for each, and how it is named on the command line.
//!
//! ```text
//! "hogs:nr=4,nice=5" --Workload--> add() --> programs, channels and tasks of a Kernel
//! ```

pub mod chaos;
pub mod hogs;
mod rr;

use std::str::FromStr;

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::dsq::TaskId;
use crate::kernel::Kernel;
use crate::mask::Mask;
use crate::program::{Channel, ChannelId, Program, ProgramId, Step};
use crate::report::GroupStats;
use crate::task::{SCHED_NORMAL, Traits};

/// A workload and its parameters, each with a default; `NAME[:KEY=VALUE,...]` on the command line.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "workload", rename_all = "lowercase")]
pub enum Workload {
    Chaos(chaos::Chaos),
    Hogs(hogs::Hogs),
    Rr(rr::Rr),
}

/// Name of programs whose tasks never sleep, and get CPU time by weight.
pub const HOG: &str = "hog";

/// Each workload, its parameters with their defaults, and what it is.
pub const HELP: &str = "\
  hogs:nr=1,nice=0,policy=0,cpu=-1    tasks that never sleep; all on one CPU, if that is not -1
  rr:pairs=1,work=10                  request and response over loopback (netperf TCP_RR); us of work on each side";

impl FromStr for Workload {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> Result<Self> {
        let (name, parameters) = text.split_once(':').unwrap_or((text, ""));
        let mut map = Map::from_iter([("workload".to_string(), Value::from(name))]);
        for pair in parameters.split(',').filter(|pair| !pair.is_empty()) {
            let (key, value) = pair.split_once('=').with_context(|| format!("'{pair}' is not KEY=VALUE"))?;
            // Numbers and booleans as such, the rest as text.
            map.insert(key.into(), serde_json::from_str(value).unwrap_or_else(|_| value.into()));
        }
        serde_json::from_value(Value::Object(map)).with_context(|| format!("workload '{text}'"))
    }
}

impl Workload {
    /// Adds its tasks, which start within a millisecond of `at`.
    pub fn add(&self, kernel: &mut Kernel, at: u64) -> Result<()> {
        let mut builder = Builder::new(kernel, at);
        match self {
            Self::Chaos(chaos) => chaos.add(&mut builder),
            Self::Hogs(hogs) => hogs.add(&mut builder),
            Self::Rr(rr) => rr.add(&mut builder),
        }
    }
}

/// Puts a workload's parts into a kernel.
pub struct Builder<'a> {
    kernel: &'a mut Kernel,
    at: u64,
    spawned: usize,
}

impl<'a> Builder<'a> {
    pub fn new(kernel: &'a mut Kernel, at: u64) -> Self {
        Self { kernel, at, spawned: 0 }
    }

    pub fn nr_cpus(&self) -> usize {
        self.kernel.cpus.len()
    }

    /// Statistics of their own, for tasks that belong together. `background` tasks are not reported.
    pub fn group(&mut self, name: &str, background: bool) -> usize {
        self.kernel.groups.push(GroupStats::new(name, background));
        self.kernel.groups.len() - 1
    }

    /// A program; `name` is what a trace calls its tasks.
    pub fn program(&mut self, group: usize, name: &str, steps: Vec<Step>) -> ProgramId {
        self.kernel.programs.push(Program { steps, group, name: name.into() });
        self.kernel.programs.len() - 1
    }

    pub fn channel(&mut self, capacity: usize, sync: bool) -> ChannelId {
        self.kernel.channels.push(Channel::new(capacity, sync));
        self.kernel.channels.len() - 1
    }

    /// An ordinary task's.
    pub fn traits(&self) -> Traits {
        Traits {
            allowed: Mask::first(self.nr_cpus()),
            nice: 0,
            policy: SCHED_NORMAL,
            kthread: false,
            loader: false,
            working_set: crate::costs::WORKING_SET_LINES,
        }
    }

    /// A task, asleep on a CPU that it may use, until about when the workload starts.
    pub fn task(&mut self, program: ProgramId, traits: Traits) -> TaskId {
        let cpus: Vec<_> = traits.allowed.iter().collect();
        let cpu = cpus[self.spawned % cpus.len()];
        self.spawned += 1;
        let task = self.kernel.spawn(program, traits, cpu);
        let at = self.at + self.kernel.rng.u64(..crate::time::MSEC);
        self.kernel.tasks[task].started_at = at;
        self.kernel.start(task, at);
        task
    }
}

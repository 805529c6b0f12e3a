// SPDX-License-Identifier: GPL-2.0-only
//! Anything: tasks of all kinds together, as fuzz.rs draws them. Not on the command line.

use anyhow::{Result, ensure};
use serde::{Deserialize, Serialize};
use strum::IntoStaticStr;

use super::Builder;
use crate::cgroup::CgroupId;
use crate::mask::Mask;
use crate::program::{Dist, Step};
use crate::task::Traits;
use crate::time::USEC;

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Chaos {
    pub tasks: Vec<ChaosTask>,
}

/// Tasks bear its name; that of hogs is [`HOG`](super::HOG).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, IntoStaticStr)]
#[serde(rename_all = "lowercase")]
#[strum(serialize_all = "lowercase")]
pub enum Kind {
    /// Never sleeps.
    Hog,
    /// Runs, sleeps.
    Sleeper,
    /// Runs, yields.
    Yielder,
    /// Runs with migration disabled, sleeps.
    Pinned,
    /// Runs, has children that run and exit, waits for them.
    Forker,
    /// Two tasks that wake each other in turn.
    Pair,
    /// One task that wakes four at once.
    Fan,
    /// A kernel thread.
    Kthread,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ChaosTask {
    pub kind: Kind,
    /// Means.
    pub run_us: u64,
    pub sleep_us: u64,
    pub nice: i32,
    pub policy: u32,
    /// Where it may run; CPUs that the machine lacks do not count, and none is all.
    pub allowed: Mask,
    /// Where it is; modulo the number of cgroups.
    #[serde(default)]
    pub cgroup: CgroupId,
}

impl Chaos {
    pub fn add(&self, builder: &mut Builder<'_>) -> Result<()> {
        let group = builder.group("chaos", false);
        for task in &self.tasks {
            ensure!((-20..=19).contains(&task.nice), "nice {} is not in -20..19", task.nice);
            task.add(builder, group);
        }
        Ok(())
    }
}

impl ChaosTask {
    fn add(&self, builder: &mut Builder<'_>, group: usize) {
        let all = builder.traits().allowed;
        let allowed = Some(self.allowed.and(&all)).filter(|mask| !mask.is_empty()).unwrap_or(all);
        let traits = Traits {
            allowed,
            nice: self.nice,
            policy: self.policy,
            kthread: self.kind == Kind::Kthread,
            cgroup: if self.kind == Kind::Kthread { 0 } else { self.cgroup % builder.nr_cgroups() },
            ..builder.traits()
        };
        let run = Step::Run(Dist::Exp(self.run_us * USEC));
        let sleep = Step::Sleep(Dist::Exp(self.sleep_us * USEC));
        let again = Step::Jump(0);
        let steps = match self.kind {
            Kind::Hog => vec![Step::Run(Dist::Fixed(1000 * USEC)), again],
            Kind::Sleeper | Kind::Kthread => vec![Step::Begin, run, Step::End, sleep, again],
            Kind::Yielder => vec![run, Step::Yield, again],
            Kind::Pinned => vec![Step::RunPinned(Dist::Exp(self.run_us * USEC)), sleep, again],
            Kind::Forker => {
                let child = builder.program(group, "child", vec![run, sleep, run, Step::Exit]);
                vec![run, Step::Fork(child), Step::Fork(child), Step::Wait, sleep, again]
            }
            Kind::Pair => {
                let (there, back) = (builder.channel(1, true), builder.channel(1, true));
                let second = vec![Step::Recv(there), run, Step::Send(back), again];
                let second = builder.program(group, "second", second);
                builder.task(second, traits.clone());
                vec![Step::Begin, run, Step::Send(there), Step::Recv(back), Step::End, again]
            }
            Kind::Fan => {
                let mut steps = vec![run];
                for _ in 0..4 {
                    let channel = builder.channel(2, false);
                    let worker = builder.program(group, "worker", vec![Step::Recv(channel), run, again]);
                    builder.task(worker, traits.clone());
                    steps.push(Step::Send(channel));
                }
                steps.extend([sleep, again]);
                steps
            }
        };
        let program = builder.program(group, self.kind.into(), steps);
        builder.task(program, traits);
    }
}

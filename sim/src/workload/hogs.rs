// SPDX-License-Identifier: GPL-2.0-only
//! Tasks that never sleep; and equal tasks that run and sleep alternately, as interactive ones.

use anyhow::{Result, ensure};
use serde::{Deserialize, Serialize};

use super::Builder;
use crate::mask::Mask;
use crate::program::{Dist, Step};
use crate::time::{MSEC, USEC};

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Hogs {
    pub nr: usize,
    pub nice: i32,
    /// SCHED_*: 0 normal, 3 batch, 5 idle
    pub policy: u32,
    pub cpu: i32,
}

impl Default for Hogs {
    fn default() -> Self {
        Self { nr: 1, nice: 0, policy: 0, cpu: -1 }
    }
}

impl Hogs {
    pub fn add(&self, builder: &mut Builder<'_>) -> Result<()> {
        ensure!((-20..=19).contains(&self.nice), "nice {} is not in -20..19", self.nice);
        ensure!(self.cpu < builder.nr_cpus() as i32, "there is no CPU {}", self.cpu);
        let group = builder.group("hogs", false);
        // A unit of work is a millisecond of a CPU of capacity 1024.
        let steps = vec![Step::Begin, Step::Run(Dist::Fixed(MSEC)), Step::End, Step::Jump(0)];
        let program = builder.program(group, super::HOG, steps);
        for _ in 0..self.nr {
            let mut traits = builder.traits();
            (traits.nice, traits.policy) = (self.nice, self.policy);
            if let Ok(cpu) = usize::try_from(self.cpu) {
                traits.allowed = Mask::only(cpu);
            }
            builder.task(program, traits);
        }
        Ok(())
    }
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Sleepers {
    pub nr: usize,
    pub run: u64,
    pub sleep: u64,
}

impl Default for Sleepers {
    fn default() -> Self {
        Self { nr: 30, run: 500, sleep: 20_000 }
    }
}

impl Sleepers {
    pub fn add(&self, builder: &mut Builder<'_>) -> Result<()> {
        let group = builder.group("sleepers", false);
        // A unit of work is one run.
        let (sleep, run) = (Dist::Fixed(self.sleep * USEC), Dist::Fixed(self.run * USEC));
        let steps = vec![Step::Sleep(sleep), Step::BeginDue, Step::Run(run), Step::End, Step::Jump(0)];
        let program = builder.program(group, "sleeper", steps);
        builder.tasks(program, self.nr);
        Ok(())
    }
}

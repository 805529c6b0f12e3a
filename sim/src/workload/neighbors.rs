// SPDX-License-Identifier: GPL-2.0-only
//! Tasks that a CPU-bound task or a frame-based program finds on its CPU: a loop that forks and
//! waits, a pool whose members work one at a time, and the frames themselves.
//!
//! ```text
//! forkloops   parent: Fork -> Wait -> ...            child: Run -> Exit       one of both is runnable
//! pool        member i: Recv i -> Run -> Send i + 1 -> ...                    one member is runnable
//! frames      NextFrame -> Run -> ...                a unit of work lasts from the timer to the end
//! ```

use anyhow::{Result, ensure};
use serde::{Deserialize, Serialize};

use super::Builder;
use crate::mask::Mask;
use crate::program::{Dist, ProgramId, Step};
use crate::task::Traits;
use crate::time::USEC;

/// Return the traits of tasks with this nice value; `cpu` is the only CPU, -1 for any CPU.
fn traits(builder: &Builder<'_>, nice: i32, cpu: i32) -> Result<Traits> {
    ensure!((-20..=19).contains(&nice), "nice {nice} is not in -20..19");
    ensure!(cpu < builder.nr_cpus() as i32, "there is no CPU {cpu}");
    let allowed = usize::try_from(cpu).map_or(builder.traits().allowed, Mask::only);
    Ok(Traits { nice, allowed, ..builder.traits() })
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ForkLoops {
    pub nr: usize,
    pub run: u64,
    pub nice: i32,
    pub cpu: i32,
}

impl Default for ForkLoops {
    fn default() -> Self {
        Self { nr: 1, run: 2000, nice: 0, cpu: -1 }
    }
}

impl ForkLoops {
    pub fn add(&self, builder: &mut Builder<'_>) -> Result<()> {
        let traits = traits(builder, self.nice, self.cpu)?;
        let group = builder.group("forkloops", false);
        let program = fork_loop(builder, group, Dist::About(self.run * USEC));
        for _ in 0..self.nr {
            builder.task(program, traits.clone());
        }
        Ok(())
    }
}

/// Return the program of a task that forks a child, waits until it exits, and forks the next.
pub fn fork_loop(builder: &mut Builder<'_>, group: usize, run: Dist) -> ProgramId {
    let child = builder.program(group, "child", vec![Step::Run(run), Step::Exit]);
    // A unit of work is a child.
    let steps = vec![Step::Begin, Step::Fork(child), Step::Wait, Step::End, Step::Jump(0)];
    builder.program(group, "forkloop", steps)
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Pool {
    pub nr: usize,
    /// Work of a member before it wakes the next one, us.
    pub run: u64,
    pub nice: i32,
    pub cpu: i32,
}

impl Default for Pool {
    fn default() -> Self {
        Self { nr: 8, run: 2000, nice: 0, cpu: -1 }
    }
}

impl Pool {
    pub fn add(&self, builder: &mut Builder<'_>) -> Result<()> {
        ensure!((2..=1000).contains(&self.nr), "a pool of {} is not in 2..1000", self.nr);
        let traits = traits(builder, self.nice, self.cpu)?;
        let group = builder.group("pool", false);
        add_pool(builder, group, self.nr, Dist::About(self.run * USEC), &traits);
        Ok(())
    }
}

/// Add `nr` tasks of which one works at a time. It wakes the task that has slept longest, as by a
/// futex, and waits.
pub fn add_pool(builder: &mut Builder<'_>, group: usize, nr: usize, run: Dist, traits: &Traits) {
    let own: Vec<_> = (0..nr).map(|_| builder.channel(1, false)).collect();
    for member in 0..nr {
        // A unit of work is one run. The first member begins, without a message.
        let (wait, wake) = (Step::Recv(own[member]), Step::Send(own[(member + 1) % nr]));
        let work = [Step::Begin, Step::Run(run), Step::End, wake, wait, Step::Jump(0)];
        let steps = match member {
            0 => work.to_vec(),
            _ => [&[wait][..], &work[..5], &[Step::Jump(1)]].concat(),
        };
        let program = builder.program(group, "member", steps);
        builder.task(program, traits.clone());
    }
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Frames {
    pub nr: usize,
    pub run: u64,
    pub period: u64,
    pub nice: i32,
    pub cpu: i32,
}

impl Default for Frames {
    fn default() -> Self {
        Self { nr: 1, run: 7000, period: 16_600, nice: 0, cpu: -1 }
    }
}

impl Frames {
    pub fn add(&self, builder: &mut Builder<'_>) -> Result<()> {
        ensure!(self.period > 0, "frames without a period");
        let traits = traits(builder, self.nice, self.cpu)?;
        let group = builder.group("frames", false);
        // A unit of work is a frame. If its latency exceeds the period, it is late, and the next
        // one is dropped.
        let (period, run) = (Step::NextFrame(self.period * USEC), Step::Run(Dist::Fixed(self.run * USEC)));
        let steps = vec![period, Step::BeginDue, run, Step::End, Step::Jump(0)];
        let program = builder.program(group, "frames", steps);
        for _ in 0..self.nr {
            builder.task(program, traits.clone());
        }
        Ok(())
    }
}

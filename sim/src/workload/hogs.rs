// SPDX-License-Identifier: GPL-2.0-only
//! Tasks that never sleep, equal tasks that run and sleep alternately, as interactive ones, and what
//! both find on their CPUs: a loop that forks and waits, a pool whose members work one at a time, and
//! frames.
//!
//! ```text
//! forkloops   parent: Fork -> Wait -> ...            child: Run -> Exit       one of both is runnable
//! pool        member i: Recv i -> Run -> Send i + 1 -> ...                    one member is runnable
//! frames      NextFrame -> Run -> ...                a unit of work lasts from the timer to the end
//! ```

use anyhow::{Result, ensure};

use super::Builder;
use crate::mask::Mask;
use crate::program::{Dist, ProgramId, Step};
use crate::task::Traits;
use crate::time::{MSEC, USEC};

/// Return the traits of tasks with this nice value; `cpu` is the only CPU, -1 for any CPU.
fn traits(builder: &Builder<'_>, nice: i32, cpu: i32) -> Result<Traits> {
    ensure!((-20..=19).contains(&nice), "nice {nice} is not in -20..19");
    ensure!(cpu < builder.nr_cpus() as i32, "there is no CPU {cpu}");
    let allowed = usize::try_from(cpu).map_or(builder.traits().allowed, Mask::only);
    Ok(Traits { nice, allowed, ..builder.traits() })
}

parameters! {
    pub struct Hogs {
        pub nr: usize = 1,
        pub nice: i32 = 0,
        /// SCHED_*: 0 normal, 3 batch, 5 idle
        pub policy: u32 = 0,
        pub cpu: i32 = -1,
    }
}

impl Hogs {
    pub fn add(&self, builder: &mut Builder<'_>) -> Result<()> {
        let traits = Traits { policy: self.policy, ..traits(builder, self.nice, self.cpu)? };
        let group = builder.group("hogs", false);
        // A unit of work is a millisecond of a CPU of capacity 1024.
        let steps = vec![Step::Begin, Step::Run(Dist::Fixed(MSEC)), Step::End, Step::Jump(0)];
        let program = builder.program(group, super::HOG, steps);
        builder.tasks(program, self.nr, &traits);
        Ok(())
    }
}

parameters! {
    pub struct Sleepers {
        pub nr: usize = 30,
        pub run: u64 = 500,
        pub sleep: u64 = 20_000,
    }
}

impl Sleepers {
    pub fn add(&self, builder: &mut Builder<'_>) -> Result<()> {
        let group = builder.group("sleepers", false);
        // A unit of work is one run.
        let (sleep, run) = (Dist::Fixed(self.sleep * USEC), Dist::Fixed(self.run * USEC));
        let steps = vec![Step::Sleep(sleep), Step::BeginDue, Step::Run(run), Step::End, Step::Jump(0)];
        let program = builder.program(group, "sleeper", steps);
        builder.tasks(program, self.nr, &builder.traits());
        Ok(())
    }
}

parameters! {
    pub struct ForkLoops {
        pub nr: usize = 1,
        pub run: u64 = 2000,
        pub nice: i32 = 0,
        pub cpu: i32 = -1,
    }
}

impl ForkLoops {
    pub fn add(&self, builder: &mut Builder<'_>) -> Result<()> {
        let traits = traits(builder, self.nice, self.cpu)?;
        let group = builder.group("forkloops", false);
        let program = fork_loop(builder, group, Dist::About(self.run * USEC));
        builder.tasks(program, self.nr, &traits);
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

parameters! {
    pub struct Pool {
        pub nr: usize = 8,
        /// Work of a member before it wakes the next one, us.
        pub run: u64 = 2000,
        pub nice: i32 = 0,
        pub cpu: i32 = -1,
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

parameters! {
    pub struct Frames {
        pub nr: usize = 1,
        pub run: u64 = 7000,
        pub period: u64 = 16_600,
        pub nice: i32 = 0,
        pub cpu: i32 = -1,
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
        builder.tasks(program, self.nr, &traits);
        Ok(())
    }
}

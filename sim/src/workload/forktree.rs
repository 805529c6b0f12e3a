// SPDX-License-Identifier: GPL-2.0-only
//! A parallel build: a make that keeps so many jobs busy, each of which is a tree of short processes. A unit of work is
//! a job.
//!
//! ```text
//! make: take a token (the jobserver's pipe) -> Fork a job -> ...
//!   sh: Fork cc, Wait for it, and so on `fanout` times; then give the token back and exit
//!     cc: Fork cc1, Wait for it, Fork as, Wait for it ... (`fanout` of them)
//!       cc1, as: work, exit                               (the leaves, `depth` levels below the job)
//! ```

use anyhow::{Result, ensure};
use serde::{Deserialize, Serialize};

use super::Builder;
use crate::program::{ChannelId, Dist, ProgramId, Step};
use crate::time::USEC;

/// What make, and those that only start others, work before each child, % of a leaf's work.
const PARENT_WORK: u64 = 2;

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ForkTree {
    /// At a time; 0: as many as CPUs.
    pub jobs: usize,
    /// us of work of a leaf, on average: many are short and a few long.
    pub work: u64,
    /// Levels below a job; 0: a job is a leaf.
    pub depth: u32,
    /// Children of each but the leaves.
    pub fanout: u32,
}

impl Default for ForkTree {
    fn default() -> Self {
        Self { jobs: 0, work: 5000, depth: 2, fanout: 3 }
    }
}

impl ForkTree {
    pub fn add(&self, builder: &mut Builder<'_>) -> Result<()> {
        ensure!(self.jobs <= 10_000, "{} jobs are not in 0..10000", self.jobs);
        ensure!((10..=10_000_000).contains(&self.work), "work of {} us is not in 10..10000000", self.work);
        ensure!(self.depth <= 8, "depth {} is not in 0..8", self.depth);
        ensure!((1..=100).contains(&self.fanout), "fanout {} is not in 1..100", self.fanout);
        let jobs = if self.jobs == 0 { builder.nr_cpus() } else { self.jobs };
        let group = builder.group("forktree", false);
        let tokens = builder.channel(jobs, true);
        let job = self.tree(builder, group, self.depth, tokens);
        let make = vec![
            Step::Send(tokens),
            Step::Loop(0, jobs as u32 - 1),
            Step::Recv(tokens),
            self.parent_work(),
            Step::Fork(job),
            Step::Jump(2),
        ];
        let make = builder.program(group, "make", make);
        let traits = builder.traits();
        builder.task(make, traits);
        Ok(())
    }

    /// The program of a task with so many levels below it.
    fn tree(&self, builder: &mut Builder<'_>, group: usize, levels: u32, tokens: ChannelId) -> ProgramId {
        let mut steps = vec![Step::BeginDue];
        if levels == 0 {
            steps.push(Step::Run(Dist::Exp(self.work * USEC)));
        } else {
            let child = self.tree(builder, group, levels - 1, tokens);
            steps.extend([self.parent_work(), Step::Fork(child), Step::Wait, Step::Loop(1, self.fanout - 1)]);
        }
        if levels == self.depth {
            steps.extend([Step::End, Step::Send(tokens)]);
        }
        steps.push(Step::Exit);
        let name = match levels {
            _ if levels == self.depth => "job",
            0 => "leaf",
            _ => "node",
        };
        builder.program(group, name, steps)
    }

    fn parent_work(&self) -> Step {
        Step::Run(Dist::Exp(self.work * USEC * PARENT_WORK / 100))
    }
}

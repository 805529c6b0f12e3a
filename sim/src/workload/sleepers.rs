// SPDX-License-Identifier: GPL-2.0-only
//! Tasks that run for a while and sleep for a while, all alike, as those of an interface. A unit of work is one run.

use anyhow::Result;
use serde::{Deserialize, Serialize};

use super::Builder;
use crate::program::{Dist, Step};
use crate::time::USEC;

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Sleepers {
    pub nr: usize,
    /// us of work between two sleeps.
    pub run: u64,
    /// us.
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
        let (sleep, run) = (Dist::Fixed(self.sleep * USEC), Dist::Fixed(self.run * USEC));
        let steps = vec![Step::Sleep(sleep), Step::BeginDue, Step::Run(run), Step::End, Step::Jump(0)];
        let program = builder.program(group, "sleeper", steps);
        for _ in 0..self.nr {
            let traits = builder.traits();
            builder.task(program, traits);
        }
        Ok(())
    }
}

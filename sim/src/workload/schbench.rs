// SPDX-License-Identifier: GPL-2.0-only
//! schbench, as Chris Mason's of 2016 to 2022: message threads wake their workers, which spin for a while and wait for
//! the next message. What it is for is the workers' wakeup latency: theirs is a report of its own. A unit of work is a
//! worker's, from its wakeup to the end of its spinning.
//!
//! ```text
//! worker:   spin c us -> tell the message thread -> wait for it
//! message thread:   wake all workers that wait -> wait until one does -> sleep s..1.25*s us
//! ```

use anyhow::{Result, ensure};
use serde::{Deserialize, Serialize};

use super::Builder;
use crate::program::{Dist, Step};
use crate::time::USEC;

/// The names are those of schbench's options.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Schbench {
    /// Message threads.
    pub m: usize,
    /// Workers of each.
    pub t: usize,
    /// us that a message thread sleeps before it answers, and up to a quarter more.
    pub s: u64,
    /// us that a worker spins, by the clock: schbench counts the time in which others have its CPU.
    pub c: u64,
}

impl Default for Schbench {
    fn default() -> Self {
        Self { m: 2, t: 16, s: 10_000, c: 15_000 }
    }
}

impl Schbench {
    pub fn add(&self, builder: &mut Builder<'_>) -> Result<()> {
        ensure!((1..=1000).contains(&self.m), "{} message threads are not in 1..1000", self.m);
        ensure!((1..=1000).contains(&self.t), "{} workers are not in 1..1000", self.t);
        ensure!(self.s <= 10_000_000, "a sleep of {} us is not in 0..10000000", self.s);
        ensure!((1..=10_000_000).contains(&self.c), "work of {} us is not in 1..10000000", self.c);
        let workers = builder.group("schbench", false);
        let messages = builder.group("schbench-message", false);
        for _ in 0..self.m {
            // Futexes: that somebody waits is no more news when it is known already.
            let (news, go) = (builder.channel(1, false), builder.channel(1, false));
            let mut message = vec![Step::Broadcast(go), Step::Recv(news)];
            if self.s > 0 {
                message.push(Step::Sleep(Dist::Uniform(self.s * USEC, self.s * USEC * 5 / 4)));
            }
            message.push(Step::Jump(0));
            let message = builder.program(messages, "message", message);
            let worker = vec![
                Step::BeginDue,
                Step::Spin(self.c * USEC),
                Step::End,
                Step::Join(go),
                Step::Post(news),
                Step::Await(go),
                Step::Jump(0),
            ];
            let worker = builder.program(workers, "worker", worker);
            builder.tasks(message, 1);
            builder.tasks(worker, self.t);
        }
        Ok(())
    }
}

// SPDX-License-Identifier: GPL-2.0-only
//! schbench, as Chris Mason's of 2016 to 2022: message threads wake their workers, which spin for a
//! while and wait for the next message. Its main result is the wakeup latency of workers, which has
//! a separate report. A unit of work lasts from a worker's wakeup to the end of its spinning.
//!
//! ```text
//! worker:   spin c us -> notify the message thread -> wait for it
//! message thread:   wake all waiting workers -> wait until one waits -> sleep s..1.25*s us
//! ```

use anyhow::{Result, ensure};

use super::Builder;
use crate::program::{Dist, Step};
use crate::time::USEC;

parameters! {
    pub struct Schbench {
        pub m: usize = 2,
        pub t: usize = 16,
        /// Sleep of a message thread before it answers, us, plus up to a quarter.
        pub s: u64 = 10_000,
        /// Spin time of a worker in us, by the clock: as in schbench, it includes other tasks' time.
        pub c: u64 = 15_000,
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
            // As with futexes, a second notification has no effect while one is pending.
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
            builder.tasks(message, 1, &builder.traits());
            builder.tasks(worker, self.t, &builder.traits());
        }
        Ok(())
    }
}

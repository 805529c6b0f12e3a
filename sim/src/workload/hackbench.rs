// SPDX-License-Identifier: GPL-2.0-only
//! hackbench as in rt-tests: groups of senders, each of which writes to all receivers of its group
//! in order, so that hundreds of tasks wake each other. A unit of work is a run: it begins when all
//! tasks exist and ends when all have exited, as hackbench measures. Then the next run begins.
//!
//! ```text
//! main: Fork all -> all are ready -> Begin -> go -> Wait for all -> End
//! sender: ready, go, loops * (message to receiver 1, 2, ...), Exit      receiver: ready, go, fds * loops * Recv, Exit
//! ```

use anyhow::{Result, ensure};

use super::Builder;
use crate::program::{Dist, Step};

/// Messages of 100 bytes in a pipe of 64 KiB: 40 per page, because no write is split over two
/// pages. Room is freed page by page.
const PIPE_MESSAGES: usize = 640;
const PIPE_LOW: usize = 600;

/// Messages in a Unix socket's send buffer of net.core.wmem_default, 212992 bytes: each takes 768.
/// A sender is woken when three quarters of the buffer are free (unix_writable()).
const SOCKET_MESSAGES: usize = 277;
const SOCKET_LOW: usize = 69;

/// Additional ns per side for a message by socket compared with a pipe: sk_buff and protocol.
const SOCKET_WORK: u64 = 500;

parameters! {
    pub struct Hackbench {
        pub groups: usize = 1,
        /// Number of senders, and of receivers, per group.
        pub fds: usize = 20,
        /// Messages from each sender to each receiver.
        pub loops: u32 = 100,
        /// True: pipes; false: Unix sockets.
        pub pipe: bool = true,
    }
}

impl Hackbench {
    pub fn add(&self, builder: &mut Builder<'_>) -> Result<()> {
        ensure!((1..=1000).contains(&self.groups), "{} groups are not in 1..1000", self.groups);
        ensure!((1..=1000).contains(&self.fds), "fds {} is not in 1..1000", self.fds);
        ensure!((1..=1_000_000).contains(&self.loops), "{} loops are not in 1..1000000", self.loops);
        let group = builder.group("hackbench", false);
        let nr_tasks = 2 * self.fds * self.groups;
        let (ready, go) = (builder.channel(nr_tasks, true), builder.channel(nr_tasks, true));
        let work = (!self.pipe).then_some(Step::Run(Dist::Fixed(SOCKET_WORK)));

        let mut main = Vec::new();
        for _ in 0..self.groups {
            let mut sender = vec![Step::Send(ready), Step::Recv(go)];
            for _ in 0..self.fds {
                let (capacity, low) = if self.pipe { (PIPE_MESSAGES, PIPE_LOW) } else { (SOCKET_MESSAGES, SOCKET_LOW) };
                let fd = builder.pipe(capacity, low);
                sender.extend(work);
                sender.push(Step::Send(fd));
                let mut receiver = vec![Step::Send(ready), Step::Recv(go), Step::Recv(fd)];
                receiver.extend(work);
                receiver.extend([Step::Loop(2, self.fds as u32 * self.loops - 1), Step::Exit]);
                main.push(Step::Fork(builder.program(group, "receiver", receiver)));
            }
            sender.extend([Step::Loop(2, self.loops - 1), Step::Exit]);
            main.push(Step::Fork(builder.program(group, "sender", sender)));
            main.push(Step::Loop(main.len() - 1, self.fds as u32 - 1));
        }
        for step in [Step::Recv(ready), Step::Begin, Step::Send(go)] {
            main.push(step);
            if step != Step::Begin {
                main.push(Step::Loop(main.len() - 1, nr_tasks as u32 - 1));
            }
        }
        main.extend([Step::Wait, Step::End, Step::Jump(0)]);
        let main = builder.program(group, "hackbench", main);
        builder.tasks(main, 1, &builder.traits());
        Ok(())
    }
}

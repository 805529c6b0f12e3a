// SPDX-License-Identifier: GPL-2.0-only
//! Clients over loopback TCP. Each has a server.
//!
//! - rr: request and response, as netperf's TCP_RR. A client sends and waits, its server waits and
//!   answers. A unit of work is a round trip.
//! - tbench, as dbench's: clients with a file server's load. A unit of work is an operation: one or
//!   more round trips, with work on both sides that depends on the kind.

use anyhow::{Result, ensure};
use serde::{Deserialize, Serialize};

use super::Builder;
use crate::program::{ChannelId, Dist, Step};
use crate::time::USEC;

parameters! {
    pub struct Rr {
        pub pairs: usize = 1,
        /// Work per side and round trip, us: TCP over loopback and netperf.
        pub work: u64 = 10,
    }
}

impl Rr {
    pub fn add(&self, builder: &mut Builder<'_>) -> Result<()> {
        let group = builder.group("rr", false);
        let work = Step::Run(Dist::About(self.work * USEC));
        for _ in 0..self.pairs {
            add_pair(builder, group, |request, response| {
                let client =
                    vec![Step::Begin, work, Step::Send(request), Step::Recv(response), Step::End, Step::Jump(0)];
                (client, vec![Step::Recv(request), work, Step::Send(response), Step::Jump(0)])
            });
        }
        Ok(())
    }
}

/// Add a client and its server. `steps` creates their programs.
fn add_pair(
    builder: &mut Builder<'_>,
    group: usize,
    steps: impl FnOnce(ChannelId, ChannelId) -> (Vec<Step>, Vec<Step>),
) {
    let (request, response) = (builder.channel(1, true), builder.channel(1, true));
    let (client, server) = steps(request, response);
    let client = builder.program(group, "client", client);
    let server = builder.program(group, "server", server);
    builder.tasks(client, 1, &builder.traits());
    builder.tasks(server, 1, &builder.traits());
}

/// A kind of operation: its number among [`OPERATIONS`], work of client and server per round trip
/// in us (system calls, TCP, copies at some GB/s), and number of round trips.
struct Kind {
    count: usize,
    client: u64,
    server: u64,
    trips: usize,
}

const fn kind(count: usize, client: u64, server: u64, trips: usize) -> Kind {
    Kind { count, client, server, trips }
}

/// Shares by the reports of dbench's client.txt. Shares below 1 % are rounded up.
static KINDS: [Kind; 14] = [
    kind(17, 6, 9, 1),  // NTCreateX
    kind(13, 5, 6, 1),  // Close
    kind(1, 7, 12, 1),  // Rename
    kind(4, 6, 10, 1),  // Unlink
    kind(16, 5, 7, 1),  // Qpathinfo
    kind(3, 5, 5, 1),   // Qfileinfo
    kind(3, 5, 5, 1),   // Qfsinfo
    kind(2, 6, 6, 1),   // Sfileinfo
    kind(6, 8, 12, 2),  // Find: first, next
    kind(9, 18, 14, 2), // WriteX: up to 64 KiB, in two parts
    kind(27, 9, 12, 1), // ReadX: a few KiB
    kind(1, 5, 5, 1),   // LockX
    kind(1, 5, 5, 1),   // UnlockX
    kind(1, 5, 30, 3),  // Flush: of each open file
];

/// Length of the sequence of operations, which repeats.
const OPERATIONS: usize = 104;

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Tbench {
    /// Number of clients, and of servers; 0: half the number of CPUs.
    pub clients: usize,
}

impl Tbench {
    pub fn add(&self, builder: &mut Builder<'_>) -> Result<()> {
        ensure!(self.clients <= 10_000, "{} clients are not in 0..10000", self.clients);
        let clients = if self.clients == 0 { builder.nr_cpus().div_ceil(2) } else { self.clients };
        let group = builder.group("tbench", false);
        let operations = operations();
        for _ in 0..clients {
            add_pair(builder, group, |request, response| steps(&operations, request, response));
        }
        Ok(())
    }
}

/// Return a sequence with each of [`KINDS`] `count` times, evenly spread.
fn operations() -> Vec<&'static Kind> {
    // Each kind gains its count per round. The kind with most credit pays for a turn.
    let mut credit = [0; KINDS.len()];
    (0..OPERATIONS)
        .map(|_| {
            credit.iter_mut().zip(&KINDS).for_each(|(credit, kind)| *credit += kind.count as i64);
            let next = (0..KINDS.len()).rev().max_by_key(|&i| credit[i]).unwrap_or(0);
            credit[next] -= OPERATIONS as i64;
            &KINDS[next]
        })
        .collect()
}

fn steps(operations: &[&Kind], request: ChannelId, response: ChannelId) -> (Vec<Step>, Vec<Step>) {
    let (mut client, mut server) = (Vec::new(), Vec::new());
    for kind in operations {
        client.push(Step::Begin);
        for _ in 0..kind.trips {
            client.extend([Step::Run(Dist::About(kind.client * USEC)), Step::Send(request), Step::Recv(response)]);
            server.extend([Step::Recv(request), Step::Run(Dist::About(kind.server * USEC)), Step::Send(response)]);
        }
        client.push(Step::End);
    }
    client.push(Step::Jump(0));
    server.push(Step::Jump(0));
    (client, server)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mix_is_as_it_says() {
        let operations = operations();
        for kind in &KINDS {
            let nr = operations.iter().filter(|other| std::ptr::eq(**other, kind)).count();
            assert_eq!(nr, kind.count);
        }
        // Reads are spread: no half contains all of them.
        let reads = operations[..OPERATIONS / 2].iter().filter(|other| std::ptr::eq(**other, &KINDS[10])).count();
        assert!((12..=15).contains(&reads), "{reads} reads in the first half");
    }
}

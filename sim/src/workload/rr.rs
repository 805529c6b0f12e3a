// SPDX-License-Identifier: GPL-2.0-only
//! Request and response, as netperf's TCP_RR over loopback: pairs of a client, which sends and waits, and a server,
//! which waits and answers. A unit of work is a round trip.

use anyhow::Result;
use serde::{Deserialize, Serialize};

use super::Builder;
use crate::program::{Dist, Step};
use crate::time::USEC;

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Rr {
    pub pairs: usize,
    /// us of work on each side of a round trip: TCP over loopback and netperf itself.
    pub work: u64,
}

impl Default for Rr {
    fn default() -> Self {
        Self { pairs: 1, work: 10 }
    }
}

impl Rr {
    pub fn add(&self, builder: &mut Builder<'_>) -> Result<()> {
        let group = builder.group("rr", false);
        let work = Step::Run(Dist::About(self.work * USEC));
        for _ in 0..self.pairs {
            let (request, response) = (builder.channel(1, true), builder.channel(1, true));
            let client = vec![Step::Begin, work, Step::Send(request), Step::Recv(response), Step::End, Step::Jump(0)];
            let client = builder.program(group, "client", client);
            let server = vec![Step::Recv(request), work, Step::Send(response), Step::Jump(0)];
            let server = builder.program(group, "server", server);
            let traits = builder.traits();
            builder.task(client, traits.clone());
            builder.task(server, traits);
        }
        Ok(())
    }
}

// SPDX-License-Identifier: GPL-2.0-only
//! Statistics: the meaning of the counters, and their path from the BPF program to readers.
//!
//! ```text
//! cpu_ctxs[].stats --Snapshot::new()--> Snapshot (snapshot.rs: totals since start, by LLC)
//!                                         --since(), one reader a client--> Metrics (metrics.rs: the increase)
//!                                         --totals()--> Metrics, since the start: for the exporter
//!                --scx_stats socket (server.rs)--> Client (client.rs)
//!                                                    --> monitor() (monitor.rs): a table (table.rs) or JSON lines
//!                                                    --> the full-screen view (../top)
//! ```
//!
//! There is a file for each kind of figures: names, meanings and computation.

pub mod cgroups;
mod client;
pub mod column;
mod group;
mod metrics;
pub mod monitor;
mod numa;
mod search;
pub mod server;
mod snapshot;
pub mod table;
pub mod wake_cases;

use anyhow::Context;
use scx_stats::prelude::*;

pub use client::Client;
pub use group::Group;
pub use metrics::Metrics;
pub use numa::{Memory, Node};
pub use search::SearchCounts;
pub use server::{SOCKET, Server};
pub use snapshot::{About, Counters, Latencies, LlcSnapshot, SamplerSnapshot, Shared, Snapshot};
use wake_cases::WakeCase;

/// Request for the statistics since the start.
pub const TOTALS: &str = "totals";

/// Argument of that request: the number of cgroups to list, and its default.
pub const NR_CGROUPS: &str = "cgroups";
const DEFAULT_NR_CGROUPS: usize = 20;

/// Return the server's data: the increase (`top`), and the totals since the start (`totals`).
pub fn server_data() -> StatsServerData<(), Snapshot> {
    StatsServerData::new()
        .add_meta(metrics::flat_meta())
        .add_meta(Group::meta())
        .add_meta(cgroups::Cgroup::meta())
        .add_meta(Node::meta())
        .add_meta(WakeCase::meta())
        .add_ops("top", StatsOps { open: intervals(), close: None })
        .add_stats(TOTALS, totals())
}

/// Return a source of intervals for each client that connects.
fn intervals() -> Box<dyn StatsOpener<(), Snapshot>> {
    Box::new(|(req, res)| {
        req.send(())?;
        let mut prev = looked_up(res.recv()?);
        let read: Box<dyn StatsReader<(), Snapshot>> = Box::new(move |_args, (req, res)| {
            req.send(())?;
            let now = looked_up(res.recv()?);
            let metrics = now.since(&prev, now.at.saturating_sub(prev.at));
            prev = now;
            Ok(serde_json::to_value(&metrics)?)
        });
        Ok(read)
    })
}

fn totals() -> Box<dyn StatsReaderSend<(), Snapshot>> {
    Box::new(|args, (req, res)| {
        let nr_cgroups = match args.get(NR_CGROUPS) {
            Some(nr) => nr.parse().with_context(|| format!("{NR_CGROUPS}: not a number: {nr}"))?,
            None => DEFAULT_NR_CGROUPS,
        };
        req.send(())?;
        Ok(serde_json::to_value(looked_up(res.recv()?).totals(nr_cgroups))?)
    })
}

/// Add names and CPU times of cgroups. This runs in the server's thread, not in the loop that
/// publishes `nr_scan`, because it takes milliseconds if there are many.
fn looked_up(mut snapshot: Snapshot) -> Snapshot {
    snapshot.cgroups.look_up(cgroups::SYS_CGROUP.as_ref());
    snapshot
}

/// Return the increase of a counter. A counter that decreased was reset, and counts from 0.
fn rise(now: u64, prev: u64) -> u64 {
    now.checked_sub(prev).unwrap_or(now)
}

/// Return the percentage; 0 if both are 0.
fn percent(part: u64, whole: u64) -> f64 {
    100.0 * part as f64 / whole.max(1) as f64
}

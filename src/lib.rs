// SPDX-License-Identifier: GPL-2.0-only
//! scx_magpie, all but its `main`: a library, so that the simulator, which runs the BPF program's C natively on
//! machines that it makes up, tells it what the loader does, publishes what the loader does, and reports alike.
//!
//! ```text
//! Tunables, Layout --BpfConfig::new()--> constants and layouts of the C
//!                                       cpu_ctxs --Publisher::publish()--> llc_publisheds
//!                                       cpu_ctxs --Snapshot::new()-------> Metrics --encode()--> Prometheus
//!                                       processes <--> numa::Sampler
//! top: a client of the statistics' socket, full-screen
//! the loader alone: lifecycle, Scheduler (the skeleton), config, control, preflight, service, verifier_stats
//! ```

pub mod bpf_config;
pub mod bpf_intf;
pub mod bpf_skel;
pub mod cli;
pub mod config;
pub mod control;
pub mod energy;
pub mod exit;
pub mod export;
pub mod hotplug;
pub mod lifecycle;
pub mod logging;
pub mod manual;
pub mod nr_scan;
pub mod numa;
pub mod pelt;
pub mod preflight;
pub mod publisher;
pub mod scheduler;
pub mod service;
pub mod shared;
pub mod stats;
pub mod top;
pub mod topology;
pub mod tunables;
pub mod units;
pub mod verifier_stats;

/// The command's name, and where its log targets start: that of this crate.
pub const SCHEDULER_NAME: &str = "scx_magpie";

/// Version, commit and target of this build.
pub fn version() -> String {
    scx_utils::build_id::full_version(concat!(env!("CARGO_PKG_VERSION"), env!("MAGPIE_COMMIT")))
}

// SPDX-License-Identifier: GPL-2.0-only
//! scx_magpie except `main`. It is a library for the simulator, which runs the BPF program's C
//! natively on synthetic machines: it configures the program, publishes and reports with this code.
//! ```text
//! Tunables, Layout --BpfConfig::new()--> constants and layouts of the C
//!                                       cpu_ctxs --Publisher::publish()--> llc_publisheds
//!                                       cpu_ctxs --Snapshot::new()-------> Metrics --encode()--> Prometheus
//!                                       processes <--> numa::Sampler
//! top: a full-screen client of the statistics socket    record: a trace, by BPF programs of its own
//! the loader alone: lifecycle, Scheduler (the skeleton), config, control, preflight, service, verifier_stats
//! ```

pub mod bpf_config;
pub mod bpf_intf;
pub mod bpf_skel;
pub mod cgroup_mode;
pub mod cli;
pub mod config;
pub mod control;
pub mod core_sched;
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
pub mod record;
pub mod record_skel;
pub mod scheduler;
pub mod service;
pub mod shared;
pub mod stats;
pub mod top;
pub mod topology;
pub mod tunables;
pub mod units;
pub mod verifier_stats;

/// Name of the command, and the prefix of its log targets, which is the name of this crate.
pub const SCHEDULER_NAME: &str = "scx_magpie";

/// Return the version, commit and target of this build.
pub fn version() -> String {
    scx_utils::build_id::full_version(concat!(env!("CARGO_PKG_VERSION"), env!("MAGPIE_COMMIT")))
}

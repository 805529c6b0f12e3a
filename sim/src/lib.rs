// SPDX-License-Identifier: GPL-2.0-only
//! The scheduler's BPF code, compiled for the host, in a simulated kernel on simulated machines.
//!
//! ```text
//! main.rs, tests/         what to run: a Scenario (scenario.rs) by flags or by chance (fuzz.rs);
//!                           it makes a kernel, and the checks its observer
//!   report.rs, timeline.rs  the results
//!   checks/               invariants
//!   workload/             programs of tasks
//!   kernel/               behavior of the kernel: events, wakeups, schedule(), kfuncs
//!     task.rs, program.rs, cgroup.rs, dsq.rs    its objects
//!     trace.rs, stats.rs    its records
//!     native.rs             the BPF program
//!     fluid.rs              the service that its tasks should have
//!     machine.rs            its CPUs; costs.rs, cache.rs: costs of operations
//! growth.rs, experiments.rs  series of runs: with growing machines; with a feature off and on
//!   lines.rs                   and cache lines that move
//! interleave.rs           all orders of the accesses of two CPUs
//! ```
//!
//! A file imports only files below it.

pub mod cache;
pub mod cgroup;
pub mod checks;
pub mod costs;
pub mod dsq;
pub mod experiments;
pub mod fluid;
pub mod fuzz;
pub mod growth;
pub mod interleave;
pub mod kernel;
pub mod lines;
pub mod machine;
pub mod mask;
pub mod native;
pub mod program;
pub mod report;
pub mod scenario;
pub mod stats;
pub mod task;
pub mod time;
mod timeline;
pub mod trace;
pub mod workload;

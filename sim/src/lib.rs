// SPDX-License-Identifier: GPL-2.0-only
//! The scheduler's BPF code, compiled for the host, in a simulated kernel on simulated machines.
//!
//! ```text
//! main.rs, tests/         what to run: a Scenario (scenario.rs) by flags or by chance (fuzz.rs)
//!   workload/             programs of tasks (program.rs, task.rs)
//!   kernel.rs             events in time (time.rs), callbacks; wakeup.rs, sched.rs, exec.rs, faults.rs, dsq.rs
//!     native.rs           the BPF program; kfuncs.rs: what it asks
//!     machine.rs          its CPUs; costs.rs, cache.rs: what things cost there
//!   checks/               what must hold; report.rs, trace.rs: what came of it
//! growth.rs               what a callback costs as the machine grows; instructions.rs counts
//! ```

pub mod cache;
pub mod cgroup;
pub mod checks;
pub mod costs;
pub mod dsq;
pub mod exec;
pub mod experiments;
pub mod faults;
pub mod fuzz;
pub mod growth;
pub mod instructions;
pub mod kernel;
mod kfuncs;
pub mod machine;
pub mod mask;
pub mod native;
pub mod program;
pub mod report;
pub mod scenario;
pub mod sched;
pub mod task;
pub mod time;
pub mod timers;
pub mod trace;
pub mod wakeup;
pub mod workload;

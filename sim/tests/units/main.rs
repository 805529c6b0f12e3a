// SPDX-License-Identifier: GPL-2.0-only
//! What each file of `src/bpf` promises, by calls of its C functions: a file here for each there, of the same name.
//!
//! A test sets a machine up with a [`Rig`](rig::Rig), on which nothing happens but what it does itself.

mod affine;
mod balance;
mod bandwidth;
mod capacity;
mod cgroup;
mod first_turn;
mod fit;
mod handoff;
mod heat;
mod home;
mod idle;
mod latency;
mod layout;
mod misfit;
mod nr_scan;
mod overload;
mod pelt;
mod preempt;
mod rig;
mod scan;
mod sparse_map;
mod starve;
mod steal;
mod task;
mod task_util;
mod throttle;
mod vtime;
mod wake_cases;

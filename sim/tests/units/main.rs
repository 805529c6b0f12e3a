// SPDX-License-Identifier: GPL-2.0-only
//! What each file of `src/bpf` promises, by calls of its C functions: a file here for each there, of the same name.
//!
//! A test sets a machine up with a [`Rig`](rig::Rig), on which nothing happens but what it does itself.

mod hotplug;
mod rig;

mod core {
    mod bitmap;
    mod context;
    mod idle;
    mod pelt;
    mod task;
    mod topology;
}
mod order {
    mod deadline;
    mod preempt;
    mod queue;
}
mod run {
    mod pick;
    mod slice_timer;
    mod throttle;
    mod tickless;
}
mod search {
    mod latency;
    mod nr_scan;
    mod room;
    mod scan;
}
mod capacity {
    #[allow(clippy::module_inception)]
    mod capacity;
    mod cpufreq;
    mod fallback;
    mod misfit;
    mod task_util;
    mod wake_cases;
}
mod cgroup {
    mod autogroup;
    mod bandwidth;
    mod weight;
}
mod steal {
    mod balance;
    mod overload;
    mod pull;
    #[allow(clippy::module_inception)]
    mod steal;
}
mod numa {
    mod migrate;
    mod preferred;
}
mod wake {
    mod handoff;
    mod wake_affine;
}

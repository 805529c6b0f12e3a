// SPDX-License-Identifier: GPL-2.0-only
//! What each file of `src/bpf` promises, by calls of its C functions: a file here for each there, of the same name.
//!
//! A test sets a machine up with a [`Rig`](rig::Rig), on which nothing happens but what it does itself.

mod rig;

mod core {
    mod bitmap;
    mod context;
    mod hotplug;
    mod pelt;
    mod task;
    mod topology;
}
mod order {
    mod deadline;
    mod pick;
    mod preempt;
    mod queue;
    mod slice_timer;
    mod tickless;
}
mod search {
    mod idle;
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
    mod throttle;
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
    mod handoff;
    mod migrate;
    mod preferred;
    mod wake_affine;
}

// SPDX-License-Identifier: GPL-2.0-only
//! Flags change while the program runs, as `scx_magpie set` changes them: whatever they are and were, no invariant breaks.

use magpie_sim::kernel::Kernel;
use magpie_sim::scenario::parse_flags;
use magpie_sim::time::MSEC;
use magpie_sim::workload::{Builder, Workload};

/// Stealing stays on: what an idle CPU missed while it was off, it is offered once the LLC is searched again.
const SETS: [&str; 6] = [
    "--wake-affine off --handoff-us 0",
    "",
    "--steal llc --no-wakeup-preempt --no-scan-limit --slice-us 1000",
    "--steal-tries 1 --slice-us-lag 0 --small-llc-boost off --util-interval 5",
    "--steal node --numa-backoff 0 --latency-hist --migration-cost-llc-us 0 --migration-cost-node-us 1000",
    "--steal-node-limit 1 --wake-affine sync --slice-us-lag 20000",
];

#[test]
fn flags_change_under_load() {
    for seed in 0..4 {
        let mut kernel = Kernel::new(&"2x2x4x1".parse().unwrap(), "", seed).unwrap();
        let at = kernel.now + MSEC;
        for workload in ["hackbench:groups=1", "hogs:nr=19"] {
            let workload: Workload = workload.parse().unwrap();
            workload.add(Builder::new(&mut kernel, at, 0)).unwrap();
        }
        kernel.start_checks();
        for set in SETS.iter().cycle().take(60) {
            kernel.run_until(kernel.now + 17 * MSEC);
            assert_eq!(kernel.violation, None, "seed {seed}, before {set}");
            kernel.set(parse_flags(set).unwrap());
        }
    }
}

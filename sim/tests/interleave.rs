// SPDX-License-Identifier: GPL-2.0-only
//! What two CPUs do at the same time, in all orders.

use magpie_sim::interleave::PAIRS;

#[test]
fn no_task_waits_after_any_order() {
    for pair in PAIRS {
        let outcome = pair.try_all().unwrap();
        assert!(outcome.failed.is_none(), "{outcome}");
        assert!(outcome.words > 0, "{outcome}: nothing is accessed by both");
    }
}

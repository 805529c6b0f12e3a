// SPDX-License-Identifier: GPL-2.0-only
//! A wakeup and a dispatch() look at no CPU one by one, in LLCs of 8 to 256: `magpie-sim growth`, with fewer samples.

use magpie_sim::growth::{Row, Table, measure};

#[test]
fn no_step_for_each_cpu() {
    let rows = measure(&[], 20, 1).unwrap();
    println!("{}", Table(&rows));
    for Row { state, wakeup, dispatch } in &rows {
        for (what, growth) in [("wakeup", wakeup), ("dispatch", dispatch)] {
            assert!(growth.is_bounded(), "{what}, {state}: {growth:?}");
        }
    }
}

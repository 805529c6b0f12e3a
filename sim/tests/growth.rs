// SPDX-License-Identifier: GPL-2.0-only
//! A wakeup and a dispatch() in an LLC of 1024 CPUs cost about what they cost in one of 8: `magpie-sim growth`, with
//! fewer samples.

use magpie_sim::growth::{Row, Table, measure};

#[test]
fn no_worse_than_logarithmic() {
    let rows = measure(&[], 20, 1).unwrap();
    println!("{}", Table(&rows));
    for Row { state, wakeup, dispatch } in &rows {
        for (what, growth) in [("wakeup", wakeup), ("dispatch", dispatch)] {
            assert!(growth.is_logarithmic(), "{what}, {state}: worse than logarithmic: {growth:?}");
        }
    }
}

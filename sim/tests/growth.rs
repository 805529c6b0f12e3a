// SPDX-License-Identifier: GPL-2.0-only
//! A wakeup and a dispatch() look at no CPU one by one, in LLCs of 8 to 256: `magpie-sim growth`, with fewer samples.

use magpie_sim::growth::{Row, SIZES, head, measure};

#[test]
fn no_step_for_each_cpu() {
    let rows = measure(20).unwrap();
    println!("{}", head());
    rows.iter().for_each(|row| println!("{row}"));
    assert!(rows.iter().all(Row::is_bounded));
    assert_eq!(rows.len(), 6);
}

#[test]
fn verdicts() {
    let growth = |count: &dyn Fn(f64) -> f64| Row { counts: SIZES.map(|size| count(size as f64)), ..Row::default() };
    for (name, growth, bounded) in [
        ("flat", growth(&|_| 100.0), true),
        ("log", growth(&|n| 10.0 + 40.0 * n.log2()), true),
        ("a line for 16 CPUs", growth(&|n| 100.0 + n), true),
        ("linear", growth(&|n| 100.0 + 4.0 * n), false),
    ] {
        assert_eq!(growth.is_bounded(), bounded, "{name}");
    }
    let by_chance = Row { counts: [100.0, 100.0, 100.0, 100.0, 725.0], errors: [10.0; SIZES.len()], ..Row::default() };
    assert!(by_chance.is_bounded() && !Row { errors: [0.0; SIZES.len()], ..by_chance }.is_bounded());
}

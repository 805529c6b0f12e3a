// SPDX-License-Identifier: GPL-2.0-only
//! `magpie-mutant FROM TO`: runs scenarios by chance, by the seeds FROM, FROM + 1 ... below TO, until an invariant does
//! not hold. In odd ones timers of other CPUs come in the middle of callbacks. What magpie-mutants builds with a planted
//! bug, and once without; the last line that it prints tells.
//!
//! ```text
//! seed N             before a run, so that one which crashes is known by it
//! {"kind": ... }     the violation, and the end
//! holds              none, and the end
//! ```

use anyhow::{Context, Result};
use magpie_sim::fuzz;
use magpie_sim::scenario::Scenario;

fn main() -> Result<()> {
    let mut bounds = std::env::args().skip(1).map(|arg| arg.parse::<u64>());
    let mut bound = || bounds.next().context("two numbers are needed")?.context("not a number");
    let (from, to) = (bound()?, bound()?);
    for seed in from..to {
        println!("seed {seed}");
        let scenario = Scenario { interleave: seed & 1 != 0, ..fuzz::scenario(seed) };
        if let Some(violation) = scenario.run(false)?.violation {
            println!("{}", serde_json::to_string(&violation)?);
            return Ok(());
        }
    }
    println!("holds");
    Ok(())
}

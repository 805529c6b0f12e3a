// SPDX-License-Identifier: GPL-2.0-only
//! `magpie-mutant FROM TO`: runs scenarios by chance, by the seeds FROM, FROM + 1 ... below TO, until an invariant does
//! not hold. What magpie-mutants builds with a planted bug, and once without; the last line that it prints tells.
//!
//! ```text
//! seed N             before a run, so that one which crashes is known by it
//! {"kind": ... }     the violation, and the end
//! holds              none, and the end
//! ```

use anyhow::{Context, Result};
use magpie_sim::fuzz;

fn main() -> Result<()> {
    let mut bounds = std::env::args().skip(1).map(|arg| arg.parse::<u64>());
    let mut bound = || bounds.next().context("two numbers are needed")?.context("not a number");
    let (from, to) = (bound()?, bound()?);
    for seed in from..to {
        println!("seed {seed}");
        if let Some(violation) = fuzz::scenario(seed).run(false)?.violation {
            println!("{}", serde_json::to_string(&violation)?);
            return Ok(());
        }
    }
    println!("holds");
    Ok(())
}

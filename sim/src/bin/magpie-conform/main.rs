// SPDX-License-Identifier: GPL-2.0-only
//! The conformance test: scripted scenarios are played by real tasks under the attached scheduler
//! and by the simulator. Both must call the scheduler's callbacks in the same order.
//!
//! ```text
//! conformance/scenarios --script.rs--+--> kernel.rs: threads, traced by conformance/trace.bpf.c --+
//!                                    +--> simulated.rs: magpie_sim's kernel ----------------------+--> order.rs
//! ```

mod kernel;
mod order;
mod script;
mod simulated;

use std::collections::BTreeMap;
use std::process::ExitCode;
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result};
use clap::Parser;
use magpie_sim::kernel::Quirks;

use order::Order;
use script::Scenario;

/// The script, for the machine MACHINE. tests/vm/conformance.sh gives the VM this shape.
const SCENARIOS: &str = include_str!("../../../conformance/scenarios");
const MACHINE: &str = "2x1x2x1";

/// Flags of the scheduler. The slice is long because a real kernel under emulation is slow:
/// everything that a script does within a slice must finish in time. Memory is not sampled, because
/// the simulator does not know the memory of magpie-conform.
const FLAGS: &str = "--slice-us 16000 --numa-sample-share 0";

/// The orders agree when the kernel has shown the simulator's order this often.
const AGREE: usize = 3;
/// They differ when it has shown another order this many times more often.
const DIFFER: usize = 6;
/// Maximum number of runs until one of these happens, disturbed runs included.
const MAX_RUNS: usize = 40;
const SETTLE: Duration = Duration::from_millis(150);

/// Plays scripted scenarios under the attached scheduler and in the simulator, and compares the orders of callbacks.
#[derive(Parser)]
struct Opts {
    /// Only print the simulator's orders. Needs no scheduler.
    #[arg(long)]
    simulate: bool,

    /// Only print the flags that scx_magpie is to be started with.
    #[arg(long)]
    flags: bool,

    /// Print the orders that agree, too.
    #[arg(short, long)]
    verbose: bool,

    /// Names of scenarios (default: all).
    scenarios: Vec<String>,
}

fn main() -> Result<ExitCode> {
    let opts = Opts::parse();
    if opts.flags {
        println!("{FLAGS}");
        return Ok(ExitCode::SUCCESS);
    }
    let mut scenarios = script::parse(SCENARIOS).context("conformance/scenarios")?;
    for name in &opts.scenarios {
        anyhow::ensure!(scenarios.iter().any(|scenario| scenario.name == *name), "there is no scenario {name}");
    }
    scenarios.retain(|scenario| opts.scenarios.is_empty() || opts.scenarios.contains(&scenario.name));
    if opts.simulate {
        let quirks = Quirks { prolog_disables_migration: true, ..Quirks::default() };
        for scenario in &scenarios {
            println!("{}\n{}", scenario.name, simulated::play(scenario, quirks)?);
        }
        return Ok(ExitCode::SUCCESS);
    }

    let mut stage = kernel::Stage::new()?;
    let mut differ = 0;
    for scenario in &scenarios {
        let (simulated, other, note) = compare(&mut stage, scenario)?;
        println!("{} {} ({note})", if other.is_none() { "same  " } else { "DIFFER" }, scenario.name);
        if let Some(real) = other {
            println!("    - simulator  + kernel\n{}", order::diff(&simulated, &real));
            differ += 1;
        } else if opts.verbose {
            println!("{simulated}");
        }
    }
    println!("{} scenarios, {differ} differ; the kernel: {:?}", scenarios.len(), stage.quirks);
    Ok(if differ == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Play a scenario until the kernel's order agrees or differs. Return the simulator's order, the
/// kernel's if it differs, and the counts.
fn compare(stage: &mut kernel::Stage, scenario: &Scenario) -> Result<(Order, Option<Order>, String)> {
    let mut expected = None;
    let mut times = 0;
    let mut others: BTreeMap<Order, usize> = BTreeMap::new();
    let mut disturbed = 0;
    for _ in 0..MAX_RUNS {
        let Some(order) = stage.play(scenario).with_context(|| format!("scenario {}", scenario.name))? else {
            disturbed += 1;
            // Disturbed by periodic work of a CPU, which ends soon.
            thread::sleep(SETTLE);
            continue;
        };
        let simulated = match &expected {
            Some(simulated) => simulated,
            None => expected.insert(simulated::play(scenario, stage.quirks)?),
        };
        if order == *simulated {
            times += 1;
        } else {
            *others.entry(order).or_default() += 1;
        }
        let differs = others.iter().find(|(_, other)| **other >= times + DIFFER).map(|(order, _)| order.clone());
        if times == AGREE || differs.is_some() {
            let runs: usize = others.values().sum();
            let note = format!("{times} runs, {runs} in another order, {disturbed} disturbed");
            return Ok((simulated.clone(), differs, note));
        }
    }
    for (order, times) in &others {
        eprintln!("{times} times:\n{order}");
    }
    let name = &scenario.name;
    anyhow::bail!("scenario {name}: no result in {MAX_RUNS} runs, {times} as simulated, {disturbed} disturbed")
}

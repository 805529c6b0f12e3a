// SPDX-License-Identifier: GPL-2.0-only
//! magpie-sim
use anyhow::Result;
use magpie_sim::scenario::Scenario;

fn main() -> Result<()> {
    let args: Vec<String> = std::env::args().collect();
    let scenario = Scenario {
        machine: args[1].parse()?,
        flags: vec![],
        workloads: args[3..].iter().map(|w| w.parse()).collect::<Result<_>>()?,
        faults: vec![],
        ms: args[2].parse()?,
        seed: 1,
        noise: true,
    };
    let start = std::time::Instant::now();
    let outcome = scenario.run(std::env::var("TRACE").is_ok())?;
    let took = start.elapsed().as_secs_f64();
    println!("{:#?}", outcome.report);
    println!("{:.2} s, {:.2} M events/s", took, outcome.report.events as f64 / took / 1e6);
    if let Some(v) = outcome.violation {
        println!("VIOLATION {v}");
    }
    if std::env::var("TRACE").is_ok() {
        outcome.kernel.write_text(&mut std::io::stdout().lock())?;
    }
    Ok(())
}

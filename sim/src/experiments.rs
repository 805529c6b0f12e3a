// SPDX-License-Identifier: GPL-2.0-only
//! Experiments of the authors of the five ideas, in simulation: each feature off and on, with the
//! author's claim. Texts are identified by the first digits of their names.
//!
//! ```text
//! machine, workload --flags off, flags on; several runs each--> medians --claim--> a row: holds, or not
//! ```

use std::fmt;

use anyhow::{Result, ensure};

use crate::report::{Report, median};
use crate::scenario::Scenario;

/// Return true if the claim holds for the figures of off and on.
type Claim = fn(f64, f64) -> bool;

struct Measure {
    name: &'static str,
    of: fn(&Report) -> f64,
    claim: Option<(&'static str, Claim)>,
}

pub struct Row {
    source: &'static str,
    experiment: String,
    measure: &'static str,
    off: f64,
    on: f64,
    claim: Option<(&'static str, bool)>,
}

impl Row {
    pub fn holds(&self) -> bool {
        self.claim.is_none_or(|(_, holds)| holds)
    }
}

const NO_WORSE: (&str, Claim) = ("no lower", |off, on| on >= 0.99 * off);
const FEWER: (&str, Claim) = ("at least 88 % fewer", |off, on| on <= 0.12 * off);
const FASTER: (&str, Claim) = ("8 % faster or more", |off, on| on <= 0.92 * off);
const BUSIER: (&str, Claim) = ("busier", |off, on| on > off);

/// A text, the name of its experiment, the flag that turns its feature off, scenario and measures.
type Experiment = (&'static str, String, &'static str, Result<Scenario>, Vec<Measure>);

fn experiments() -> impl Iterator<Item = Experiment> {
    // "netperf and tbench were launched with 25% 50% 75% 100% 125% 150% 175% 200% of CPU number"
    let search = (1..=8).map(|quarters| {
        let rr = format!("rr:pairs={}", 28 * quarters);
        // Utilization has risen after 200 ms.
        let scenario = Scenario::of("112", "", &[&rr]).map(|of| Scenario { warm_up_ms: 200, ms: 150, ..of });
        let scanned = Measure {
            name: "CPUs scanned a search",
            of: |report| report.stats.scanned as f64 / report.stats.search.max(1) as f64,
            claim: (quarters == 8).then_some(FEWER),
        };
        let trips = Measure { name: "round trips/s", of: |report| report.groups[0].throughput, claim: Some(NO_WORSE) };
        let name = format!("request/response, {} % of 112 CPUs", 25 * quarters);
        ("000", name, "--no-scan-limit", scenario, vec![trips, scanned])
    });
    let steal = [1, 2, 4, 8].into_iter().map(|groups| {
        let hackbench = format!("hackbench:groups={groups}");
        let scenario = Scenario::of("vm", "", &[&hackbench]).map(|of| Scenario { ms: 400 * groups, ..of });
        let elapsed =
            Measure { name: "elapsed ms", of: |report| report.groups[0].request_us.p50 / 1000.0, claim: Some(FASTER) };
        let busy = Measure { name: "% busy", of: |report| report.busy, claim: Some(BUSIER) };
        ("003", format!("hackbench, {groups} groups, 8 CPUs"), "--steal off", scenario, vec![elapsed, busy])
    });
    // "This gives us consistent, and potentially higher, throughput in partially utilized
    // scenarios": work of big tasks next to small ones, in % of the capacity of the four big CPUs.
    let capacity = [1, 2, 4].into_iter().map(|nr| {
        let scenario = Scenario::of("biglittle", "", &[&format!("hogs:nr={nr}"), "sleepers"]).map(|of| Scenario {
            warm_up_ms: 300,
            ms: 3000,
            ..of
        });
        let work =
            Measure { name: "hogs' capacity s", of: |report| report.groups[0].capacity_s, claim: Some(NO_WORSE) };
        ("001", format!("{nr} hogs, 30 small; 4 big, 4 little"), "--no-capacity", scenario, vec![work])
    });
    search.chain(capacity).chain(steal)
}

/// Run all experiments with the seeds 1..=runs, and return each row as soon as it is finished.
pub fn rows(runs: u64) -> impl Iterator<Item = Result<Row>> {
    experiments().flat_map(move |experiment| rows_of(experiment, runs).unwrap_or_else(|err| vec![Err(err)]))
}

fn rows_of((source, experiment, off, scenario, measures): Experiment, runs: u64) -> Result<Vec<Result<Row>>> {
    let scenario = scenario?;
    let run = |flags: &str, seed| {
        let outcome = Scenario { flags: flags.into(), seed, ..scenario.clone() }.run(false)?;
        ensure!(outcome.violation.is_none(), "{experiment}, seed {seed}: {}", outcome.violation.unwrap());
        Ok(outcome.report)
    };
    let reports = |flags| (1..=runs).map(|seed| run(flags, seed)).collect::<Result<Vec<_>>>();
    let (without, with) = (reports(off)?, reports("")?);
    let row = |measure: &Measure| {
        let of = |reports: &[Report]| median(&reports.iter().map(measure.of).collect::<Vec<_>>());
        let (off, on) = (of(&without), of(&with));
        let claim = measure.claim.map(|(text, holds)| (text, holds(off, on)));
        Ok(Row { source, experiment: experiment.clone(), measure: measure.name, off, on, claim })
    };
    Ok(measures.iter().map(row).collect())
}

pub fn head() -> String {
    let (text, measure, ratio) = ("text", "measure", "on : off");
    format!("{text:<4} {:<37} {measure:<22} {:>11} {:>11} {ratio:>8}  the text's claim", "experiment", "off", "on")
}

impl fmt::Display for Row {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { source, experiment, measure, off, on, claim } = self;
        write!(f, "{source:<4} {experiment:<37} {measure:<22} {off:>11.2} {on:>11.2} {:>8.3}", on / off)?;
        match claim {
            Some((text, true)) => write!(f, "  {text}: holds"),
            Some((text, false)) => write!(f, "  {text}: DOES NOT HOLD"),
            None => Ok(()),
        }
    }
}

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
use crate::workload::Workload;

/// Return true if the claim holds for the figures of off and on.
type Claim = fn(f64, f64) -> bool;

struct Measure {
    name: &'static str,
    of: fn(&Report) -> f64,
    claim: Option<(&'static str, Claim)>,
}

struct Experiment {
    source: &'static str,
    name: String,
    machine: &'static str,
    workloads: Vec<String>,
    off: &'static str,
    warm_up_ms: u64,
    ms: u64,
    measures: Vec<Measure>,
}

/// A row of the table.
pub struct Row {
    source: &'static str,
    experiment: String,
    measure: &'static str,
    off: f64,
    on: f64,
    claim: Option<(&'static str, bool)>,
}

impl Row {
    /// Return false if a claim does not hold.
    pub fn holds(&self) -> bool {
        self.claim.is_none_or(|(_, holds)| holds)
    }
}

const NO_WORSE: (&str, Claim) = ("no lower", |off, on| on >= 0.99 * off);
const FEWER: (&str, Claim) = ("at least 88 % fewer", |off, on| on <= 0.12 * off);
const FASTER: (&str, Claim) = ("8 % faster or more", |off, on| on <= 0.92 * off);
const BUSIER: (&str, Claim) = ("busier", |off, on| on > off);

fn experiments() -> Vec<Experiment> {
    // "netperf and tbench were launched with 25% 50% 75% 100% 125% 150% 175% 200% of CPU number"
    let search = (1..=8).map(|quarters| Experiment {
        source: "000",
        name: format!("request/response, {} % of 112 CPUs", 25 * quarters),
        machine: "112",
        workloads: vec![format!("rr:pairs={}", 28 * quarters)],
        off: "--no-scan-limit",
        // Utilization has risen after this time.
        warm_up_ms: 200,
        ms: 150,
        measures: vec![
            Measure { name: "round trips/s", of: |report| report.groups[0].throughput, claim: Some(NO_WORSE) },
            Measure {
                name: "CPUs scanned a search",
                of: |report| report.stats.scanned as f64 / report.stats.search.max(1) as f64,
                claim: (quarters == 8).then_some(FEWER),
            },
        ],
    });
    let steal = [1, 2, 4, 8].map(|groups| Experiment {
        source: "003",
        name: format!("hackbench, {groups} groups, 8 CPUs"),
        machine: "vm",
        workloads: vec![format!("hackbench:groups={groups}")],
        off: "--steal off",
        warm_up_ms: 0,
        ms: 400 * groups,
        measures: vec![
            Measure { name: "elapsed ms", of: |report| report.groups[0].request_us.p50 / 1000.0, claim: Some(FASTER) },
            Measure { name: "% busy", of: |report| report.busy, claim: Some(BUSIER) },
        ],
    });
    // "This gives us consistent, and potentially higher, throughput in partially utilized
    // scenarios": work of big tasks next to small ones, in % of the capacity of the four big CPUs.
    let capacity = [1, 2, 4].map(|hogs| Experiment {
        source: "001",
        name: format!("{hogs} hogs, 30 small; 4 big, 4 little"),
        machine: "biglittle",
        workloads: vec![format!("hogs:nr={hogs}"), "sleepers".into()],
        off: "--no-capacity",
        warm_up_ms: 300,
        ms: 3000,
        measures: vec![Measure {
            name: "hogs' capacity s",
            of: |report| report.groups[0].capacity_s,
            claim: Some(NO_WORSE),
        }],
    });
    search.chain(capacity).chain(steal).collect()
}

/// Run all experiments with the seeds 1..=runs, and pass each row as soon as it is finished.
pub fn run(runs: u64, mut row: impl FnMut(&Row)) -> Result<()> {
    for experiment in experiments() {
        let off = reports(&experiment, experiment.off, runs)?;
        let on = reports(&experiment, "", runs)?;
        for measure in experiment.measures {
            let of = |reports: &[Report]| median(&reports.iter().map(measure.of).collect::<Vec<_>>());
            let (off, on) = (of(&off), of(&on));
            row(&Row {
                source: experiment.source,
                experiment: experiment.name.clone(),
                measure: measure.name,
                off,
                on,
                claim: measure.claim.map(|(text, holds)| (text, holds(off, on))),
            });
        }
    }
    Ok(())
}

fn reports(experiment: &Experiment, flags: &str, runs: u64) -> Result<Vec<Report>> {
    let of_seed = |seed| {
        let scenario = Scenario {
            machine: experiment.machine.parse()?,
            flags: flags.split_whitespace().map(str::to_string).collect(),
            workloads: experiment.workloads.iter().map(|text| text.parse::<Workload>()).collect::<Result<_>>()?,
            warm_up_ms: experiment.warm_up_ms,
            ms: experiment.ms,
            seed,
            ..Scenario::default()
        };
        let outcome = scenario.run(false)?;
        ensure!(outcome.violation.is_none(), "{}, seed {seed}: {}", experiment.name, outcome.violation.unwrap());
        Ok(outcome.report)
    };
    (1..=runs).map(of_seed).collect()
}

/// Return the head of the table.
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

// SPDX-License-Identifier: GPL-2.0-only
//! The rounds of `bench/rounds.sh`, and the ratios of a scheduler to EEVDF in them.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context, Result, ensure};
use serde::{Deserialize, Serialize};
use statrs::distribution::{ContinuousCDF, StudentsT};
use statrs::statistics::{Data, OrderStatistics, Statistics};

use crate::rows::{Kind, is_time};

pub const BASE: &str = "eevdf";
pub const OURS: &str = "scx_magpie";
/// With fewer rounds there is no range.
pub const MIN_ROUNDS: usize = 3;
/// Where 0 is a figure ([`Kind::is_plain`]), --json has the ratio as if it were this.
const LEAST_PLAIN: f64 = 1.0;

/// A line of rounds.sh.
#[derive(Deserialize)]
#[serde(untagged)]
enum Line {
    Figure { round: u32, scheduler: String, benchmark: String, value: f64 },
    Ended { round: u32, scheduler: String, ended: String },
    Boot { kernel: String, versions: BTreeMap<String, String> },
}

/// A ratio to EEVDF: the geometric mean of the rounds.
#[derive(Clone, Copy, Serialize)]
pub struct Ratio {
    pub ratio: f64,
    /// The range in which the ratio of another round lies, 19 times out of 20: Student's prediction
    /// interval, of the logarithms.
    pub range: Option<(f64, f64)>,
}

impl Ratio {
    /// Of the ratio in each round.
    fn of(ratios: &[f64]) -> Option<Self> {
        let (nr, logs) = (ratios.len() as f64, ratios.iter().map(|ratio| ratio.ln()));
        if ratios.is_empty() {
            return None;
        }
        let mean = logs.clone().mean();
        let range = (ratios.len() >= MIN_ROUNDS).then(|| {
            let student = StudentsT::new(0.0, 1.0, nr - 1.0).expect("a degree of freedom or more");
            let half = student.inverse_cdf(0.975) * logs.std_dev() * (1.0 + 1.0 / nr).sqrt();
            ((mean - half).exp(), (mean + half).exp())
        });
        Some(Ratio { ratio: mean.exp(), range })
    }

    pub fn is_noise(&self) -> bool {
        self.range.is_none_or(|(low, high)| low <= 1.0 && 1.0 <= high)
    }
}

/// Values by round.
type Rounds = BTreeMap<u32, f64>;

/// Results by row and scheduler.
#[derive(Default)]
pub struct Results {
    pub values: BTreeMap<String, BTreeMap<String, Rounds>>,
    /// Why schedulers ended: text and count.
    pub ended: BTreeMap<(String, String), u32>,
    /// In order of appearance.
    pub rows: Vec<String>,
    pub schedulers: Vec<String>,
    /// Of the last boot, as `uname -r` says.
    pub kernel: Option<String>,
    /// Of the kernels and schedulers of all boots, with commits.
    pub versions: BTreeSet<String>,
    pub nr_rounds: u32,
}

fn note(names: &mut Vec<String>, name: &str) {
    if !names.iter().any(|known| known == name) {
        names.push(name.to_string());
    }
}

impl Results {
    /// Read the lines of each part. Its rounds follow those of the parts before it.
    pub fn read<Lines>(parts: impl IntoIterator<Item = Lines>) -> Result<Self>
    where
        Lines: Iterator<Item = std::io::Result<String>>,
    {
        let mut results = Results::default();
        for lines in parts {
            results.read_part(lines)?;
        }
        ensure!(results.values.values().any(|row| row.contains_key(BASE)), "no figures of {BASE}");
        // EEVDF comes first, then scx_magpie.
        results.schedulers.sort_by_key(|name| match name.as_str() {
            BASE => 0,
            OURS => 1,
            _ => 2,
        });
        Ok(results)
    }

    fn read_part(&mut self, lines: impl Iterator<Item = std::io::Result<String>>) -> Result<()> {
        let before = self.nr_rounds;
        for line in lines {
            let line = line?;
            if !line.starts_with('{') {
                continue;
            }
            match serde_json::from_str(&line).with_context(|| format!("not a figure: {line}"))? {
                Line::Figure { round, scheduler, benchmark, value } => {
                    let round = before + round;
                    self.nr_rounds = self.nr_rounds.max(round);
                    note(&mut self.schedulers, &scheduler);
                    note(&mut self.rows, &benchmark);
                    self.values.entry(benchmark).or_default().entry(scheduler).or_default().insert(round, value);
                }
                Line::Ended { round, scheduler, ended } => {
                    self.nr_rounds = self.nr_rounds.max(before + round);
                    note(&mut self.schedulers, &scheduler);
                    *self.ended.entry((scheduler, ended)).or_default() += 1;
                }
                Line::Boot { kernel, versions } => {
                    self.versions.extend(versions.into_iter().map(|(name, version)| format!("{name} {version}")));
                    self.versions.insert(format!("Linux {kernel}"));
                    self.kernel = Some(kernel);
                }
            }
        }
        Ok(())
    }

    pub fn others(&self) -> impl Iterator<Item = &String> {
        self.schedulers.iter().filter(|name| *name != BASE)
    }

    pub fn median_of(&self, row: &str, scheduler: &str) -> Option<f64> {
        let rounds = self.values.get(row)?.get(scheduler)?;
        Some(Data::new(rounds.values().copied().collect::<Vec<_>>()).median())
    }

    /// The number of rounds in which EEVDF has run the row.
    pub fn nr_rounds_of(&self, row: &str) -> usize {
        self.values[row].get(BASE).map_or(0, BTreeMap::len)
    }

    fn ratio_in(&self, row: &str, scheduler: &str, round: u32) -> Option<f64> {
        let row_values = &self.values[row];
        let least = if Kind::of(row).is_plain() { LEAST_PLAIN } else { 0.0 };
        let value = row_values.get(scheduler)?.get(&round)?.max(least);
        let base = row_values.get(BASE)?.get(&round)?.max(least);
        Some(if is_time(row) { base / value } else { value / base })
    }

    /// Return the ratio over those rounds that have figures of both in all of `rows`; of several
    /// rows their geometric mean. None: there are no such rounds.
    pub fn ratio(&self, rows: &[&str], scheduler: &str) -> Option<Ratio> {
        let mean_in = |round| {
            let ratios: Option<Vec<f64>> = rows.iter().map(|row| self.ratio_in(row, scheduler, round)).collect();
            ratios.map(|ratios| ratios.geometric_mean())
        };
        Ratio::of(&(1..=self.nr_rounds).filter_map(mean_in).collect::<Vec<_>>())
    }

    /// Return true if no scheduler differs from EEVDF by more than this.
    pub fn is_alike(&self, row: &str, percent: u32) -> bool {
        let most = f64::from(percent) / 100.0;
        let mut ratios = self.others().filter_map(|name| self.ratio(&[row], name)).peekable();
        ratios.peek().is_some() && ratios.all(|ratio| (ratio.ratio - 1.0).abs() <= most)
    }
}

#[cfg(test)]
pub mod tests {
    use super::*;

    pub fn results(lines: &[String]) -> Results {
        Results::read([lines.iter().cloned().map(Ok)]).unwrap()
    }

    pub fn rounds(row: &str, scheduler: &str, values: &[f64]) -> Vec<String> {
        let line = |(round, value): (usize, &f64)| {
            format!(r#"{{"round":{},"scheduler":"{scheduler}","benchmark":"{row}","value":{value}}}"#, round + 1)
        };
        values.iter().enumerate().map(line).collect()
    }

    #[test]
    fn above_one_is_better() {
        let mut lines = rounds("hackbench-pipe", BASE, &[2.0, 4.0, 3.0]);
        lines.extend(rounds("hackbench-pipe", OURS, &[1.0, 2.0, 1.5]));
        lines.extend(rounds("tbench", BASE, &[10.0, 10.0, 10.0]));
        lines.extend(rounds("tbench", OURS, &[5.0, 5.0, 5.0]));
        let latencies = ["wakeup-p99", "locks-24-request-p99", "light-p90", "hog-beside-pool-wait"];
        for row in latencies {
            lines.extend(rounds(row, BASE, &[10.0]));
            lines.extend(rounds(row, OURS, &[1.0]));
        }
        let results = results(&lines);
        let is = |row: &str, expected: f64| {
            let ratio = results.ratio(&[row], OURS).unwrap().ratio;
            assert!((ratio - expected).abs() < 1e-9, "{row}: {ratio}");
        };
        is("hackbench-pipe", 2.0);
        is("tbench", 0.5);
        for row in latencies {
            is(row, 10.0);
        }
    }

    /// Student's t for two degrees of freedom is 4.303: exp(0.01 * 4.303 * sqrt(4 / 3)) = 1.051.
    #[test]
    fn the_range_is_that_of_another_round() {
        let of = |ratios: &[f64]| Ratio::of(&ratios.iter().map(|log| log.exp()).collect::<Vec<_>>()).unwrap();
        let (low, high) = of(&[0.51, 0.49, 0.5]).range.unwrap();
        assert!(
            (high / 0.5f64.exp() - 1.051).abs() < 0.001 && (0.5f64.exp() / low - 1.051).abs() < 0.001,
            "{low} {high}"
        );
        assert!(of(&[0.51, 0.49]).range.is_none());
        assert!(of(&[0.0, 0.1, 0.2]).is_noise() && !of(&[0.09, 0.1, 0.11]).is_noise());
    }

    #[test]
    fn a_group_has_the_mean_of_its_rows_in_each_round() {
        let mut lines = rounds("pairs-8", BASE, &[10.0, 10.0, 10.0]);
        lines.extend(rounds("pairs-8", OURS, &[20.0, 20.0, 20.0]));
        lines.extend(rounds("perf-pipe", BASE, &[10.0, 10.0]));
        lines.extend(rounds("perf-pipe", OURS, &[80.0, 80.0]));
        let results = results(&lines);
        let group = results.ratio(&["pairs-8", "perf-pipe"], OURS).unwrap();
        assert!((group.ratio - 4.0).abs() < 1e-9 && group.range.is_none());
        assert!(results.ratio(&["pairs-8"], OURS).unwrap().range.is_some());
    }

    /// No idle time is better than some, by a finite ratio.
    #[test]
    fn no_time_at_all_is_a_microsecond() {
        for (base, ours, expected) in [(0.0, 0.0, 1.0), (50.0, 0.0, 50.0), (0.3, 50.0, 0.02), (50.0, 25.0, 2.0)] {
            let lines = [rounds("idle-waiting-mix", BASE, &[base]), rounds("idle-waiting-mix", OURS, &[ours])].concat();
            let ratio = results(&lines).ratio(&["idle-waiting-mix"], OURS).unwrap().ratio;
            assert!((ratio - expected).abs() < 1e-9, "{base} {ours}: {ratio}");
        }
    }

    #[test]
    fn the_rounds_of_all_boots_count() {
        let boot = |base: &[f64], ours: &[f64]| {
            let lines = [rounds("tbench", BASE, base), rounds("tbench", OURS, ours)].concat();
            lines.into_iter().map(Ok)
        };
        let results = Results::read([boot(&[10.0, 12.0], &[20.0, 24.0]), boot(&[10.0], &[80.0])]).unwrap();
        assert_eq!((results.nr_rounds, results.median_of("tbench", OURS)), (3, Some(24.0)));
        assert!((results.ratio(&["tbench"], OURS).unwrap().ratio - 32.0f64.cbrt()).abs() < 1e-9);
    }

    #[test]
    fn rounds_without_it_do_not_count() {
        let lines = [rounds("tbench", BASE, &[10.0, 30.0, 40.0]), rounds("tbench", OURS, &[10.0])].concat();
        assert!((results(&lines).ratio(&["tbench"], OURS).unwrap().ratio - 1.0).abs() < 1e-9);
    }

    #[test]
    fn a_boot_says_its_kernel_and_versions() {
        let mut lines = vec![r#"{"kernel":"7.3.0","versions":{"scx_magpie":"0.3.0-g1"}}"#.to_string()];
        lines.extend(rounds("tbench", BASE, &[10.0]));
        let results = results(&lines);
        assert_eq!(results.kernel.as_deref(), Some("7.3.0"));
        assert!(results.versions.iter().eq(["Linux 7.3.0", "scx_magpie 0.3.0-g1"]));
    }

    #[test]
    fn no_base_is_an_error() {
        let lines = rounds("tbench", OURS, &[1.0]).into_iter().map(Ok);
        assert!(Results::read([lines]).is_err());
    }
}

// SPDX-License-Identifier: GPL-2.0-only
//! `magpie-table`: evaluate the rounds of `bench/rounds.sh`, each scheduler against EEVDF:
//!
//! ```text
//! lines of JSON --> values by benchmark and scheduler --> median, ratio of medians to EEVDF's, interval by bootstrap
//!                                                     --> a table of Markdown; --json
//! ```
//!
//! A ratio above 1 is better than EEVDF, for times and for rates. The bootstrap draws entire
//! rounds, so that effects common to a round cancel out.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::io::{BufRead, BufReader, Write, stdin, stdout};
use std::path::PathBuf;

use anyhow::{Context, Result, ensure};
use clap::Parser;
use plotters::data::Quartiles;
use serde::{Deserialize, Serialize};

const DRAWS: usize = 2000;
/// With fewer rounds there is no interval.
const MIN_ROUNDS: usize = 5;
/// Where 0 is a figure ([`Kind::is_plain`]), --json has the ratio as if it were this.
const LEAST_PLAIN: f64 = 1.0;
const BASE: &str = "eevdf";
const OURS: &str = "scx_magpie";
/// Groups in the order of the table, by the prefixes of benchmarks. The longest prefix counts.
const GROUPS: [(&str, &[&str]); 14] = [
    ("real programs", &["nginx", "redis", "postgres", "cc1", "x264"]),
    ("locks", &["locks"]),
    ("light alongside heavy", &["light"]),
    ("long runners", &["hog-", "hogs-", "frames-"]),
    ("containers", &["light-cgroup", "limited"]),
    ("wakeups", &["wakeup"]),
    ("hackbench", &["hackbench"]),
    ("switches", &["perf-pipe", "pairs", "stress", "tbench"]),
    ("pinned", &["pinned"]),
    ("cores of two threads", &["smt-"]),
    ("one CPU", &["cpu1-"]),
    ("a CPU idles while a task waits in its LLC", &["idle-waiting"]),
    ("a CPU idles while a task waits in another LLC", &["idle-beyond"]),
    ("others", &[""]),
];

/// Read what bench/rounds.sh printed, and print a table of ratios to EEVDF. Above 1 is better.
#[derive(Parser)]
struct Cli {
    /// Files of lines of JSON, each from a boot of its own. The rounds of all files count. Default:
    /// standard input.
    files: Vec<PathBuf>,

    /// Write the figures as JSON.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,

    /// Leave out rows in which no scheduler differs from EEVDF by more than this. They are named
    /// below the table.
    #[arg(long, value_name = "PERCENT", default_value_t = 0)]
    differing: u32,
}

/// A line of rounds.sh.
#[derive(Deserialize)]
struct Line {
    round: u32,
    scheduler: String,
    benchmark: Option<String>,
    value: Option<f64>,
    ended: Option<String>,
}

/// Kind of a benchmark. A group has a mean for each kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Throughput,
    Latency,
    ContextSwitches,
    /// Time in which a CPU idles while a task waits, us per second.
    Idle,
    /// Samples in which no two hogs share a core, %.
    Apart,
    /// Frames on time, of those due, %.
    OnTime,
}

impl Kind {
    const ALL: [(Kind, &str); 6] = [
        (Kind::Throughput, "throughput"),
        (Kind::Latency, "latency"),
        (Kind::ContextSwitches, "context switches"),
        (Kind::Idle, "us a second"),
        (Kind::Apart, "% of the time that no core has two hogs"),
        (Kind::OnTime, "% of the frames on time"),
    ];

    fn of(benchmark: &str) -> Self {
        match benchmark {
            _ if benchmark.starts_with("idle-") => Kind::Idle,
            _ if benchmark.ends_with("-apart") => Kind::Apart,
            _ if benchmark.starts_with("frames-") => Kind::OnTime,
            _ if benchmark.ends_with("-switches") => Kind::ContextSwitches,
            _ if ["-p90", "-p99", "-wait"].iter().any(|end| benchmark.ends_with(end)) => Kind::Latency,
            _ => Kind::Throughput,
        }
    }

    /// Return true if the table has its figures as they are, without ratios. Some are 0.
    fn is_plain(self) -> bool {
        matches!(self, Kind::Idle | Kind::Apart | Kind::OnTime)
    }
}

/// Return true if less is better.
fn is_time(benchmark: &str) -> bool {
    let row = ["smt-", "cpu1-"].iter().find_map(|machine| benchmark.strip_prefix(machine)).unwrap_or(benchmark);
    let seconds = ["hackbench", "pinned-hackbench", "cc1"].iter().any(|name| row.starts_with(name));
    seconds || !matches!(Kind::of(benchmark), Kind::Throughput | Kind::Apart | Kind::OnTime)
}

/// Return the index in GROUPS.
fn group_of(benchmark: &str) -> usize {
    let fits = |names: &[&str]| names.iter().filter(|name| benchmark.starts_with(**name)).map(|name| name.len()).max();
    (0..GROUPS.len()).max_by_key(|&group| fits(GROUPS[group].1)).unwrap_or_default()
}

fn median(values: &[f64]) -> f64 {
    Quartiles::new(values).median()
}

/// Format a value with about four digits.
fn figure(value: f64) -> String {
    let decimals = (3 - value.abs().max(1e-9).log10().floor() as i32).clamp(0, 6);
    format!("{value:.*}", decimals as usize)
}

/// Format a ratio. Small ones have three decimals: a light task may wait hundreds of times as long.
fn ratio_text(ratio: f64) -> String {
    format!("{ratio:.*}", if ratio < 0.1 { 3 } else { 2 })
}

/// A ratio and its 95 % confidence interval.
#[derive(Clone, Copy, Serialize)]
struct Ratio {
    ratio: f64,
    low: f64,
    high: f64,
}

impl Ratio {
    fn of(ratio: f64, mut draws: Vec<f64>) -> Self {
        draws.sort_unstable_by(f64::total_cmp);
        let at = |share: f64| draws[((draws.len() - 1) as f64 * share).round() as usize];
        Ratio { ratio, low: at(0.025), high: at(0.975) }
    }

    fn is_noise(&self) -> bool {
        self.low <= 1.0 && 1.0 <= self.high
    }
}

/// Values by round.
type Rounds = BTreeMap<u32, f64>;

/// Results by benchmark and scheduler.
#[derive(Default)]
struct Results {
    values: BTreeMap<String, BTreeMap<String, Rounds>>,
    /// Why schedulers ended: text and count.
    ended: BTreeMap<(String, String), u32>,
    /// In order of appearance.
    benchmarks: Vec<String>,
    schedulers: Vec<String>,
    nr_rounds: u32,
}

fn note(names: &mut Vec<String>, name: &str) {
    if !names.iter().any(|known| known == name) {
        names.push(name.to_string());
    }
}

impl Results {
    /// Read the lines of each part. Its rounds follow those of the parts before it.
    fn read<Lines>(parts: impl IntoIterator<Item = Lines>) -> Result<Self>
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
            let Line { round, scheduler, benchmark, value, ended } =
                serde_json::from_str(&line).with_context(|| format!("not a figure: {line}"))?;
            let round = before + round;
            self.nr_rounds = self.nr_rounds.max(round);
            note(&mut self.schedulers, &scheduler);
            if let (Some(benchmark), Some(value)) = (benchmark, value) {
                note(&mut self.benchmarks, &benchmark);
                self.values.entry(benchmark).or_default().entry(scheduler).or_default().insert(round, value);
            } else if let Some(why) = ended {
                *self.ended.entry((scheduler, why)).or_default() += 1;
            }
        }
        Ok(())
    }

    fn median_of(&self, benchmark: &str, scheduler: &str) -> Option<f64> {
        let rounds = self.values.get(benchmark)?.get(scheduler)?;
        Some(median(&rounds.values().copied().collect::<Vec<_>>()))
    }

    /// Return the ratio of medians over those of the rounds that both schedulers have completed.
    fn ratio_in(&self, benchmark: &str, scheduler: &str, rounds: &[u32]) -> Option<f64> {
        let row = &self.values[benchmark];
        let (values, base) = (row.get(scheduler)?, row.get(BASE)?);
        let (values, base): (Vec<f64>, Vec<f64>) =
            rounds.iter().filter_map(|round| Some((*values.get(round)?, *base.get(round)?))).unzip();
        let least = if Kind::of(benchmark).is_plain() { LEAST_PLAIN } else { 0.0 };
        if values.is_empty() {
            return None;
        }
        let (values, base) = (median(&values).max(least), median(&base).max(least));
        Some(if is_time(benchmark) { base / values } else { values / base })
    }

    /// Return the rounds in which the scheduler has run one of `benchmarks`.
    fn rounds_of(&self, benchmarks: &[&String], scheduler: &str) -> Vec<u32> {
        let rows = benchmarks.iter().filter_map(|benchmark| self.values[*benchmark].get(scheduler));
        rows.flat_map(|rounds| rounds.keys().copied()).collect::<BTreeSet<_>>().into_iter().collect()
    }

    /// Return the geometric mean of the ratios of `benchmarks`. None: nothing to compare.
    fn ratio(&self, benchmarks: &[&String], scheduler: &str) -> Option<Ratio> {
        let mean = |rounds: &[u32]| {
            let ratios: Vec<f64> =
                benchmarks.iter().filter_map(|benchmark| self.ratio_in(benchmark, scheduler, rounds)).collect();
            (!ratios.is_empty())
                .then(|| (ratios.iter().map(|ratio| ratio.ln()).sum::<f64>() / ratios.len() as f64).exp())
        };
        let all = self.rounds_of(benchmarks, BASE);
        let mut random = fastrand::Rng::with_seed(1);
        let mut draw = || -> Vec<u32> { all.iter().filter_map(|_| random.choice(&all).copied()).collect() };
        let draws: Vec<f64> = (0..DRAWS).filter_map(|_| mean(&draw())).collect();
        Some(Ratio::of(mean(&all)?, draws))
    }

    /// Return titles like "locks: latency" with their benchmarks, in order of appearance.
    fn groups(&self) -> Vec<(String, Vec<&String>)> {
        let all = (0..GROUPS.len()).flat_map(|group| Kind::ALL.map(|kind| (group, kind)));
        let members = |(group, (kind, title)): (usize, (Kind, &str))| {
            let fits = |name: &&String| group_of(name) == group && Kind::of(name) == kind;
            (format!("{}: {title}", GROUPS[group].0), self.benchmarks.iter().filter(fits).collect::<Vec<_>>())
        };
        all.map(members).filter(|(_, benchmarks)| !benchmarks.is_empty()).collect()
    }

    fn others(&self) -> impl Iterator<Item = &String> {
        self.schedulers.iter().filter(|name| *name != BASE)
    }

    /// Return true if no scheduler differs from EEVDF by more than this.
    fn is_alike(&self, benchmark: &String, percent: u32) -> bool {
        let most = f64::from(percent) / 100.0;
        let rounds = self.rounds_of(&[benchmark], BASE);
        let mut ratios = self.others().filter_map(|name| self.ratio_in(benchmark, name, &rounds)).peekable();
        ratios.peek().is_some() && ratios.all(|ratio| (ratio - 1.0).abs() <= most)
    }

    /// Print the table. Leave out rows in which all schedulers are alike within `percent`.
    fn markdown(&self, to: &mut impl Write, percent: u32) -> Result<()> {
        let names: Vec<&String> = self.others().collect();
        writeln!(to, "| | EEVDF | {} |", names.iter().map(|name| name.as_str()).collect::<Vec<_>>().join(" | "))?;
        writeln!(to, "|---|---|{}", "---|".repeat(names.len()))?;
        let cell = |ratio: Option<Ratio>, nr_rounds: usize| {
            let Some(ratio) = ratio else { return "-".to_string() };
            let [middle, low, high] = [ratio.ratio, ratio.low, ratio.high].map(ratio_text);
            if nr_rounds < 2 {
                return middle;
            }
            let bold = if ratio.is_noise() || nr_rounds < MIN_ROUNDS { "" } else { "**" };
            format!("{bold}{middle}{bold} ({low}..{high})")
        };
        let row = |benchmarks: &[&String]| -> String {
            let cell_of = |name: &String| cell(self.ratio(benchmarks, name), self.rounds_of(benchmarks, name).len());
            names.iter().map(|name| cell_of(name)).collect::<Vec<_>>().join(" | ")
        };
        let plain = |benchmark: &str, name: &str| {
            self.median_of(benchmark, name).map_or("-".to_string(), |value| format!("{value:.0}"))
        };
        let mut alike = Vec::new();
        for (group, mut benchmarks) in self.groups() {
            if percent > 0 {
                alike.extend(benchmarks.extract_if(.., |benchmark| self.is_alike(benchmark, percent)));
            }
            let Some(first) = benchmarks.first() else { continue };
            if Kind::of(first).is_plain() {
                writeln!(to, "| **{group}** |{}", " |".repeat(names.len() + 1))?;
                for benchmark in benchmarks {
                    let values: Vec<_> = names.iter().map(|name| plain(benchmark, name)).collect();
                    writeln!(to, "| {benchmark} | {} | {} |", plain(benchmark, BASE), values.join(" | "))?;
                }
                continue;
            }
            writeln!(to, "| **{group}** | 1 | {} |", row(&benchmarks))?;
            for benchmark in benchmarks {
                let base = self.median_of(benchmark, BASE).map_or("-".to_string(), figure);
                writeln!(to, "| {benchmark} | {base} | {} |", row(&[benchmark]))?;
            }
        }
        writeln!(
            to,
            "\n{} rounds; ratio to EEVDF, above 1 is better; 95 % confidence interval; bold: more than noise ({MIN_ROUNDS} rounds at least); a group: the geometric mean of its rows.",
            self.benchmarks.iter().map(|row| self.rounds_of(&[row], BASE).len()).max().unwrap_or_default()
        )?;
        if self.benchmarks.iter().any(|benchmark| Kind::of(benchmark).is_plain()) {
            writeln!(to, "Groups in us or %: medians, not ratios.")?;
        }
        if !alike.is_empty() {
            let names: Vec<&str> = alike.into_iter().map(String::as_str).collect();
            writeln!(to, "Within {percent} % of EEVDF under all: {}.", names.join(", "))?;
        }
        for ((scheduler, why), times) in &self.ended {
            writeln!(to, "{scheduler}, {times} times: {why}")?;
        }
        Ok(())
    }

    fn json(&self) -> serde_json::Value {
        let ratios: BTreeMap<&String, BTreeMap<&String, Option<Ratio>>> = (self.benchmarks.iter())
            .map(|row| (row, self.others().map(|name| (name, self.ratio(&[row], name))).collect()))
            .collect();
        let groups: BTreeMap<String, BTreeMap<&String, Option<Ratio>>> = (self.groups().into_iter())
            .map(|(group, rows)| (group, self.others().map(|name| (name, self.ratio(&rows, name))).collect()))
            .collect();
        serde_json::json!({"values": self.values, "ratios": ratios, "groups": groups})
    }
}

fn main() -> Result<()> {
    let cli = Cli::parse();
    let results = if cli.files.is_empty() {
        Results::read([stdin().lock().lines()])?
    } else {
        let open =
            |path: &PathBuf| Ok(BufReader::new(File::open(path).with_context(|| format!("{}", path.display()))?));
        let parts: Vec<_> = cli.files.iter().map(open).collect::<Result<_>>()?;
        Results::read(parts.into_iter().map(BufRead::lines))?
    };
    results.markdown(&mut stdout().lock(), cli.differing)?;
    if let Some(file) = &cli.json {
        fs::write(file, serde_json::to_string_pretty(&results.json())?)
            .with_context(|| format!("{}", file.display()))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn results(lines: &[&str]) -> Results {
        Results::read([lines.iter().map(|line| Ok(line.to_string()))]).unwrap()
    }

    fn rounds(benchmark: &str, scheduler: &str, values: &[f64]) -> Vec<String> {
        let line = |(round, value): (usize, &f64)| {
            format!(r#"{{"round":{},"scheduler":"{scheduler}","benchmark":"{benchmark}","value":{value}}}"#, round + 1)
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
        let results = results(&lines.iter().map(String::as_str).collect::<Vec<_>>());
        let ratio = |benchmark: &str| results.ratio(&[&benchmark.to_string()], OURS).unwrap();
        assert_eq!((ratio("hackbench-pipe").ratio, ratio("tbench").ratio), (2.0, 0.5));
        assert_eq!((ratio("tbench").low, ratio("tbench").high, ratio("tbench").is_noise()), (0.5, 0.5, false));
        for row in latencies {
            assert!((ratio(row).ratio - 10.0).abs() < 1e-9, "{row}");
        }
    }

    #[test]
    fn groups_have_throughput_and_latency_apart() {
        let mut lines = Vec::new();
        for row in [
            "wakeup-50-p99",
            "other",
            "light-p90",
            "pinned-hackbench",
            "wakeup-50-rps",
            "pinned-hackbench-switches",
            "light-cgroup-p90",
            "hog-beside-forks",
            "frames-beside-pool",
            "hog-beside-forks-wait",
            "hogs-beside-forks",
            "pairs-8",
            "cc1",
            "locks-spin-24-rps",
            "wakeup-95-rps",
            "idle-beyond-locks",
            "idle-waiting-wakeup-50",
        ] {
            lines.extend(rounds(row, BASE, &[1.0]));
        }
        let results = results(&lines.iter().map(String::as_str).collect::<Vec<_>>());
        let groups: Vec<String> =
            results.groups().into_iter().map(|(group, rows)| format!("{group} {rows:?}")).collect();
        let expected = [
            r#"real programs: throughput ["cc1"]"#,
            r#"locks: throughput ["locks-spin-24-rps"]"#,
            r#"light alongside heavy: latency ["light-p90"]"#,
            r#"long runners: throughput ["hog-beside-forks", "hogs-beside-forks"]"#,
            r#"long runners: latency ["hog-beside-forks-wait"]"#,
            r#"long runners: % of the frames on time ["frames-beside-pool"]"#,
            r#"containers: latency ["light-cgroup-p90"]"#,
            r#"wakeups: throughput ["wakeup-50-rps", "wakeup-95-rps"]"#,
            r#"wakeups: latency ["wakeup-50-p99"]"#,
            r#"switches: throughput ["pairs-8"]"#,
            r#"pinned: throughput ["pinned-hackbench"]"#,
            r#"pinned: context switches ["pinned-hackbench-switches"]"#,
            r#"a CPU idles while a task waits in its LLC: us a second ["idle-waiting-wakeup-50"]"#,
            r#"a CPU idles while a task waits in another LLC: us a second ["idle-beyond-locks"]"#,
            r#"others: throughput ["other"]"#,
        ];
        assert_eq!(groups, expected);
    }

    #[test]
    fn programs_tell_seconds_or_rates() {
        let time = ["cc1", "nginx-p99", "pinned-hackbench", "pinned-hackbench-switches", "cpu1-hackbench-pipe-2g"]
            .map(is_time);
        let rate =
            ["x264-fps", "nginx-rps", "postgres-write-tps", "pairs-8", "hog-beside-forks", "frames-beside-forks"]
                .map(is_time);
        assert_eq!((time, rate), ([true; 5], [false; 6]));
    }

    /// Their ratios would be of thousands, or of nothing.
    #[test]
    fn figures_that_may_be_0_are_not_ratios() {
        for (row, base, ours, expected) in [
            ("idle-waiting-mix", [20480.4, 20480.4], [0.0, 0.4], "| 20480 | 0 |"),
            ("smt-cores-apart", [97.0, 99.0], [100.0, 90.0], "| 98 | 95 |"),
            ("frames-beside-forks", [100.0, 99.0], [0.0, 0.0], "| 100 | 0 |"),
        ] {
            let lines = [rounds(row, BASE, &base), rounds(row, OURS, &ours)].concat();
            let mut text = Vec::new();
            results(&lines.iter().map(String::as_str).collect::<Vec<_>>()).markdown(&mut text, 0).unwrap();
            let text = String::from_utf8(text).unwrap();
            assert!(text.contains(&format!("| | |\n| {row} {expected}\n")), "{text}");
        }
    }

    /// A scheduler that has run once has no range, however often EEVDF has run.
    #[test]
    fn the_range_is_of_the_rounds_of_the_scheduler() {
        let mut lines = rounds("tbench", BASE, &[10.0, 10.0]);
        lines.extend(rounds("tbench", OURS, &[10.0, 20.0]));
        lines.extend(rounds("tbench", "scx_once", &[20.0]));
        let mut text = Vec::new();
        results(&lines.iter().map(String::as_str).collect::<Vec<_>>()).markdown(&mut text, 0).unwrap();
        let text = String::from_utf8(text).unwrap();
        assert!(text.contains("| tbench | 10.00 | 1.50 (1.00..2.00) | 2.00 |\n"), "{text}");
    }

    /// No idle time is better than some, by a finite ratio.
    #[test]
    fn no_time_at_all_is_a_microsecond() {
        let ratio = |base, ours| {
            let mut lines = rounds("idle-waiting-mix", BASE, &[base]);
            lines.extend(rounds("idle-waiting-mix", OURS, &[ours]));
            let results = results(&lines.iter().map(String::as_str).collect::<Vec<_>>());
            results.ratio(&[&"idle-waiting-mix".to_string()], OURS).unwrap().ratio
        };
        let ratios = [ratio(0.0, 0.0), ratio(50.0, 0.0), ratio(0.3, 50.0), ratio(50.0, 25.0)];
        assert_eq!(ratios.map(ratio_text), ["1.00", "50.00", "0.020", "2.00"]);
    }

    #[test]
    fn the_rounds_of_all_boots_count() {
        let boot = |base: &[f64], ours: &[f64]| {
            let lines = [rounds("tbench", BASE, base), rounds("tbench", OURS, ours)].concat();
            lines.into_iter().map(Ok)
        };
        let results = Results::read([boot(&[10.0, 12.0], &[20.0, 24.0]), boot(&[11.0], &[33.0])]).unwrap();
        assert_eq!((results.nr_rounds, results.median_of("tbench", OURS)), (3, Some(24.0)));
        assert_eq!(results.ratio(&[&"tbench".to_string()], OURS).unwrap().ratio, 24.0 / 11.0);
    }

    #[test]
    fn rounds_without_it_do_not_count() {
        let mut lines = rounds("tbench", BASE, &[10.0, 30.0, 40.0]);
        lines.extend(rounds("tbench", OURS, &[10.0]));
        let results = results(&lines.iter().map(String::as_str).collect::<Vec<_>>());
        assert!((results.ratio(&[&"tbench".to_string()], OURS).unwrap().ratio - 1.0).abs() < 1e-9);
    }

    #[test]
    fn noise_is_called_so() {
        let mut lines = rounds("tbench", BASE, &[10.0, 11.0, 9.0, 10.0, 12.0]);
        lines.extend(rounds("tbench", OURS, &[11.0, 9.0, 10.0, 12.0, 10.0]));
        let results = results(&lines.iter().map(String::as_str).collect::<Vec<_>>());
        assert!(results.ratio(&[&"tbench".to_string()], OURS).unwrap().is_noise());
    }

    #[test]
    fn who_ended_is_said_and_the_rest_goes_on() {
        let mut lines = rounds("tbench", BASE, &[10.0]);
        lines.push(r#"{"round":1,"scheduler":"scx_x","ended":"ejected: y"}"#.to_string());
        lines.push("bench: round 1".to_string());
        let results = results(&lines.iter().map(String::as_str).collect::<Vec<_>>());
        let mut text = Vec::new();
        results.markdown(&mut text, 0).unwrap();
        let text = String::from_utf8(text).unwrap();
        assert!(text.contains("| tbench | 10.00 | - |") && text.contains("scx_x, 1 times: ejected: y"), "{text}");
    }

    #[test]
    fn rows_that_are_alike_are_only_named() {
        let mut lines = Vec::new();
        for (row, ours, other) in [("tbench", 10.2, 9.8), ("nginx-rps", 10.0, 9.6), ("cc1", 10.0, 10.3)] {
            lines.extend(rounds(row, BASE, &[10.0]));
            lines.extend(rounds(row, OURS, &[ours]));
            lines.extend(rounds(row, "scx_x", &[other]));
        }
        let results = results(&lines.iter().map(String::as_str).collect::<Vec<_>>());
        let table = |percent| {
            let mut text = Vec::new();
            results.markdown(&mut text, percent).unwrap();
            String::from_utf8(text).unwrap()
        };
        let text = table(3);
        assert!(text.contains("| nginx-rps |") && !text.contains("| tbench |") && !text.contains("switches"), "{text}");
        assert!(text.contains("Within 3 % of EEVDF under all: cc1, tbench."), "{text}");
        assert!(table(0).contains("| tbench |"));
    }

    #[test]
    fn few_rounds_say_nothing() {
        let mut one = rounds("tbench", BASE, &[1.0]);
        one.extend(rounds("tbench", OURS, &[2.0]));
        let mut text = Vec::new();
        results(&one.iter().map(String::as_str).collect::<Vec<_>>()).markdown(&mut text, 0).unwrap();
        assert!(String::from_utf8(text).unwrap().contains("| tbench | 1.000 | 2.00 |"));
        for (nr, bold) in [(MIN_ROUNDS - 1, false), (MIN_ROUNDS, true)] {
            let mut lines = rounds("tbench", BASE, &vec![1.0; nr]);
            lines.extend(rounds("tbench", OURS, &vec![2.0; nr]));
            let mut text = Vec::new();
            results(&lines.iter().map(String::as_str).collect::<Vec<_>>()).markdown(&mut text, 0).unwrap();
            assert_eq!(String::from_utf8(text).unwrap().contains("| **2.00** ("), bold, "{nr}");
        }
    }

    #[test]
    fn small_ratios_are_not_zero() {
        assert_eq!([0.0041, 0.0996, 0.1, 1.0].map(ratio_text), ["0.004", "0.100", "0.10", "1.00"]);
    }

    #[test]
    fn no_base_is_an_error() {
        let lines = rounds("tbench", OURS, &[1.0]).into_iter().map(Ok);
        assert!(Results::read([lines]).is_err());
    }

    /// docs/benchmarks.md has what `magpie-table --differing 3 bench/rounds/KERNEL-*` prints.
    #[test]
    fn the_tables_of_the_docs_are_those_of_bench_rounds() {
        let top = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("..");
        let docs = fs::read_to_string(top.join("docs/benchmarks.md")).unwrap();
        for kernel in ["6.18", "7.3"] {
            let files = fs::read_dir(top.join("bench/rounds")).unwrap().map(|file| file.unwrap().path());
            let mut files: Vec<_> =
                files.filter(|file| file.file_name().unwrap().to_str().unwrap().starts_with(kernel)).collect();
            files.sort();
            let mut text = Vec::new();
            let parts = files.iter().map(|file| BufReader::new(File::open(file).unwrap()).lines());
            Results::read(parts).unwrap().markdown(&mut text, 3).unwrap();
            let text = String::from_utf8(text).unwrap();
            let table: Vec<&str> = text.lines().filter(|line| line.starts_with('|')).collect();
            assert!(table.len() > 30 && docs.contains(&table.join("\n")), "of {kernel}:\n{text}");
        }
    }
}

// SPDX-License-Identifier: GPL-2.0-only
//! `magpie-table`: evaluate the rounds of `bench/rounds.sh`, each scheduler against EEVDF:
//!
//! ```text
//! lines of JSON --> values by row and scheduler --> ratio to EEVDF's in each round --> mean, range    results.rs
//!               --> a table of Markdown; --json                                                       here, rows.rs
//!               --> --against FILE: which ratios lie in the ranges of a table there                   published.rs
//! ```
//!
//! A ratio above 1 is better than EEVDF, for times and for rates.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{BufRead, BufReader, Write, stdin, stdout};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use clap::Parser;

use crate::published::Published;
use crate::results::{BASE, MIN_ROUNDS, Ratio, Results};
use crate::rows::{Kind, grouped};

mod published;
mod results;
mod rows;

/// Wider ranges say nothing.
const WIDEST: f64 = 10.0;

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

    /// Print instead which ratios lie in the ranges of the table in FILE, such as
    /// docs/benchmarks.md: of the one below a heading that names the kernel, or else of the first.
    #[arg(long, value_name = "FILE")]
    against: Option<PathBuf>,
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

fn cell(ratio: Option<Ratio>) -> String {
    let Some(ratio) = ratio else { return "-".to_string() };
    let middle = ratio_text(ratio.ratio);
    let Some((low, high)) = ratio.range else { return middle };
    if high > low * WIDEST {
        return format!("{middle} (noise)");
    }
    let bold = if ratio.is_noise() { "" } else { "**" };
    format!("{bold}{middle}{bold} ({}..{})", ratio_text(low), ratio_text(high))
}

/// Print the table. Leave out rows in which all schedulers are alike within `percent`.
fn markdown(results: &Results, to: &mut impl Write, percent: u32) -> Result<()> {
    let names: Vec<&String> = results.others().collect();
    writeln!(to, "| | EEVDF | {} |", names.iter().map(|name| name.as_str()).collect::<Vec<_>>().join(" | "))?;
    writeln!(to, "|---|---|{}", "---|".repeat(names.len()))?;
    let cells = |rows: &[&str]| -> String {
        names.iter().map(|name| cell(results.ratio(rows, name))).collect::<Vec<_>>().join(" | ")
    };
    let plain = |row: &str, name: &str| {
        let decimals = if Kind::of(row) == Kind::OnTime { 1 } else { 0 };
        results.median_of(row, name).map_or("-".to_string(), |value| format!("{value:.decimals$}"))
    };
    let mut alike = Vec::new();
    for (group, mut rows) in grouped(&results.rows) {
        if percent > 0 {
            alike.extend(rows.extract_if(.., |row| results.is_alike(row, percent)));
        }
        let Some(first) = rows.first() else { continue };
        if Kind::of(first).is_plain() {
            writeln!(to, "| **{group}** |{}", " |".repeat(names.len() + 1))?;
            for row in rows {
                let values: Vec<_> = names.iter().map(|name| plain(row, name)).collect();
                writeln!(to, "| {row} | {} | {} |", plain(row, BASE), values.join(" | "))?;
            }
            continue;
        }
        writeln!(to, "| **{group}** | 1 | {} |", cells(&rows))?;
        for row in rows {
            let base = results.median_of(row, BASE).map_or("-".to_string(), figure);
            writeln!(to, "| {row} | {base} | {} |", cells(&[row]))?;
        }
    }
    writeln!(
        to,
        "\n{} rounds; ratio to EEVDF, above 1 is better, and from {MIN_ROUNDS} rounds on the range in which that of another round lies 19 times out of 20 (noise: it is wider than a factor of {WIDEST}); bold: the range excludes 1; a group: the geometric mean of its rows.",
        results.rows.iter().map(|row| results.nr_rounds_of(row)).max().unwrap_or_default()
    )?;
    if results.rows.iter().any(|row| Kind::of(row).is_plain()) {
        writeln!(to, "Groups in us or %: medians, not ratios.")?;
    }
    if !alike.is_empty() {
        writeln!(to, "Within {percent} % of EEVDF under all: {}.", alike.join(", "))?;
    }
    for version in &results.versions {
        writeln!(to, "{version}")?;
    }
    for ((scheduler, why), times) in &results.ended {
        writeln!(to, "{scheduler}, {times} times: {why}")?;
    }
    Ok(())
}

fn json(results: &Results) -> serde_json::Value {
    type Ratios<'a> = BTreeMap<&'a String, Option<Ratio>>;
    let of = |rows: &[&str]| -> Ratios { results.others().map(|name| (name, results.ratio(rows, name))).collect() };
    let ratios: BTreeMap<&String, Ratios> = results.rows.iter().map(|row| (row, of(&[row]))).collect();
    let groups: BTreeMap<String, Ratios> =
        grouped(&results.rows).into_iter().map(|(group, rows)| (group, of(&rows))).collect();
    serde_json::json!({"values": results.values, "ratios": ratios, "groups": groups})
}

fn read(files: &[PathBuf]) -> Result<Results> {
    if files.is_empty() {
        return Results::read([stdin().lock().lines()]);
    }
    let open = |path: &PathBuf| Ok(BufReader::new(File::open(path).with_context(|| text_of(path))?));
    let parts: Vec<_> = files.iter().map(open).collect::<Result<_>>()?;
    Results::read(parts.into_iter().map(BufRead::lines))
}

fn text_of(path: &Path) -> String {
    path.display().to_string()
}

fn main() -> Result<()> {
    let cli = Cli::parse();
    let results = read(&cli.files)?;
    if let Some(file) = &cli.json {
        fs::write(file, serde_json::to_string_pretty(&json(&results))?).with_context(|| text_of(file))?;
    }
    if let Some(file) = &cli.against {
        let text = fs::read_to_string(file).with_context(|| text_of(file))?;
        let published = Published::find(&text, results.kernel.as_deref()).with_context(|| text_of(file))?;
        return published.compare(&results, &mut stdout().lock());
    }
    markdown(&results, &mut stdout().lock(), cli.differing)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::results::OURS;
    use crate::results::tests::{results, rounds};

    fn table(lines: &[String], percent: u32) -> String {
        let mut text = Vec::new();
        markdown(&results(lines), &mut text, percent).unwrap();
        String::from_utf8(text).unwrap()
    }

    /// Their ratios would be of thousands, or of nothing.
    #[test]
    fn figures_that_may_be_0_are_not_ratios() {
        for (row, base, ours, expected) in [
            ("idle-waiting-mix", [20480.4, 20480.4], [0.0, 0.4], "| 20480 | 0 |"),
            ("smt-cores-apart", [97.0, 99.0], [100.0, 90.0], "| 98 | 95 |"),
            ("frames-beside-forks", [100.0, 99.0], [0.0, 0.0], "| 99.5 | 0.0 |"),
        ] {
            let text = table(&[rounds(row, BASE, &base), rounds(row, OURS, &ours)].concat(), 0);
            assert!(text.contains(&format!("| | |\n| {row} {expected}\n")), "{text}");
        }
    }

    #[test]
    fn a_range_that_excludes_1_is_bold() {
        for (ours, expected) in [
            (vec![11.0, 11.1], "1.10 |"),
            (vec![11.0, 11.1, 11.2], "**1.11** (1.06..1.16) |"),
            (vec![9.0, 11.0, 10.0], "1.00 (0.61..1.64) |"),
            (vec![5.0, 20.0, 10.0], "1.00 (noise) |"),
        ] {
            let text = table(&[rounds("tbench", BASE, &[10.0; 3]), rounds("tbench", OURS, &ours)].concat(), 0);
            assert!(text.contains(&format!("| tbench | 10.00 | {expected}\n")), "{text}");
        }
    }

    #[test]
    fn who_ended_is_said_and_the_rest_goes_on() {
        let mut lines = rounds("tbench", BASE, &[10.0]);
        lines.push(r#"{"round":1,"scheduler":"scx_x","ended":"ejected: y"}"#.to_string());
        lines.push("bench: round 1".to_string());
        let text = table(&lines, 0);
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
        let text = table(&lines, 3);
        assert!(text.contains("| nginx-rps |") && !text.contains("| tbench |") && !text.contains("switches"), "{text}");
        assert!(text.contains("Within 3 % of EEVDF under all: cc1, tbench."), "{text}");
        assert!(table(&lines, 0).contains("| tbench |"));
    }

    #[test]
    fn small_ratios_are_not_zero() {
        assert_eq!([0.0041, 0.0996, 0.1, 1.0].map(ratio_text), ["0.004", "0.100", "0.10", "1.00"]);
    }

    /// docs/benchmarks.md has what `magpie-table --differing 3 bench/rounds/KERNEL-*` prints, and all
    /// rows of real time.
    #[test]
    fn the_tables_of_the_docs_are_those_of_bench_rounds() {
        let top = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("..");
        let docs = fs::read_to_string(top.join("docs/benchmarks.md")).unwrap();
        for (kernel, differing) in [("6.18", 3), ("7.3", 3), ("real-time", 0)] {
            let files = fs::read_dir(top.join("bench/rounds")).unwrap().map(|file| file.unwrap().path());
            let mut files: Vec<_> =
                files.filter(|file| file.file_name().unwrap().to_str().unwrap().starts_with(kernel)).collect();
            files.sort();
            let mut text = Vec::new();
            markdown(&read(&files).unwrap(), &mut text, differing).unwrap();
            let text = String::from_utf8(text).unwrap();
            let table: Vec<&str> = text.lines().filter(|line| line.starts_with('|')).collect();
            assert!(table.len() > 20 && docs.contains(&table.join("\n")), "of {kernel}:\n{text}");
            // Of its own table no ratio is outside.
            let mut text = Vec::new();
            Published::find(&docs, Some(kernel)).unwrap().compare(&read(&files).unwrap(), &mut text).unwrap();
            let text = String::from_utf8(text).unwrap();
            let last = text.lines().last().unwrap();
            let nr: Vec<&str> = last.split(' ').collect();
            assert!(nr[0] == nr[2] && nr[0] != "0", "of {kernel}:\n{text}");
        }
    }
}

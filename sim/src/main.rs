// SPDX-License-Identifier: GPL-2.0-only
//! `magpie-sim`: run the scheduler with given flags on a simulated machine. README.md has examples.

use std::fmt::Display;
use std::fs::{self, File};
use std::io::{BufWriter, Write, stdin, stdout};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Instant;

use anyhow::{Context, Result, ensure};
use clap::{Args, Parser, Subcommand};
use magpie_sim::machine::{PRESETS, Shape};
use magpie_sim::report::Table;
use magpie_sim::scenario::{Outcome, Scenario};
use magpie_sim::workload::Workload;
use magpie_sim::{experiments, fuzz, growth, interleave, lines};

/// Failing seeds after which fuzz stops: they mostly share a cause. They are written to this folder.
const MAX_FAILURES: u64 = 5;
const FAILURES: &str = "sim-failures";

const SAMPLES: usize = 100;

const EXPERIMENT_RUNS: u64 = 3;

/// Cargo's name of this build.
const FEATURES: &str = if cfg!(feature = "sanitize") { " --features sanitize" } else { "" };

/// Run the scheduler's BPF code on a simulated machine.
///
/// The scheduler's own flags follow after `--`.
#[derive(Parser)]
#[command(args_conflicts_with_subcommands = true, after_help = presets())]
struct Cli {
    #[command(subcommand)]
    command: Option<Command>,
    #[command(flatten)]
    run: Run,
}

#[derive(Args)]
struct Run {
    /// A preset, or NODESxLLCSxCORESxSMT: LLCs per node, cores per LLC, CPUs per core. Core capacities may follow in
    /// order: 1x1x8x1:1024*4,430*4.
    #[arg(short, long, default_value = "vm", value_name = "MACHINE")]
    machine: Shape,

    /// A workload, NAME[:KEY=VALUE,...]. Give it several times to run several at once.
    #[arg(short, long = "workload", default_value = "rr", value_name = "WORKLOAD")]
    workloads: Vec<Workload>,

    /// Simulated time, in milliseconds.
    #[arg(long, default_value_t = 1000, value_name = "MS")]
    ms: u64,

    /// The first seed.
    #[arg(long, default_value_t = 1, value_name = "N")]
    seed: u64,

    /// Number of runs, each with its own seed. Prints the median and the range of each figure.
    #[arg(long, default_value_t = 1, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=1000))]
    runs: u64,

    /// Compare two sets of scheduler flags, side by side.
    #[arg(long, num_args = 2, value_names = ["A", "B"], allow_hyphen_values = true)]
    compare: Option<Vec<String>>,

    /// Each task's working set: what it has to load into its caches again on another core.
    #[arg(long, default_value_t = 32, value_name = "KB", value_parser = clap::value_parser!(u64).range(0..=1 << 20))]
    working_set_kb: u64,

    /// How much longer a task's work takes on another node than the one it starts on, %: its memory is there.
    #[arg(long, default_value_t = 0, value_name = "PERCENT", value_parser = clap::value_parser!(u64).range(0..=1000))]
    remote_memory_pct: u64,

    /// Start all tasks on the first N CPUs, an LLC or a node for example.
    #[arg(long, value_name = "N")]
    start_cpus: Option<usize>,

    /// Write a timeline of the first run to FILE, for Perfetto.
    #[arg(long, value_name = "FILE")]
    trace: Option<PathBuf>,

    /// The scheduler's flags, after `--`.
    #[arg(last = true, value_name = "FLAGS")]
    flags: Vec<String>,
}

#[derive(Subcommand)]
enum Command {
    /// Run random scenarios, and shrink those that fail.
    Fuzz(Seeds),
    /// Print the largest lag of a task in each random scenario, in slices, and in relation to its bound.
    Lags(Seeds),
    /// Count the instructions of a wakeup and a dispatch in LLCs of 8 to 256 CPUs, idle, half busy and overloaded.
    ///
    /// Fails if a count grows by more than a step for each CPU does.
    Growth,
    /// Print how many cache lines move in a wakeup and a switch, in LLCs of 64 and 256 CPUs. For a build with the feature `lines`.
    Lines {
        #[arg(long, default_value_t = 1, value_name = "N")]
        seed: u64,
    },
    /// Try all orders of what two CPUs do at the same time, for pairs such as a wakeup and a CPU that goes idle.
    ///
    /// Fails if a task waits next to an idle CPU after any order.
    Interleave,
    /// Compare each feature off and on, and check the claims of its original author. Prints medians of three seeds.
    ///
    /// Fails if a claim does not hold.
    Experiments,
    /// Run a scenario from a file (-: standard input).
    Replay {
        file: PathBuf,
        /// Write a timeline to FILE, for Perfetto.
        #[arg(long, value_name = "FILE")]
        trace: Option<PathBuf>,
        /// Print every callback, one per line.
        #[arg(long)]
        text: bool,
        /// Print nothing but the violation, as JSON.
        #[arg(long, hide = true)]
        verdict: bool,
    },
}

#[derive(Args)]
struct Seeds {
    /// A range of seeds, FROM..TO, or one seed.
    #[arg(long, default_value = "0..200", value_name = "SEEDS", value_parser = seeds)]
    seeds: Range<u64>,
}

fn presets() -> String {
    let lines: Vec<_> = PRESETS.iter().map(|(name, shape, what)| format!("  {name:<10} {shape:<22} {what}")).collect();
    format!("Machines:\n{}\n\nWorkloads:\n{}", lines.join("\n"), magpie_sim::workload::HELP)
}

fn seeds(text: &str) -> Result<Range<u64>, String> {
    let number = |text: &str| text.parse::<u64>().map_err(|_| format!("'{text}' is not a number"));
    match text.split_once("..") {
        Some((from, to)) => Ok(number(from)?..number(to)?),
        None => number(text).map(|seed| seed..seed + 1),
    }
}

fn main() -> ExitCode {
    let cli = Cli::parse();
    let held = match cli.command {
        None => run(&cli.run),
        Some(Command::Fuzz(Seeds { seeds })) => fuzz_seeds(seeds),
        Some(Command::Lags(Seeds { seeds })) => print_lags(seeds),
        Some(Command::Experiments) => {
            println!("{}", experiments::head());
            all_hold(experiments::rows(EXPERIMENT_RUNS), experiments::Row::holds)
        }
        Some(Command::Interleave) => {
            let outcomes = interleave::PAIRS.iter().map(interleave::Pair::try_all);
            all_hold(outcomes, |outcome| outcome.failed.is_none())
        }
        Some(Command::Growth) => {
            println!("{}", growth::head());
            growth::measure(SAMPLES).and_then(|rows| all_hold(rows.into_iter().map(Ok), growth::Row::is_bounded))
        }
        Some(Command::Lines { seed }) => lines(seed),
        Some(Command::Replay { file, trace, text, verdict }) => replay(&file, trace.as_deref(), text, verdict),
    };
    match held {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(err) => {
            eprintln!("magpie-sim: {err:#}");
            ExitCode::from(2)
        }
    }
}

/// Print each result. Return true if all hold.
fn all_hold<T: Display>(results: impl Iterator<Item = Result<T>>, holds: fn(&T) -> bool) -> Result<bool> {
    let mut all = true;
    for result in results {
        let result = result?;
        println!("{result}");
        all &= holds(&result);
    }
    Ok(all)
}

/// Run the workloads. Return true if all invariants held.
fn run(args: &Run) -> Result<bool> {
    let sets = args.compare.clone().unwrap_or_else(|| vec![String::new()]);
    let mut table = Table::default();
    let mut held = true;
    for (i, set) in sets.iter().enumerate() {
        let flags = [args.flags.join(" "), set.clone()].join(" ").trim().to_string();
        let mut reports = Vec::new();
        for seed in args.seed..args.seed + args.runs {
            let scenario = Scenario {
                machine: args.machine.clone(),
                flags: flags.clone(),
                workloads: args.workloads.clone(),
                ms: args.ms,
                seed,
                working_set_kb: Some(args.working_set_kb),
                remote_memory_pct: args.remote_memory_pct,
                start_cpus: args.start_cpus,
                ..Scenario::default()
            };
            let trace = args.trace.as_deref().filter(|_| i == 0 && seed == args.seed);
            let started = Instant::now();
            let mut outcome = scenario.run(trace.is_some())?;
            let (took, events) = (started.elapsed().as_secs_f64(), outcome.report.events as f64);
            if let Some(path) = trace {
                write_trace(&outcome, path)?;
            }
            held &= explain(&mut outcome, &format!("seed {seed}: "));
            eprintln!("seed {seed}: {events} events in {took:.2} s: {:.2} million a second", events / took / 1e6);
            reports.push(outcome.report);
        }
        table.add(if flags.is_empty() { "defaults" } else { &flags }, &reports);
    }
    print!("{table}");
    Ok(held)
}

/// Print the violation, and the lags at a violated bound of service. Return true if there is none.
fn explain(outcome: &mut Outcome, whose: &str) -> bool {
    let Some(violation) = &outcome.violation else { return true };
    println!("{whose}{violation}");
    if violation.kind == "service" {
        print!("{}", outcome.kernel.lags_on(outcome.report.largest_lag.cpu, violation.at));
    }
    false
}

fn lines(seed: u64) -> Result<bool> {
    ensure!(
        cfg!(feature = "lines"),
        "this build does not count lines: cargo run --release -p magpie-sim --features lines -- lines"
    );
    all_hold(lines::measure(seed)?.into_iter().map(Ok), |_| true)
}

fn write_trace(outcome: &Outcome, path: &Path) -> Result<()> {
    let file = File::create(path).with_context(|| format!("cannot write {}", path.display()))?;
    let mut out = BufWriter::new(file);
    outcome.kernel.write_perfetto(&mut out)?;
    out.flush()?;
    eprintln!("{}: open it in Perfetto's trace viewer", path.display());
    Ok(())
}

fn replay(file: &Path, trace: Option<&Path>, text: bool, verdict: bool) -> Result<bool> {
    let json = if file == Path::new("-") { std::io::read_to_string(stdin()) } else { fs::read_to_string(file) };
    let json = json.with_context(|| format!("replay: cannot read {}", file.display()))?;
    let scenario: Scenario = serde_json::from_str(&json).context("replay: not a scenario")?;
    let mut outcome = scenario.run(trace.is_some() || text).context("replay:")?;
    if let Some(path) = trace {
        write_trace(&outcome, path)?;
    }
    if text {
        outcome.kernel.write_text(&mut BufWriter::new(stdout().lock()))?;
    }
    if verdict {
        println!("{}", serde_json::to_string(&outcome.violation)?);
        return Ok(true);
    }
    if !explain(&mut outcome, "") {
        return Ok(false);
    }
    println!("all invariants hold");
    let mut table = Table::default();
    table.add("", &[outcome.report]);
    print!("{table}");
    Ok(true)
}

/// Print the largest lags of random scenarios, the largest one last. Return true if all are in bounds.
fn print_lags(seeds: Range<u64>) -> Result<bool> {
    let mut rows = Vec::new();
    for seed in seeds {
        let (lag, violation) = fuzz::measure_lag(seed)?;
        let ended = violation.map_or(String::new(), |violation| format!("; ended early: {violation}"));
        rows.push((lag.of_bound, format!("seed {seed}: {lag}{ended}")));
    }
    rows.sort_by(|(a, _), (b, _)| a.total_cmp(b));
    rows.iter().for_each(|(_, text)| println!("{text}"));
    let above = rows.iter().filter(|(of_bound, _)| *of_bound > 1.0).count();
    println!("{above} of {} are above the bound", rows.len());
    Ok(above == 0)
}

/// Run random scenarios. Return true if all invariants held.
fn fuzz_seeds(seeds: Range<u64>) -> Result<bool> {
    ensure!(!seeds.is_empty(), "no seeds");
    let exe = std::env::current_exe()?;
    let (next, held, failed) = (AtomicU64::new(seeds.start), AtomicU64::new(0), AtomicU64::new(0));
    let started = Instant::now();
    let worker = || -> Result<()> {
        while failed.load(Ordering::Relaxed) < MAX_FAILURES {
            let seed = next.fetch_add(1, Ordering::Relaxed);
            if seed >= seeds.end {
                break;
            }
            let Some((scenario, violation)) = fuzz::run_seed(&exe, seed)? else {
                held.fetch_add(1, Ordering::Relaxed);
                continue;
            };
            failed.fetch_add(1, Ordering::Relaxed);
            let path = format!("{FAILURES}/seed-{seed}.json");
            fs::create_dir_all(FAILURES).with_context(|| format!("cannot make {FAILURES}"))?;
            fs::write(&path, serde_json::to_string_pretty(&scenario)?)?;
            println!(
                "seed {seed}: {violation}\n  replay: cargo run --release -p magpie-sim{FEATURES} -- replay {path}"
            );
        }
        Ok(())
    };
    thread::scope(|scope| {
        let nr = thread::available_parallelism().map_or(1, usize::from);
        let workers: Vec<_> = (0..nr).map(|_| scope.spawn(worker)).collect();
        workers.into_iter().try_for_each(|worker| worker.join().expect("a worker does not panic"))
    })?;
    let (held, failed, all) = (held.into_inner(), failed.into_inner(), seeds.end - seeds.start);
    println!("{held} of {all} seeds hold, {failed} fail; {:.0} s", started.elapsed().as_secs_f64());
    if held + failed < all {
        println!("stopped after {failed} failures: {} seeds have not been tried", all - held - failed);
    }
    Ok(failed == 0)
}

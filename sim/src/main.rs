// SPDX-License-Identifier: GPL-2.0-only
//! `magpie-sim`: run the scheduler with given flags on a simulated machine.
//!
//! ```text
//! magpie-sim --machine 112 --workload rr:pairs=56 --slice-us 1000       run, report
//! magpie-sim ... --trace FILE                                           write a timeline for Perfetto
//! magpie-sim ... --compare "" "--no-wakeup-preempt"                     compare two sets of flags
//! magpie-sim fuzz --seeds 0..200                                        scenarios by chance; failures are shrunk
//! magpie-sim lags --seeds 0..200                                        the largest lag of each such scenario
//! magpie-sim growth                                                     instructions a callback as an LLC grows
//! magpie-sim lines                                                      cache lines that move
//! magpie-sim replay FILE                                                a scenario, such as fuzz leaves
//! ```

use std::fs::File;
use std::io::{BufWriter, Read, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Instant;

use anyhow::{Context, Result, bail, ensure};
use clap::{Args, Parser, Subcommand};
use magpie_sim::cgroup::Spec;
use magpie_sim::experiments;
use magpie_sim::fuzz::{self, Verdict};
use magpie_sim::lines;
use magpie_sim::machine::{PRESETS, Shape};
use magpie_sim::report::Table;
use magpie_sim::scenario::{Outcome, Scenario};
use magpie_sim::workload::Workload;
use magpie_sim::{growth, interleave};

/// Failing seeds after which fuzz stops: they mostly share a cause.
const MAX_FAILURES: u64 = 5;

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

    /// Put all tasks into a cgroup this many levels below the root, each level with one child.
    #[arg(long, default_value_t = 0, value_name = "LEVELS", value_parser = clap::value_parser!(u32).range(0..=32))]
    cgroup_level: u32,

    /// Leave out the background load: kernel threads and the loader.
    #[arg(long)]
    no_noise: bool,

    /// Write a timeline of the first run to FILE, for Perfetto.
    #[arg(long, value_name = "FILE")]
    trace: Option<PathBuf>,

    /// Print the reports of all runs as JSON.
    #[arg(long)]
    json: bool,

    /// The scheduler's flags, after `--`.
    #[arg(last = true, value_name = "FLAGS")]
    flags: Vec<String>,
}

#[derive(Subcommand)]
enum Command {
    /// Run random scenarios, and shrink those that fail.
    Fuzz {
        /// A range of seeds, FROM..TO, or one seed.
        #[arg(long, default_value = "0..200", value_name = "SEEDS", value_parser = seeds)]
        seeds: std::ops::Range<u64>,
        /// Folder for failed scenarios.
        #[arg(long, default_value = "sim-failures", value_name = "DIR")]
        out: PathBuf,
    },
    /// Print the largest lag of a task in each random scenario, in slices, and in relation to its bound.
    Lags {
        /// A range of seeds, FROM..TO, or one seed.
        #[arg(long, default_value = "0..200", value_name = "SEEDS", value_parser = seeds)]
        seeds: std::ops::Range<u64>,
        /// Write the scenarios above the bound to this folder, for replay. They are not shrunk.
        #[arg(long, value_name = "DIR")]
        out: Option<PathBuf>,
    },
    /// Count the instructions of a wakeup and a dispatch in LLCs of 8 to 256 CPUs, idle, half busy and overloaded.
    ///
    /// Fails if a count grows by more than a step for each CPU does.
    Growth {
        /// Callbacks to count at each size.
        #[arg(long, default_value_t = 100, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=100_000))]
        samples: u64,
        #[arg(long, default_value_t = 1, value_name = "N")]
        seed: u64,
        /// The scheduler's flags, after `--`.
        #[arg(last = true, value_name = "FLAGS")]
        flags: Vec<String>,
    },
    /// Print how many cache lines move in a wakeup and a switch, in LLCs of 64 and 256 CPUs. For a build with the feature `lines`.
    Lines {
        #[arg(long, default_value_t = 1, value_name = "N")]
        seed: u64,
        /// The scheduler's flags, after `--`.
        #[arg(last = true, value_name = "FLAGS")]
        flags: Vec<String>,
    },
    /// Try all orders of what two CPUs do at the same time, for pairs such as a wakeup and a CPU that goes idle.
    ///
    /// Fails if a task waits next to an idle CPU after any order.
    Interleave,
    /// Compare each feature off and on, and check the claims of its original author.
    ///
    /// Fails if a claim does not hold.
    Experiments {
        /// Runs of each, every one with its own seed. Prints medians.
        #[arg(long, default_value_t = 3, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=100))]
        runs: u64,
    },
    /// Run a scenario from a file (-: standard input).
    Replay {
        file: PathBuf,
        /// Write a timeline to FILE, for Perfetto.
        #[arg(long, value_name = "FILE")]
        trace: Option<PathBuf>,
        /// Print every callback, one per line.
        #[arg(long)]
        text: bool,
        /// Print nothing but the verdict, as JSON.
        #[arg(long, hide = true)]
        verdict: bool,
    },
}

fn presets() -> String {
    let lines: Vec<_> = PRESETS.iter().map(|(name, shape, what)| format!("  {name:<10} {shape:<22} {what}")).collect();
    format!("Machines:\n{}\n\nWorkloads:\n{}", lines.join("\n"), magpie_sim::workload::HELP)
}

fn seeds(text: &str) -> Result<std::ops::Range<u64>, String> {
    let number = |text: &str| text.parse::<u64>().map_err(|_| format!("'{text}' is not a number"));
    match text.split_once("..") {
        Some((from, to)) => Ok(number(from)?..number(to)?),
        None => number(text).map(|seed| seed..seed + 1),
    }
}

fn main() -> ExitCode {
    let cli = Cli::parse();
    let done = match cli.command {
        None => run(&cli.run),
        Some(Command::Fuzz { seeds, out }) => fuzz_seeds(seeds, &out),
        Some(Command::Experiments { runs }) => run_experiments(runs),
        Some(Command::Interleave) => try_orders(),
        Some(Command::Lags { seeds, out }) => print_lags(seeds, out.as_deref()),
        Some(Command::Growth { samples, seed, flags }) => grow(samples as usize, seed, &flags),
        Some(Command::Lines { seed, flags }) => lines(seed, &flags),
        Some(Command::Replay { file, trace, text, verdict }) => replay(&file, trace.as_deref(), text, verdict),
    };
    match done {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(err) => {
            eprintln!("magpie-sim: {err:#}");
            ExitCode::from(2)
        }
    }
}

/// Run the workloads. Return true if all invariants held.
fn run(args: &Run) -> Result<bool> {
    let sets: Vec<Vec<String>> = match &args.compare {
        // Split at white space, without quotes: no flag needs them.
        Some(sets) => sets.iter().map(|set| set.split_whitespace().map(str::to_string).collect()).collect(),
        None => vec![vec![]],
    };
    let mut table = Table::default();
    let mut held = true;
    for (i, set) in sets.iter().enumerate() {
        let mut reports = Vec::new();
        for seed in args.seed..args.seed + args.runs {
            let scenario = Scenario {
                machine: args.machine.clone(),
                flags: args.flags.iter().chain(set).cloned().collect(),
                workloads: args.workloads.clone(),
                cgroups: (0..args.cgroup_level as usize).map(|parent| Spec { parent, ..Spec::default() }).collect(),
                places: vec![args.cgroup_level as usize; args.workloads.len()],
                ms: args.ms,
                seed,
                working_set_kb: Some(args.working_set_kb),
                remote_memory_pct: args.remote_memory_pct,
                start_cpus: args.start_cpus,
                noise: !args.no_noise,
                ..Scenario::default()
            };
            let trace = args.trace.as_deref().filter(|_| i == 0 && seed == args.seed);
            let started = Instant::now();
            let mut outcome = scenario.run(trace.is_some())?;
            let took = started.elapsed().as_secs_f64();
            if let Some(path) = trace {
                write_trace(&outcome, path)?;
            }
            if let Some(violation) = &outcome.violation {
                held = false;
                println!("seed {seed}: {violation}");
            }
            print_lags_at_violation(&mut outcome);
            let events = outcome.report.events as f64;
            eprintln!("seed {seed}: {events} events in {took:.2} s: {:.2} million a second", events / took / 1e6);
            reports.push(outcome.report);
        }
        if args.json {
            println!("{}", serde_json::to_string(&reports)?);
        }
        let flags: Vec<_> = args.flags.iter().chain(set).map(String::as_str).collect();
        let name = if flags.is_empty() { "defaults".into() } else { flags.join(" ") };
        table.add(&name, &reports);
    }
    if !args.json {
        print!("{table}");
    }
    Ok(held)
}

/// Explain a violated bound of service.
fn print_lags_at_violation(outcome: &mut Outcome) {
    if let Some(violation) = outcome.violation.as_ref().filter(|violation| violation.kind == "service") {
        print!("{}", outcome.kernel.lags_on(outcome.report.largest_lag.cpu, violation.at));
    }
}

/// Measure growth. Return true if no count grows by too much per CPU.
fn grow(samples: usize, seed: u64, flags: &[String]) -> Result<bool> {
    let rows = growth::measure(flags, samples, seed)?;
    print!("{}", growth::Table(&rows));
    Ok(rows.iter().all(|row| row.wakeup.is_bounded() && row.dispatch.is_bounded()))
}

/// Try all interleavings. Return true if all invariants held.
fn try_orders() -> Result<bool> {
    let mut hold = true;
    for pair in interleave::PAIRS {
        let outcome = pair.try_all()?;
        println!("{outcome}");
        hold &= outcome.failed.is_none();
    }
    Ok(hold)
}

fn lines(seed: u64, flags: &[String]) -> Result<bool> {
    ensure!(
        cfg!(feature = "lines"),
        "this build does not count lines: cargo run --release -p magpie-sim --features lines -- lines"
    );
    for table in lines::measure(flags, seed)? {
        println!("{table}");
    }
    Ok(true)
}

/// Run the experiments. Return true if all claims hold.
fn run_experiments(runs: u64) -> Result<bool> {
    let mut all = true;
    println!("{}", experiments::head());
    experiments::run(runs, |row| {
        println!("{row}");
        all &= row.holds();
    })?;
    Ok(all)
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
    let mut json = String::new();
    if file == Path::new("-") {
        std::io::stdin().read_to_string(&mut json)?;
    } else {
        json = std::fs::read_to_string(file).with_context(|| format!("replay: cannot read {}", file.display()))?;
    }
    let scenario: Scenario = serde_json::from_str(&json).context("replay: not a scenario")?;
    let mut outcome = scenario.run(trace.is_some() || text).context("replay:")?;
    if let Some(path) = trace {
        write_trace(&outcome, path)?;
    }
    if text {
        outcome.kernel.write_text(&mut BufWriter::new(std::io::stdout().lock()))?;
    }
    if verdict {
        let verdict = outcome.violation.map_or(Verdict::Holds, Verdict::Violation);
        println!("{}", serde_json::to_string(&verdict)?);
        return Ok(true);
    }
    match &outcome.violation {
        None => println!("all invariants hold"),
        Some(violation) => {
            println!("{violation}");
            print_lags_at_violation(&mut outcome);
            return Ok(false);
        }
    }
    let mut table = Table::default();
    table.add("", &[outcome.report]);
    print!("{table}");
    Ok(true)
}

/// Print the largest lags of random scenarios, the largest one last. Return true if all are in bounds.
fn print_lags(seeds: std::ops::Range<u64>, out: Option<&Path>) -> Result<bool> {
    let mut rows = Vec::new();
    for seed in seeds {
        let (lag, violation) = fuzz::measure_lag(seed)?;
        if let Some(out) = out.filter(|_| lag.of_bound > 1.0) {
            std::fs::create_dir_all(out).with_context(|| format!("cannot make {}", out.display()))?;
            let json = serde_json::to_string_pretty(&fuzz::scenario(seed))?;
            std::fs::write(out.join(format!("seed-{seed}.json")), json)?;
        }
        rows.push((seed, lag, violation));
    }
    rows.sort_by(|(_, a, _), (_, b, _)| a.of_bound.total_cmp(&b.of_bound));
    for (seed, lag, violation) in &rows {
        let ended = violation.as_ref().map_or(String::new(), |violation| format!("; ended early: {violation}"));
        println!(
            "seed {seed}: {:.3} of the bound: {:.1} slices, {:.1} ms, task {} on CPU {} at {} us{ended}",
            lag.of_bound,
            lag.slices,
            lag.lag_us / 1000.0,
            lag.task,
            lag.cpu,
            lag.at_us
        );
    }
    let above = rows.iter().filter(|(_, lag, _)| lag.of_bound > 1.0).count();
    println!("{above} of {} are above the bound", rows.len());
    Ok(above == 0)
}

/// Run random scenarios. Return true if all invariants held.
fn fuzz_seeds(seeds: std::ops::Range<u64>, out: &Path) -> Result<bool> {
    if seeds.is_empty() {
        bail!("no seeds");
    }
    let exe = std::env::current_exe()?;
    let (next, held, failed) = (AtomicU64::new(seeds.start), AtomicU64::new(0), AtomicU64::new(0));
    let workers = thread::available_parallelism().map_or(1, usize::from);
    let started = Instant::now();
    thread::scope(|scope| {
        let worker = || -> Result<()> {
            while failed.load(Ordering::Relaxed) < MAX_FAILURES {
                let seed = next.fetch_add(1, Ordering::Relaxed);
                if seed >= seeds.end {
                    break;
                }
                let Some(failure) = fuzz::run_seed(&exe, seed)? else {
                    held.fetch_add(1, Ordering::Relaxed);
                    continue;
                };
                failed.fetch_add(1, Ordering::Relaxed);
                std::fs::create_dir_all(out).with_context(|| format!("cannot make {}", out.display()))?;
                let path = out.join(format!("seed-{seed}.json"));
                std::fs::write(&path, serde_json::to_string_pretty(&failure.scenario)?)?;
                let what = match failure.verdict {
                    Verdict::Violation(violation) => violation.to_string(),
                    Verdict::Crash(said) => format!("crash: {said}"),
                    Verdict::Holds => "holds".into(),
                };
                let path = path.display();
                println!("seed {seed}: {what}\n  replay: cargo run --release -p magpie-sim{FEATURES} -- replay {path}");
            }
            Ok(())
        };
        let workers: Vec<_> = (0..workers).map(|_| scope.spawn(worker)).collect();
        workers.into_iter().try_for_each(|worker| worker.join().expect("a worker does not panic"))
    })?;
    let (held, failed, all) = (held.into_inner(), failed.into_inner(), seeds.end - seeds.start);
    println!("{held} of {all} seeds hold, {failed} fail; {:.0} s", started.elapsed().as_secs_f64());
    if held + failed < all {
        println!("stopped after {failed} failures: {} seeds have not been tried", all - held - failed);
    }
    Ok(failed == 0)
}

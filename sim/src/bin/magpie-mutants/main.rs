// SPDX-License-Identifier: GPL-2.0-only
//! `magpie-mutants`: do the invariants catch faults? Plants one bug at a time (list.rs) into a copy of the BPF sources,
//! builds the simulator with it, and runs scenarios by chance until an invariant does not hold.
//!
//! ```text
//! src/bpf --copy, plant--> folder --cargo, feature `mutant`--> magpie-mutant --seeds--> caught, by kind and seed
//!                                                               without the bug: the same seed holds
//! ```
//!
//! Fails if a bug survives that is not known to (`survives`), or cannot be planted, for the source has changed.

mod list;

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::RecvTimeoutError;
use std::sync::{Mutex, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use clap::Parser;
use magpie_sim::checks::Violation;

use list::{MUTANTS, Mutant};

/// A scenario that takes longer hangs.
const DEADLINE: Duration = Duration::from_secs(60);

/// Mutants in work: while one is built, the other is tried.
const WORKERS: usize = 2;

/// Plants bugs into the scheduler, one at a time, and tells which invariant catches each.
#[derive(Parser)]
struct Cli {
    /// Scenarios that may be tried on each.
    #[arg(long, default_value_t = 500, value_name = "N")]
    seeds: u64,

    /// Only those whose name contains one of these.
    #[arg(value_name = "NAME")]
    names: Vec<String>,
}

/// What a program said of the seeds that it was given.
#[derive(Debug)]
enum Answer {
    Holds,
    Fails { seed: u64, kind: String, what: String },
}

fn main() -> ExitCode {
    match run(&Cli::parse()) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(err) => {
            eprintln!("magpie-mutants: {err:#}");
            ExitCode::from(2)
        }
    }
}

/// True if all bugs are caught that are not known to survive.
fn run(args: &Cli) -> Result<bool> {
    let started = Instant::now();
    let work = Workshop::new()?;
    let unbroken = work.build("unbroken", None)?;
    let wanted = |name: &str| args.names.is_empty() || args.names.iter().any(|part| name.contains(part));
    let mutants: Vec<_> = MUTANTS.iter().filter(|mutant| wanted(mutant.name)).collect();
    ensure!(!mutants.is_empty(), "no such mutant");
    let (next, good) = (AtomicUsize::new(0), AtomicBool::new(true));
    thread::scope(|scope| {
        let worker = || -> Result<()> {
            while let Some(mutant) = mutants.get(next.fetch_add(1, Ordering::Relaxed)) {
                let exe = work.build(mutant.name, Some(mutant))?;
                let caught = catch(&exe, &unbroken, args.seeds)?;
                let (name, what) = (mutant.name, mutant.what);
                let (verdict, ok) = match (&caught, mutant.survives) {
                    (Answer::Fails { seed, kind, what }, None) => (format!("{kind}, seed {seed}: {what}"), true),
                    // No matter: by another way than its own, or the invariants have become better than the list.
                    (Answer::Fails { seed, kind, what }, Some(_)) => {
                        (format!("{kind}, seed {seed}: {what} (the list says that it survives)"), true)
                    }
                    (Answer::Holds, Some(why)) => (format!("survives: {why}"), true),
                    (Answer::Holds, None) => (format!("SURVIVES {} seeds", args.seeds), false),
                };
                println!("{name:<24} {what}\n{:24} -> {verdict}", "");
                if !ok {
                    good.store(false, Ordering::Relaxed);
                }
                fs::remove_file(&exe)?;
            }
            Ok(())
        };
        let workers: Vec<_> = (0..WORKERS).map(|_| scope.spawn(worker)).collect();
        workers.into_iter().try_for_each(|worker| worker.join().expect("a worker does not panic"))
    })?;
    println!("{} mutants; {:.0} s", mutants.len(), started.elapsed().as_secs_f64());
    Ok(good.into_inner())
}

/// Looks for a seed that fails with the bug, twice, and holds without it.
fn catch(exe: &Path, unbroken: &Path, seeds: u64) -> Result<Answer> {
    let mut from = 0;
    loop {
        let first = ask(exe, from, seeds)?;
        let Answer::Fails { seed, kind, what } = &first else { return Ok(first) };
        match ask(exe, *seed, seed + 1)? {
            Answer::Fails { kind: again, what: same, .. } if (&again, &same) == (kind, what) => {}
            other => bail!("seed {seed} gave {first:?}, and then {other:?}"),
        }
        if matches!(ask(unbroken, *seed, seed + 1)?, Answer::Holds) {
            return Ok(first);
        }
        eprintln!("seed {seed} fails without a bug, too");
        from = seed + 1;
    }
}

/// Runs a program on seeds.
fn ask(exe: &Path, from: u64, to: u64) -> Result<Answer> {
    let mut child = Command::new(exe)
        .args([from.to_string(), to.to_string()])
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .with_context(|| format!("cannot run {}", exe.display()))?;
    let stdout = child.stdout.take().context("no stdout")?;
    let (said, lines) = mpsc::channel();
    thread::spawn(move || BufReader::new(stdout).lines().map_while(Result::ok).try_for_each(|line| said.send(line)));
    let (mut seed, mut last) = (from, String::new());
    let hangs = loop {
        match lines.recv_timeout(DEADLINE) {
            Ok(line) => {
                if let Some(number) = line.strip_prefix("seed ") {
                    seed = number.parse()?;
                }
                last = line;
            }
            Err(RecvTimeoutError::Disconnected) => break false,
            Err(RecvTimeoutError::Timeout) => break true,
        }
    };
    if hangs {
        child.kill()?;
    }
    let status = child.wait()?;
    if last == "holds" {
        return Ok(Answer::Holds);
    }
    let (kind, what) = match serde_json::from_str::<Violation>(&last) {
        Ok(violation) => (violation.kind.clone(), violation.what),
        Err(_) if hangs => ("hang".into(), format!("it takes more than {} s", DEADLINE.as_secs())),
        Err(_) => ("crash".into(), status.to_string()),
    };
    Ok(Answer::Fails { seed, kind, what })
}

/// Where mutants are made: one at a time, while another is being tried.
struct Workshop {
    folder: PathBuf,
    building: Mutex<()>,
}

impl Workshop {
    fn new() -> Result<Self> {
        let exe = std::env::current_exe()?;
        let folder = exe.parent().context("no folder")?.join("mutants");
        fs::create_dir_all(&folder)?;
        Ok(Self { folder, building: Mutex::new(()) })
    }

    /// The program `magpie-mutant` with the bug.
    fn build(&self, name: &str, mutant: Option<&Mutant>) -> Result<PathBuf> {
        let _alone = self.building.lock().expect("no builder panics");
        let sim = Path::new(env!("CARGO_MANIFEST_DIR"));
        // Always the same folder, so that nothing but the source changes.
        let planted = self.folder.join("bpf");
        if planted.exists() {
            fs::remove_dir_all(&planted)?;
        }
        let source = sim.join("../src/bpf");
        for file in files_below(&source)? {
            let mut text = fs::read_to_string(source.join(&file))?;
            if let Some(mutant) = mutant
                && file == Path::new(mutant.file)
            {
                let found = text.matches(mutant.find).count();
                ensure!(found == 1, "{name}: what it replaces is found {found} times in {}", mutant.file);
                text = text.replace(mutant.find, mutant.replace);
            }
            let copy = planted.join(&file);
            fs::create_dir_all(copy.parent().context("no folder")?)?;
            fs::write(copy, text)?;
        }
        let built = Command::new(env!("CARGO"))
            .args(["build", "--quiet", "--release", "--locked", "--bin", "magpie-mutant", "--features", "mutant"])
            .current_dir(sim)
            .env("MAGPIE_BPF_DIR", &planted)
            // The Rust half does not change.
            .env("CARGO_INCREMENTAL", "1")
            .output()?;
        if !built.status.success() {
            bail!("{name} does not build:\n{}", String::from_utf8_lossy(&built.stderr));
        }
        let exe = self.folder.parent().context("no folder")?.join("magpie-mutant");
        let to = self.folder.join(name);
        fs::copy(exe, &to)?;
        Ok(to)
    }
}

/// The files of a folder and of those directly in it, relative to it.
fn files_below(folder: &Path) -> Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let name = PathBuf::from(entry.file_name());
        if entry.file_type()?.is_dir() {
            for below in fs::read_dir(entry.path())? {
                files.push(name.join(below?.file_name()));
            }
        } else {
            files.push(name);
        }
    }
    Ok(files)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// So that a change of the source shows here, and not only when all of them are tried.
    #[test]
    fn each_can_be_planted() {
        let bpf = Path::new(env!("CARGO_MANIFEST_DIR")).join("../src/bpf");
        let stale: Vec<_> = (MUTANTS.iter())
            .filter(|mutant| fs::read_to_string(bpf.join(mutant.file)).unwrap().matches(mutant.find).count() != 1)
            .map(|mutant| format!("{} in {}: {}", mutant.name, mutant.file, mutant.find))
            .collect();
        assert!(stale.is_empty(), "not found exactly once:\n{}", stale.join("\n"));
    }
}

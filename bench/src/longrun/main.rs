// SPDX-License-Identifier: GPL-2.0-only
//! `magpie-longrun`: how much of the CPUs long runners get alongside newcomers, and how long they
//! wait. All of them are processes, because threads of one process never run at the same time
//! under User Mode Linux:
//!
//! ```text
//! runner:        calculate --> read the clock --> again; or with --frames: a frame a period
//! fork loop:     fork --> the child works for RUN and exits --> wait for it --> again
//! worker:        wait for a turn --> work for RUN --> wake the worker idle the longest --> again
//! main:          start all --> warm-up --> read CPU times --> SECONDS --> read again --> kill all
//! ```
//!
//! Work is CPU time: a process that is preempted has as much left to do as before.

mod actors;
mod frames;
mod shared;

use std::fs;
use std::path::PathBuf;
use std::sync::atomic::Ordering::{Relaxed, SeqCst};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use clap::Parser;
use clap::error::ErrorKind;
use nix::sched::{CpuSet, sched_getaffinity};
use nix::sys::prctl::set_child_subreaper;
use nix::sys::signal::{Signal, kill};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::time::clock_getcpuclockid;
use nix::unistd::{ForkResult, Pid, fork, getpid};
use serde::Serialize;

use actors::{Actor, Speed, die_with};
use frames::Frames;
use shared::{MOST, Map, Shared, now, read};

/// Time that all processes run before the measured time, ns.
const WARM_UP: u64 = 300_000_000;

/// Long runners alongside newcomers: which part of the CPUs they get, and how long they wait.
#[derive(Parser)]
struct Cli {
    /// Processes that never sleep, 1..1000.
    #[arg(long, default_value_t = 1, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=MOST as i64))]
    runners: u32,

    /// Instead of runners, one process that draws a frame each period. A frame is on time if it is
    /// finished before the next one begins. CPU time of a frame, and period, us.
    #[arg(long, value_name = "WORK_US,PERIOD_US", conflicts_with = "runners")]
    frames: Option<Frames>,

    /// Processes that fork a child, wait for its exit, and fork the next one, 0..1000.
    #[arg(long, default_value_t = 0, value_name = "N", value_parser = clap::value_parser!(u32).range(0..=MOST as i64))]
    forks: u32,

    /// Processes that take turns, 0..1000. The one that has been idle the longest is next.
    #[arg(long, default_value_t = 0, value_name = "N", value_parser = clap::value_parser!(u32).range(0..=MOST as i64))]
    pool: u32,

    /// How many of the pool work at a time, 1..POOL.
    #[arg(long, default_value_t = 1, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=MOST as i64))]
    working: u32,

    /// CPU time of a forked child, and of a turn in the pool. Microseconds, 1..10000000.
    #[arg(long, default_value_t = 2000, value_name = "US", value_parser = clap::value_parser!(u64).range(1..=10_000_000))]
    run_us: u64,

    /// Nice value of the runners, -20..19.
    #[arg(long, default_value_t = 0, value_name = "N", allow_negative_numbers = true,
        value_parser = clap::value_parser!(i32).range(-20..=19))]
    nice: i32,

    /// Folders of cgroups: the first one for the runners, the second one for all others.
    #[arg(long, value_name = "RUNNERS,OTHERS", value_delimiter = ',', num_args = 1)]
    groups: Vec<PathBuf>,

    /// Time that the run takes, after 0.3 s of warm-up. Seconds, 1..86400.
    #[arg(short, default_value_t = 3, value_name = "SEC", value_parser = clap::value_parser!(u64).range(1..=86_400))]
    r: u64,

    /// Print a line of JSON.
    #[arg(long)]
    json: bool,
}

impl Cli {
    /// Return an error in one line if options contradict each other.
    fn check(self) -> Result<Self, clap::Error> {
        let error = |text: &str| Err(clap::Error::raw(ErrorKind::ValueValidation, format!("{text}\n")));
        if self.pool > 0 && self.working > self.pool {
            return error("--working is more than --pool");
        }
        if !matches!(self.groups.len(), 0 | 2) {
            return error("--groups needs two folders: RUNNERS,OTHERS");
        }
        Ok(self)
    }
}

#[derive(Debug, Serialize)]
struct Report {
    /// CPU time of the runners, % of the CPUs that they may use.
    part: f64,
    /// The measured time. A scheduler under which this process waits for long makes it longer.
    seconds: f64,
    /// The longest time in which a runner did not run.
    longest_wait_ms: f64,
    /// CPU time of the fork loops, their children and the pool, % of the same.
    others_part: f64,
    frames_due: u64,
    frames_done: u64,
    frames_on_time: u64,
    /// Children of the fork loops that have exited.
    children: u64,
    /// Turns in the pool.
    turns: u64,
}

/// The processes. Dropping this kills them, and the children of fork loops with them.
#[derive(Default)]
struct Children {
    runners: Vec<Pid>,
    others: Vec<Pid>,
}

impl Children {
    fn all(&self) -> impl Iterator<Item = Pid> {
        self.runners.iter().chain(&self.others).copied()
    }
}

impl Drop for Children {
    fn drop(&mut self) {
        for child in self.all() {
            let _ = kill(child, Signal::SIGKILL);
        }
        // The children of fork loops die with their parents, and are this process's then.
        while waitpid(None, None).is_ok() {}
    }
}

/// Start a process that does `run` when all may begin, and add it to `children`.
fn start(actor: Actor, children: &mut Vec<Pid>, group: Option<&PathBuf>, run: impl FnOnce()) -> Result<Pid> {
    let parent = getpid();
    // SAFETY: the child takes no lock of another thread: it calculates, sleeps, forks and exits.
    let child = match unsafe { fork() }.context("cannot start a process")? {
        ForkResult::Parent { child } => child,
        ForkResult::Child => {
            die_with(parent);
            actor.await_start();
            run();
            unreachable!("actors do not return")
        }
    };
    children.push(child);
    if let Some(group) = group {
        let file = group.join("cgroup.procs");
        fs::write(&file, child.to_string()).with_context(|| format!("cannot write {}", file.display()))?;
    }
    Ok(child)
}

fn set_nice(child: Pid, nice: i32) -> Result<()> {
    // SAFETY: no memory is passed.
    let result = unsafe { libc::setpriority(libc::PRIO_PROCESS, child.as_raw() as _, nice) };
    nix::errno::Errno::result(result).with_context(|| format!("cannot set nice {nice}"))?;
    Ok(())
}

fn start_all(cli: &Cli, shared: &Shared, children: &mut Children) -> Result<()> {
    let actor = Actor { shared, speed: Speed::measure(), run: cli.run_us * 1000 };
    let (own, other) = (cli.groups.first(), cli.groups.last());
    let nr_runners = if cli.frames.is_some() { 1 } else { cli.runners };
    for runner in 0..nr_runners as usize {
        let child = start(actor, &mut children.runners, own, || match cli.frames {
            Some(frames) => actor.draw(frames),
            None => actor.run_forever(runner),
        })?;
        set_nice(child, cli.nice)?;
    }
    for _ in 0..cli.forks {
        start(actor, &mut children.others, other, || actor.fork_forever())?;
    }
    let nr = cli.pool as usize;
    for worker in 0..nr {
        start(actor, &mut children.others, other, || actor.take_turns(nr, worker))?;
    }
    if nr > 0 {
        shared.queue.init(nr, cli.working as usize);
    }
    Ok(())
}

/// Counts that only grow.
struct Sample {
    time: u64,
    /// CPU time of the runners, and of all others, ns.
    runners: u64,
    others: u64,
    children: u64,
    turns: u64,
}

impl Sample {
    fn take(children: &Children, shared: &Shared) -> Result<Self> {
        let sum = |pids: &[Pid]| -> Result<u64> {
            pids.iter().map(|&pid| Ok(read(clock_getcpuclockid(pid).context("a process has ended")?))).sum()
        };
        Ok(Sample {
            time: now(),
            runners: sum(&children.runners)?,
            others: sum(&children.others)? + shared.children_ns.load(Relaxed),
            children: shared.children.load(Relaxed),
            turns: shared.turns.load(Relaxed),
        })
    }
}

fn sleep_until(time: u64) {
    thread::sleep(Duration::from_nanos(time.saturating_sub(now())));
}

fn run(cli: &Cli) -> Result<Report> {
    let cpus = sched_getaffinity(Pid::from_raw(0)).context("cannot read the CPU affinity")?;
    let nr_cpus = (0..CpuSet::count()).filter(|&cpu| cpus.is_set(cpu).unwrap_or(false)).count();
    set_child_subreaper(true).context("cannot become a subreaper")?;
    let shared = Map::new()?;
    let mut children = Children::default();
    start_all(cli, &shared, &mut children)?;

    let began = now() + WARM_UP;
    let end = began + cli.r * 1_000_000_000;
    shared.began.store(began, Relaxed);
    shared.end.store(end, Relaxed);
    shared.start.0.store(1, SeqCst);
    shared.start.wake_all();
    sleep_until(began);
    let before = Sample::take(&children, &shared)?;
    sleep_until(end);
    let after = Sample::take(&children, &shared)?;

    for child in children.all() {
        let status = waitpid(child, Some(WaitPidFlag::WNOHANG)).context("a process has ended")?;
        ensure!(status == WaitStatus::StillAlive, "a process has ended: {status:?}");
    }
    let part = |ns: u64| rounded(100.0 * ns as f64 / ((after.time - before.time) as f64 * nr_cpus as f64));
    let longest = shared.waits[..children.runners.len()].iter().map(|waits| waits.longest(after.time, began));
    Ok(Report {
        part: part(after.runners - before.runners),
        seconds: rounded((after.time - before.time) as f64 / 1e9),
        longest_wait_ms: rounded(longest.max().unwrap_or_default() as f64 / 1e6),
        others_part: part(after.others - before.others),
        frames_due: cli.frames.map_or(0, |frames| frames.timeline(began, end).due()),
        frames_done: shared.frames_done.load(Relaxed),
        frames_on_time: shared.frames_on_time.load(Relaxed),
        children: after.children - before.children,
        turns: after.turns - before.turns,
    })
}

/// Round to three decimals.
fn rounded(value: f64) -> f64 {
    (value * 1000.0).round() / 1000.0
}

fn main() -> Result<()> {
    let cli = Cli::try_parse().and_then(Cli::check).unwrap_or_else(|error| error.exit());
    let report = run(&cli)?;
    if cli.json {
        println!("{}", serde_json::to_string(&report)?);
        return Ok(());
    }
    let Report { part, longest_wait_ms, others_part, .. } = report;
    print!("runners {part:.1} %, longest wait {longest_wait_ms:.1} ms; others {others_part:.1} %");
    if cli.frames.is_some() {
        print!("; frames due {}, done {}, on time {}", report.frames_due, report.frames_done, report.frames_on_time);
    }
    println!("; children {}, turns {}", report.children, report.turns);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(line: &str) -> Result<Cli, String> {
        let words = line.split_whitespace();
        Cli::try_parse_from(["magpie-longrun"].into_iter().chain(words))
            .and_then(Cli::check)
            .map_err(|error| error.to_string())
    }

    #[test]
    fn options_that_contradict_each_other_are_refused() {
        for (line, expected) in [
            ("--pool 2 --working 3", "--working is more than --pool"),
            ("--frames 6,5", "WORK_US is 1..PERIOD_US"),
            ("--frames 5,6 --runners 1", "cannot be used with"),
            ("--groups /a", "two folders"),
            ("--runners 0", "1..=1000"),
            ("--run-us 0", "1..=10000000"),
            ("--nice 20", "-20..=19"),
        ] {
            let error = parsed(line).err().unwrap_or_default();
            assert!(error.contains(expected), "{line}: {error}");
        }
        let cli = parsed("--frames 7000,16600 --forks 1 --pool 8 --working 8 --groups /a,/b --nice -5").unwrap();
        assert_eq!((cli.groups.len(), cli.nice), (2, -5));
        assert_eq!(cli.frames, Some(Frames { work_us: 7000, period_us: 16600 }));
    }

    /// The only test that starts processes: dropping them waits for all children of this process.
    #[test]
    fn all_do_something_and_all_end() {
        let report = run(&parsed("--runners 2 --forks 1 --pool 3 --working 2 --run-us 100 -r 1").unwrap()).unwrap();
        assert!(
            report.part > 0.0 && report.others_part > 0.0 && report.part + report.others_part < 101.0,
            "{report:?}"
        );
        assert!(report.children > 10 && report.turns > 10, "{report:?}");
        let report = run(&parsed("--frames 100,20000 -r 1").unwrap()).unwrap();
        assert_eq!(report.frames_due, 50);
        assert!(report.frames_on_time > 5 && report.frames_on_time <= report.frames_done, "{report:?}");
        assert!(report.frames_done <= 50 && report.part > 0.0, "{report:?}");
        let error = run(&parsed("--groups /none,/none").unwrap()).unwrap_err().to_string();
        assert!(error.contains("/none/cgroup.procs"), "{error}");
    }
}

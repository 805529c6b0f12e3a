// SPDX-License-Identifier: GPL-2.0-only
//! `magpie-wakeup`: how long woken threads wait for a CPU, and how long their requests take. The
//! load and its parameters are schbench's:
//!
//! ```text
//! message thread:   wake all waiting workers, with the time --> wait until one waits --> sleep s us
//! worker:           wait --> woken: now - time = wakeup latency
//!                        --> parts times: sleep --> lock of this CPU --> spin --> unlock     (c us of spinning in all)
//!                        --> now - time = request latency --> notify the message thread
//! ```

mod futex;
mod report;
mod team;
mod work;

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::Result;
use clap::Parser;

use futex::Wait;
use report::{Latencies, Report};
use team::{Pause, Team};
use work::{Locks, Work};

/// Message threads wake workers, which spin and wait again; prints how long it took woken workers to run, and to be done.
#[derive(Parser)]
struct Cli {
    /// Start this many message threads. Range: 1..1000.
    #[arg(short, default_value_t = 2, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1000))]
    m: u32,

    /// Give each message thread this many workers. Range: 1..1000.
    #[arg(short, default_value_t = 16, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1000))]
    t: u32,

    /// Let a message thread sleep for this long between wakeups. Microseconds, 0..10000000.
    #[arg(short, default_value_t = 10_000, value_name = "US", value_parser = clap::value_parser!(u64).range(0..=10_000_000))]
    s: u64,

    /// Vary that time at random by up to this share, so that teams do not wake in step. Percent,
    /// 0..100.
    #[arg(short, default_value_t = 0, value_name = "PCT", value_parser = clap::value_parser!(u64).range(0..=100))]
    j: u64,

    /// Let a worker spin for this long in each request. Microseconds, 1..10000000.
    #[arg(short, default_value_t = 15_000, value_name = "US", value_parser = clap::value_parser!(u64).range(1..=10_000_000))]
    c: u64,

    /// Run for this long. Seconds, 1..86400.
    #[arg(short, default_value_t = 30, value_name = "SEC", value_parser = clap::value_parser!(u64).range(1..=86_400))]
    r: u64,

    /// Wake the waiting workers at each multiple of -s by the clock, however long their requests take.
    #[arg(long, conflicts_with = "j")]
    every: bool,

    /// Let workers wait for a byte from a pipe instead of a futex. Their wakeups are sync (WF_SYNC),
    /// like those of all readers of pipes and sockets.
    #[arg(long)]
    pipe: bool,

    /// Measure work in CPU time: a worker that was preempted has as much to do as before.
    #[arg(long)]
    cpu_time: bool,

    /// Let a worker hold a lock of its CPU while it spins, so that other workers wait for one that is
    /// preempted. They spin for a while and then sleep, or with --lock=spin they spin until the lock
    /// is free. Implies --cpu-time.
    #[arg(long, value_name = "WAIT", value_enum, num_args = 0..=1, require_equals = true, default_missing_value = "sleep")]
    lock: Option<Wait>,

    /// Divide each request into this many parts. Each part has its own sleep and lock, and its share
    /// of the spinning. Range: 1..1000.
    #[arg(long, default_value_t = 2, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1000))]
    parts: u32,

    /// Let a worker sleep for this long at the start of each part, by a timer. Microseconds,
    /// 0..10000000 (default: 0; with --lock 100).
    #[arg(long, value_name = "US", value_parser = clap::value_parser!(u64).range(0..=10_000_000))]
    think: Option<u64>,

    /// Measure latencies from the time when the sleep of the message thread is due to end. They then
    /// include its own wait for a CPU. Without this, measure from the wakeup of the worker.
    #[arg(long)]
    from_due: bool,

    /// Print a line of JSON.
    #[arg(long)]
    json: bool,
}

fn run(cli: &Cli) -> Result<Report> {
    let teams = (0..cli.m).map(|_| Team::new(cli.t, cli.pipe)).collect::<Result<Vec<_>>>()?;
    let (start, stop) = (Instant::now(), AtomicBool::new(false));
    let work = Work {
        parts: cli.parts,
        think: Duration::from_micros(cli.think.unwrap_or(if cli.lock.is_some() { 100 } else { 0 })),
        spin: Duration::from_micros(cli.c) / cli.parts,
        cpu_time: cli.cpu_time || cli.lock.is_some(),
        locks: cli.lock.map(Locks::new),
    };
    let mut latencies = Latencies::default();
    thread::scope(|scope| {
        let (work, stop) = (&work, &stop);
        let mut workers = Vec::new();
        for (number, team) in (0..).zip(&teams) {
            for id in 0..cli.t as usize {
                workers.push(scope.spawn(move || team.work(id, start, work, stop)));
            }
            let pause = Pause::new(cli, number);
            scope.spawn(move || team.message(start, pause, stop));
        }
        thread::sleep(Duration::from_secs(cli.r));
        stop.store(true, Ordering::Relaxed);
        teams.iter().for_each(Team::tell);
        for worker in workers {
            latencies.append(worker.join().expect("workers do not panic"));
        }
    });
    Ok(Report::new(latencies, cli.r))
}

fn main() -> Result<()> {
    let cli = Cli::parse();
    let report = run(&cli)?;
    if cli.json {
        println!("{}", serde_json::to_string(&report)?);
    } else {
        println!("{report}");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn workers_are_woken_and_all_ends() {
        for options in [
            &["-j50"][..],
            &["--pipe"],
            &["--cpu-time", "--from-due"],
            &["--every"],
            &["--lock"],
            &["--lock=spin"],
            &["--lock", "--pipe", "--think", "0"],
        ] {
            let load = ["magpie-wakeup", "-m1", "-t2", "-s1000", "-c100", "-r1"];
            let report = run(&Cli::parse_from(load.iter().chain(options))).unwrap();
            assert!(report.wakeups > 20, "{options:?}: {report:?}");
            assert!(report.p50_us > 0.0, "{options:?}: {report:?}");
            assert!(report.request_p50_us > 100.0, "{options:?}: {report:?}");
        }
    }
}

// SPDX-License-Identifier: GPL-2.0-only
//! `magpie-wakeup`: how long woken threads wait for a CPU. As schbench of 2017 (the cgroup seed's load), by its parameters:
//!
//! ```text
//! message thread:   wake all workers that wait, with the time --> wait until one does --> sleep s us
//! worker:           wait --> woken: now - time = its latency --> spin c us --> tell the message thread
//! ```

use std::io::{PipeReader, PipeWriter, Read, Write};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::Result;
use clap::Parser;
use serde::Serialize;

/// Message threads wake workers, which spin and wait again; prints how long it took woken workers to run.
#[derive(Parser)]
struct Cli {
    /// Message threads, 1..1000.
    #[arg(short, default_value_t = 2, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1000))]
    m: u32,

    /// Workers of each, 1..1000.
    #[arg(short, default_value_t = 16, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1000))]
    t: u32,

    /// Time that a message thread sleeps between wakeups. Microseconds, 0..10000000.
    #[arg(short, default_value_t = 10_000, value_name = "US", value_parser = clap::value_parser!(u64).range(0..=10_000_000))]
    s: u64,

    /// By how much that time differs, up or down, by chance: teams then do not fall into step. Percent of it, 0..100.
    #[arg(short, default_value_t = 0, value_name = "PCT", value_parser = clap::value_parser!(u64).range(0..=100))]
    j: u64,

    /// Time that a worker spins. Microseconds, 1..10000000.
    #[arg(short, default_value_t = 15_000, value_name = "US", value_parser = clap::value_parser!(u64).range(1..=10_000_000))]
    c: u64,

    /// Time that the run takes. Seconds, 1..86400.
    #[arg(short, default_value_t = 30, value_name = "SEC", value_parser = clap::value_parser!(u64).range(1..=86_400))]
    r: u64,

    /// Workers wait for a byte from a pipe, not on a futex: woken by WF_SYNC, as readers of pipes and sockets are.
    #[arg(long)]
    pipe: bool,

    /// Print a line of JSON.
    #[arg(long)]
    json: bool,
}

#[derive(Debug, PartialEq, Serialize)]
struct Report {
    wakeups: usize,
    /// Requests, which are wakeups, a second.
    rps: f64,
    p50_us: f64,
    p75_us: f64,
    p90_us: f64,
    p95_us: f64,
    p99_us: f64,
    p999_us: f64,
    max_us: f64,
}

impl Report {
    /// Of latencies in ns, of a run of so many seconds.
    fn new(mut latencies: Vec<u64>, seconds: u64) -> Self {
        latencies.sort_unstable();
        let at = |share: f64| {
            let index = (latencies.len() as f64 * share).ceil() as usize;
            latencies.get(index.saturating_sub(1)).map_or(0.0, |&ns| ns as f64 / 1000.0)
        };
        Self {
            wakeups: latencies.len(),
            rps: latencies.len() as f64 / seconds as f64,
            p50_us: at(0.5),
            p75_us: at(0.75),
            p90_us: at(0.9),
            p95_us: at(0.95),
            p99_us: at(0.99),
            p999_us: at(0.999),
            max_us: at(1.0),
        }
    }
}

/// A word that threads sleep on while it has a value.
#[derive(Default)]
struct Futex(AtomicU32);

impl Futex {
    fn wait(&self, while_it_is: u32) {
        // SAFETY: the word outlives the call; no time-out.
        unsafe {
            libc::syscall(
                libc::SYS_futex,
                self.0.as_ptr(),
                libc::FUTEX_WAIT | libc::FUTEX_PRIVATE_FLAG,
                while_it_is,
                std::ptr::null::<libc::timespec>(),
            )
        };
    }

    fn wake(&self) {
        // SAFETY: as above.
        unsafe { libc::syscall(libc::SYS_futex, self.0.as_ptr(), libc::FUTEX_WAKE | libc::FUTEX_PRIVATE_FLAG, 1) };
    }
}

/// How long a message thread sleeps.
struct Pause {
    least_ns: u64,
    most_ns: u64,
    chance: fastrand::Rng,
}

impl Pause {
    /// `seed`: teams with different ones differ.
    fn new(cli: &Cli, seed: u64) -> Self {
        let percent_ns = cli.s * 10;
        Self {
            least_ns: percent_ns * (100 - cli.j),
            most_ns: percent_ns * (100 + cli.j),
            chance: fastrand::Rng::with_seed(seed),
        }
    }

    fn take(&mut self) {
        let ns = self.chance.u64(self.least_ns..=self.most_ns);
        if ns > 0 {
            thread::sleep(Duration::from_nanos(ns));
        }
    }
}

/// What a worker waits on.
enum Bell {
    /// 1: woken.
    Futex(Futex),
    Pipe(PipeReader, PipeWriter),
}

impl Bell {
    fn new(pipe: bool) -> Result<Self> {
        if !pipe {
            return Ok(Self::Futex(Futex::default()));
        }
        let (reader, writer) = std::io::pipe()?;
        Ok(Self::Pipe(reader, writer))
    }

    /// Before who rings can know that it is waited for.
    fn reset(&self) {
        if let Self::Futex(futex) = self {
            futex.0.store(0, Ordering::Release);
        }
    }

    fn ring(&self) {
        match self {
            Self::Futex(futex) => {
                futex.0.store(1, Ordering::Release);
                futex.wake();
            }
            Self::Pipe(_, writer) => (&mut &*writer).write_all(&[1]).expect("its reader is there"),
        }
    }

    fn wait(&self, stop: &AtomicBool) {
        match self {
            Self::Futex(futex) => {
                while futex.0.load(Ordering::Acquire) == 0 && !stop.load(Ordering::Relaxed) {
                    futex.wait(0);
                }
            }
            Self::Pipe(reader, _) => (&mut &*reader).read_exact(&mut [0]).expect("its writer is there"),
        }
    }
}

struct Worker {
    bell: Bell,
    /// ns since the start; when it was woken.
    woken_at: AtomicU64,
}

#[derive(Default)]
struct Team {
    workers: Vec<Worker>,
    /// Those that wait, in order.
    waiting: Mutex<Vec<usize>>,
    /// 1: somebody waits.
    news: Futex,
}

impl Team {
    fn new(workers: u32, pipe: bool) -> Result<Self> {
        let worker = |_| Ok(Worker { bell: Bell::new(pipe)?, woken_at: AtomicU64::new(0) });
        Ok(Self { workers: (0..workers).map(worker).collect::<Result<_>>()?, ..Self::default() })
    }

    fn message(&self, start: Instant, mut pause: Pause, stop: &AtomicBool) {
        while !stop.load(Ordering::Relaxed) {
            let waiting = std::mem::take(&mut *self.waiting.lock().expect("nobody panics"));
            for worker in waiting {
                self.wake(worker, start);
            }
            while self.news.0.swap(0, Ordering::AcqRel) == 0 && !stop.load(Ordering::Relaxed) {
                self.news.wait(0);
            }
            pause.take();
        }
        (0..self.workers.len()).for_each(|worker| self.wake(worker, start));
    }

    fn wake(&self, worker: usize, start: Instant) {
        let worker = &self.workers[worker];
        worker.woken_at.store(start.elapsed().as_nanos() as u64, Ordering::Relaxed);
        worker.bell.ring();
    }

    /// Returns its latencies in ns.
    fn work(&self, id: usize, start: Instant, spin: Duration, stop: &AtomicBool) -> Vec<u64> {
        let worker = &self.workers[id];
        let mut latencies = Vec::new();
        loop {
            worker.bell.reset();
            self.waiting.lock().expect("nobody panics").push(id);
            self.news.0.store(1, Ordering::Release);
            self.news.wake();
            worker.bell.wait(stop);
            if stop.load(Ordering::Relaxed) {
                return latencies;
            }
            let now = start.elapsed().as_nanos() as u64;
            latencies.push(now.saturating_sub(worker.woken_at.load(Ordering::Relaxed)));
            let until = Instant::now() + spin;
            while Instant::now() < until {
                std::hint::spin_loop();
            }
        }
    }
}

fn run(cli: &Cli) -> Result<Report> {
    let teams = (0..cli.m).map(|_| Ok(Arc::new(Team::new(cli.t, cli.pipe)?))).collect::<Result<Vec<_>>>()?;
    let (start, stop) = (Instant::now(), Arc::new(AtomicBool::new(false)));
    let spin = Duration::from_micros(cli.c);
    let mut latencies = Vec::new();
    thread::scope(|scope| {
        let mut workers = Vec::new();
        for (number, team) in (0..).zip(&teams) {
            for id in 0..cli.t as usize {
                let (team, stop) = (team.clone(), stop.clone());
                workers.push(scope.spawn(move || team.work(id, start, spin, &stop)));
            }
            let (team, stop, pause) = (team.clone(), stop.clone(), Pause::new(cli, number));
            scope.spawn(move || team.message(start, pause, &stop));
        }
        thread::sleep(Duration::from_secs(cli.r));
        stop.store(true, Ordering::Relaxed);
        for team in &teams {
            team.news.0.store(1, Ordering::Release);
            team.news.wake();
        }
        for worker in workers {
            latencies.extend(worker.join().expect("workers do not panic"));
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
        let Report { wakeups, rps, p50_us, p75_us, p90_us, p95_us, p99_us, p999_us, max_us } = report;
        println!(
            "{wakeups} wakeups, {rps:.0} a second, us: p50 {p50_us:.0} p75 {p75_us:.0} p90 {p90_us:.0} p95 {p95_us:.0}"
        );
        println!("p99 {p99_us:.0} p99.9 {p999_us:.0} max {max_us:.0}");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_the_nearest_rank() {
        let report = Report::new((1..=1000).rev().map(|us| us * 1000).collect(), 10);
        assert_eq!((report.p50_us, report.p99_us, report.p999_us, report.max_us), (500.0, 990.0, 999.0, 1000.0));
        assert_eq!(report.rps, 100.0);
        assert_eq!(Report::new(vec![], 1).max_us, 0.0);
        assert_eq!(Report::new(vec![7000], 1).p50_us, 7.0);
    }

    #[test]
    fn workers_are_woken_and_all_ends() {
        for pipe in [false, true] {
            let report = run(&Cli { m: 1, t: 2, s: 1000, j: 50, c: 100, r: 1, pipe, json: false }).unwrap();
            assert!(report.wakeups > 20, "{report:?}");
            assert!(report.p50_us > 0.0, "{report:?}");
        }
    }
}

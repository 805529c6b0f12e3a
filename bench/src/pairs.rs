// SPDX-License-Identifier: GPL-2.0-only
//! `magpie-pairs`: pairs of processes that answer each other over pipes, all at the same time. With
//! as many pairs as CPUs no CPU is idle, so each exchange waits in a queue twice:
//!
//! ```text
//! first:     write a byte --> wait for the answer --> count --> again
//! second:    wait for a byte --> write the answer --> again
//! parent:    start all --> warm-up --> read the counts --> SECONDS --> read them again --> kill all
//! ```

use std::io::{PipeReader, PipeWriter, Read, Write};
use std::num::NonZeroUsize;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use clap::Parser;
use nix::sys::mman::{MapFlags, ProtFlags, mmap_anonymous};
use nix::sys::prctl::set_pdeathsig;
use nix::sys::signal::{Signal, kill};
use nix::sys::wait::waitpid;
use nix::unistd::{ForkResult, Pid, fork};
use serde::Serialize;

/// Time that all pairs run before exchanges are counted.
const WARM_UP: Duration = Duration::from_millis(200);

/// Pairs of processes answer each other over pipes; prints a line of JSON: exchanges a second.
#[derive(Parser)]
struct Cli {
    /// Pairs, 1..1000 (default: as many as CPUs that this process may use).
    #[arg(short, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1000))]
    n: Option<u32>,

    /// Time that the run takes, after 0.2 s of warm-up. Seconds, 1..86400.
    #[arg(short, default_value_t = 5, value_name = "SEC", value_parser = clap::value_parser!(u64).range(1..=86_400))]
    r: u64,
}

#[derive(Debug, Serialize)]
struct Report {
    pairs: usize,
    /// Exchanges per second, of all pairs.
    exchanges: f64,
    /// Exchanges per second of the slowest and of the fastest pair.
    least: f64,
    most: f64,
}

/// A cache line in memory that all processes share. Only the first process of its pair writes it.
#[repr(align(128))]
struct Count(AtomicU64);

/// Map a zeroed count for each pair. The mapping lasts as long as this process and its children.
fn shared_counts(pairs: usize) -> Result<&'static [Count]> {
    let size = NonZeroUsize::new(pairs * size_of::<Count>()).context("no pairs")?;
    // SAFETY: the mapping is new, zeroed, page-aligned and never unmapped; 0 is a valid count.
    unsafe {
        let mapped = mmap_anonymous(None, size, ProtFlags::PROT_READ | ProtFlags::PROT_WRITE, MapFlags::MAP_SHARED)
            .context("cannot map shared memory")?;
        Ok(std::slice::from_raw_parts(mapped.cast::<Count>().as_ptr(), pairs))
    }
}

/// The processes of all pairs. Dropping this kills them.
struct Children(Vec<Pid>);

impl Children {
    /// Start a process that does `run` until it is killed, or the other end of a pipe is closed.
    fn start(&mut self, run: impl FnOnce() -> std::io::Result<()>) -> Result<()> {
        // SAFETY: the child only reads, writes and exits, which needs no lock of another thread.
        match unsafe { fork() }.context("cannot start a process")? {
            ForkResult::Parent { child } => self.0.push(child),
            ForkResult::Child => {
                let _ = set_pdeathsig(Signal::SIGKILL);
                let _ = run();
                // SAFETY: exits without the parent's handlers.
                unsafe { libc::_exit(0) }
            }
        }
        Ok(())
    }
}

impl Drop for Children {
    fn drop(&mut self) {
        for &child in &self.0 {
            let _ = kill(child, Signal::SIGKILL);
        }
        for &child in &self.0 {
            let _ = waitpid(child, None);
        }
    }
}

fn ask(mut to: PipeWriter, mut from: PipeReader, count: &Count) -> std::io::Result<()> {
    loop {
        to.write_all(&[1])?;
        from.read_exact(&mut [0])?;
        count.0.fetch_add(1, Ordering::Relaxed);
    }
}

fn answer(mut from: PipeReader, mut to: PipeWriter) -> std::io::Result<()> {
    loop {
        from.read_exact(&mut [0])?;
        to.write_all(&[1])?;
    }
}

fn run(pairs: usize, time: Duration) -> Result<Report> {
    let counts = shared_counts(pairs)?;
    let mut children = Children(Vec::new());
    for count in counts {
        let (question_reader, question_writer) = std::io::pipe().context("cannot make a pipe")?;
        let (answer_reader, answer_writer) = std::io::pipe().context("cannot make a pipe")?;
        children.start(move || ask(question_writer, answer_reader, count))?;
        children.start(move || answer(question_reader, answer_writer))?;
    }
    let read = || counts.iter().map(|count| count.0.load(Ordering::Relaxed)).collect::<Vec<_>>();
    thread::sleep(WARM_UP);
    let (began, before) = (Instant::now(), read());
    thread::sleep(time);
    let (after, seconds) = (read(), began.elapsed().as_secs_f64());
    let rates: Vec<f64> =
        after.iter().zip(before).map(|(after, before)| after.wrapping_sub(before) as f64 / seconds).collect();
    Ok(Report {
        pairs,
        exchanges: rates.iter().sum(),
        least: rates.iter().copied().fold(f64::INFINITY, f64::min),
        most: rates.iter().copied().fold(0.0, f64::max),
    })
}

fn main() -> Result<()> {
    let cli = Cli::parse();
    let pairs = cli.n.map_or_else(|| thread::available_parallelism().map(usize::from), |n| Ok(n as usize))?;
    println!("{}", serde_json::to_string(&run(pairs, Duration::from_secs(cli.r))?)?);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_pair_counts_and_all_ends() {
        let report = run(3, Duration::from_millis(500)).unwrap();
        assert_eq!(report.pairs, 3);
        assert!(report.least > 10.0 && report.least <= report.most, "{report:?}");
        assert!(report.exchanges >= 3.0 * report.least && report.exchanges <= 3.0 * report.most, "{report:?}");
    }
}

// SPDX-License-Identifier: GPL-2.0-only
//! Tasks that hold kernel locks nearly all the time, and tasks that measure the wait for them.
//!
//! ```text
//! magpie-holders hold DIR           creates and removes files there, in a loop: the directory's lock
//! magpie-holders map                maps and unmaps memory, in a loop: the lock of its address space
//! magpie-holders create DIR SECONDS creates and removes a file there at intervals
//! magpie-holders maps PID SECONDS   reads /proc/PID/maps at intervals
//! ```
//! The last two print the number of operations, and their mean and longest duration.

use std::fs::{self, File};
use std::io;
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::process;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use clap::Parser;
use nix::sys::mman::{MapFlags, ProtFlags, mmap_anonymous, munmap};
use serde::Serialize;

const PAUSE: Duration = Duration::from_millis(20);
const MAPPED: NonZeroUsize = NonZeroUsize::new(1 << 20).unwrap();

/// Holds kernel locks, or measures how long it waits for them.
#[derive(Parser)]
enum Opts {
    /// Creates and removes a file in DIR, again and again.
    Hold { dir: PathBuf },
    /// Maps and unmaps memory, again and again.
    Map,
    /// Creates and removes a file in DIR now and then, for SECONDS.
    Create { dir: PathBuf, seconds: f64 },
    /// Reads the mappings of process PID now and then, for SECONDS.
    Maps { pid: u32, seconds: f64 },
}

#[derive(Serialize)]
struct Times {
    times: usize,
    mean_ms: f64,
    longest_ms: f64,
}

fn create_and_remove(dir: &Path) -> io::Result<()> {
    let file = dir.join(process::id().to_string());
    File::create(&file)?;
    fs::remove_file(&file)
}

fn map_and_unmap() -> nix::Result<()> {
    let flags = MapFlags::MAP_PRIVATE | MapFlags::MAP_POPULATE;
    // SAFETY: the mapping is not used otherwise.
    unsafe {
        let mapped = mmap_anonymous(None, MAPPED, ProtFlags::PROT_READ | ProtFlags::PROT_WRITE, flags)?;
        munmap(mapped, MAPPED.get())
    }
}

/// Do `run` at intervals, and print the durations.
fn measure(seconds: f64, mut run: impl FnMut() -> Result<()>) -> Result<()> {
    let end = Instant::now() + Duration::from_secs_f64(seconds);
    let mut took = Vec::new();
    while Instant::now() < end {
        let start = Instant::now();
        run()?;
        took.push(start.elapsed().as_secs_f64() * 1000.0);
        thread::sleep(PAUSE);
    }
    let mean_ms = took.iter().sum::<f64>() / took.len() as f64;
    let longest_ms = took.iter().copied().fold(0.0, f64::max);
    println!("{}", serde_json::to_string(&Times { times: took.len(), mean_ms, longest_ms })?);
    Ok(())
}

fn main() -> Result<()> {
    match Opts::parse() {
        Opts::Hold { dir } => loop {
            create_and_remove(&dir).with_context(|| format!("cannot create files in {}", dir.display()))?;
        },
        Opts::Map => loop {
            map_and_unmap().context("cannot map memory")?;
        },
        Opts::Create { dir, seconds } => measure(seconds, || {
            create_and_remove(&dir).with_context(|| format!("cannot create files in {}", dir.display()))
        }),
        Opts::Maps { pid, seconds } => measure(seconds, || {
            let maps = format!("/proc/{pid}/maps");
            fs::read(&maps).with_context(|| format!("cannot read {maps}"))?;
            Ok(())
        }),
    }
}

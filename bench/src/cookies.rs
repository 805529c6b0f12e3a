// SPDX-License-Identifier: GPL-2.0-only
//! `magpie-cookies`: processes that use core scheduling, as monitors of virtual machines do. Each
//! has a cookie of its own, except the last, which has none. Their threads come and go.

use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use clap::Parser;
use nix::errno::Errno;
use nix::sys::signal::{Signal, raise};
use nix::sys::wait::{WaitStatus, wait};
use nix::unistd::{ForkResult, fork};

/// How long a thread lives.
const LIFE: Duration = Duration::from_millis(50);

/// For how long a sleeper sleeps.
const NAP: Duration = Duration::from_millis(2);

/// Run processes with core-scheduling cookies, and print a line for each: its number, its CPU time
/// in seconds, and by how many microseconds its sleeping threads woke too late, at most.
#[derive(Parser)]
struct Cli {
    /// Number of processes
    #[arg(short, long, default_value_t = 4)]
    groups: u32,

    /// Spinning threads of each
    #[arg(short, long, default_value_t = 2)]
    spinners: u32,

    /// Sleeping threads of each
    #[arg(short = 'l', long, default_value_t = 2)]
    sleepers: u32,

    /// How long to run. Seconds
    #[arg(short, long, default_value_t = 10)]
    runtime: u64,
}

/// Give this process a cookie of its own; its threads inherit it.
fn create_cookie() -> Result<()> {
    const PIDTYPE_TGID: libc::c_ulong = 1;
    // SAFETY: without a pointer the kernel writes nothing.
    let made = unsafe { libc::prctl(libc::PR_SCHED_CORE, libc::PR_SCHED_CORE_CREATE, 0, PIDTYPE_TGID, 0) };
    Errno::result(made)?;
    Ok(())
}

/// Run `body` in threads one after the other, each until the time that it is given.
fn one_after_the_other(end: Instant, body: impl Fn(Instant) + Sync) {
    while Instant::now() < end {
        thread::scope(|scope| {
            scope.spawn(|| body(end.min(Instant::now() + LIFE)));
        });
    }
}

fn spin(until: Instant) {
    while Instant::now() < until {}
}

fn nap(until: Instant, latest: &AtomicU64) {
    while Instant::now() < until {
        let asleep = Instant::now();
        thread::sleep(NAP);
        let late = asleep.elapsed().saturating_sub(NAP);
        latest.fetch_max(late.as_micros() as u64, Ordering::Relaxed);
    }
}

fn cpu_time() -> Result<Duration> {
    let used = nix::time::clock_gettime(nix::time::ClockId::CLOCK_PROCESS_CPUTIME_ID)?;
    Ok(used.into())
}

fn run(cli: &Cli, group: u32) -> Result<()> {
    if group + 1 < cli.groups {
        create_cookie()?;
    }
    let end = Instant::now() + Duration::from_secs(cli.runtime);
    let latest = AtomicU64::new(0);
    thread::scope(|scope| {
        for _ in 0..cli.spinners {
            scope.spawn(|| one_after_the_other(end, spin));
        }
        for _ in 0..cli.sleepers {
            scope.spawn(|| one_after_the_other(end, |until| nap(until, &latest)));
        }
    });
    println!("{group} {:.2} {}", cpu_time()?.as_secs_f64(), latest.into_inner());
    Ok(())
}

fn main() -> Result<()> {
    let cli = Cli::parse();
    for group in 0..cli.groups {
        // SAFETY: this process has one thread.
        if let ForkResult::Child = unsafe { fork()? } {
            if let Err(err) = run(&cli, group) {
                eprintln!("magpie-cookies: {err:#}");
                raise(Signal::SIGKILL)?;
            }
            return Ok(());
        }
    }
    for _ in 0..cli.groups {
        ensure!(matches!(wait()?, WaitStatus::Exited(_, 0)), "a process failed");
    }
    Ok(())
}

// SPDX-License-Identifier: GPL-2.0-only
//! `magpie-capacity`: tasks that never sleep, on machines whose CPUs differ in capacity. They
//! record where they run:
//!
//! ```text
//! confined to --start for --warm-up seconds --> released --> first time on a strongest CPU after ... us
//!                                                        \-> for --run seconds: CPU time by CPU, times its capacity
//! ideal: the hogs have the strongest CPUs for themselves
//! ```

use std::fs;
use std::sync::{Arc, Barrier};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use clap::Parser;
use nix::sched::{CpuSet, sched_getaffinity, sched_getcpu, sched_setaffinity};
use nix::time::{ClockId, clock_gettime};
use nix::unistd::Pid;
use scx_utils::read_cpulist;
use serde::Serialize;

/// Threads that never sleep: how much of the strongest CPUs they get. Prints a line of JSON.
#[derive(Parser)]
struct Cli {
    /// 1..1000
    #[arg(long, default_value_t = 1, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1000))]
    nr: u16,
    /// CPUs that they are confined to at first, as 0-3,8.
    #[arg(long, value_name = "CPUS")]
    start: Option<String>,
    /// Time that is not counted. Seconds, more than 0.
    #[arg(long, default_value_t = 0.3, value_name = "SEC", value_parser = seconds)]
    warm_up: f64,
    /// Time that is counted. Seconds, more than 0.
    #[arg(long, default_value_t = 3.0, value_name = "SEC", value_parser = seconds)]
    run: f64,
}

fn seconds(text: &str) -> Result<f64, String> {
    text.parse().ok().filter(|&sec| sec > 0.0 && sec <= 86_400.0).ok_or("not in 0 (excluded) .. 86400 seconds".into())
}

#[derive(Debug, PartialEq, Serialize)]
struct Report {
    /// Work done, in % of the work that the hogs would have done on the strongest CPUs.
    of_ideal: f64,
    /// CPU time of each hog, s.
    ran_s: Vec<f64>,
    /// Share of run time on CPUs of the highest capacity, %: of all hogs, and the lowest.
    on_strongest: f64,
    least_on_strongest: f64,
    /// From the release until a hog was first on a strongest CPU; `null`: never.
    reached_us: Vec<Option<f64>>,
}

/// Observations of a hog about itself.
#[derive(Clone, Debug, Default)]
struct Seen {
    /// CPU time, s, by CPU.
    cpus: Vec<f64>,
    reached: Option<Duration>,
}

impl Report {
    /// Summarize hogs that were counted for `run` seconds on CPUs of these capacities.
    fn new(hogs: &[Seen], capacities: &[f64], run: f64) -> Self {
        let strongest = capacities.iter().copied().fold(0.0, f64::max);
        let share = |seen: &Seen| {
            let there: f64 = seen.cpus.iter().zip(capacities).filter(|(_, c)| **c == strongest).map(|(s, _)| s).sum();
            100.0 * there / seen.cpus.iter().sum::<f64>()
        };
        let done: f64 = hogs.iter().flat_map(|seen| seen.cpus.iter().zip(capacities)).map(|(s, c)| s * c).sum();
        let mut order = capacities.to_vec();
        order.sort_by(|a, b| b.total_cmp(a));
        let ideal: f64 = order.iter().take(hogs.len()).sum::<f64>() * run;
        Self {
            of_ideal: 100.0 * done / ideal,
            ran_s: hogs.iter().map(|seen| seen.cpus.iter().sum()).collect(),
            on_strongest: hogs.iter().map(share).sum::<f64>() / hogs.len() as f64,
            least_on_strongest: hogs.iter().map(share).fold(100.0, f64::min),
            reached_us: hogs.iter().map(|seen| seen.reached.map(|t| t.as_secs_f64() * 1e6)).collect(),
        }
    }
}

/// Return capacities by CPU id; all 1024 if the kernel exports none.
fn capacities() -> Vec<f64> {
    let nr_cpus = *scx_utils::NR_CPUS_POSSIBLE;
    let of = |cpu| fs::read_to_string(format!("/sys/devices/system/cpu/cpu{cpu}/cpu_capacity")).ok();
    (0..nr_cpus).map(|cpu| of(cpu).and_then(|text| text.trim().parse().ok()).unwrap_or(1024.0)).collect()
}

fn thread_time() -> Result<Duration> {
    Ok(clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID)?.into())
}

/// Spin for `time`. CPU time between two reads, some 10 us, counts for the CPU of the second.
fn spin(time: Duration, capacities: &[f64]) -> Result<Seen> {
    let strongest = capacities.iter().copied().fold(0.0, f64::max);
    let mut seen = Seen { cpus: vec![0.0; capacities.len()], reached: None };
    let (start, mut used) = (Instant::now(), thread_time()?);
    while start.elapsed() < time {
        for i in 0..500 {
            std::hint::black_box(i);
        }
        let (now, cpu) = (thread_time()?, sched_getcpu()?);
        seen.cpus[cpu] += (now - used).as_secs_f64();
        used = now;
        if seen.reached.is_none() && capacities[cpu] == strongest {
            seen.reached = Some(start.elapsed());
        }
    }
    Ok(seen)
}

fn hog(cli: &Cli, ready: &Barrier, capacities: &[f64]) -> Result<Seen> {
    let this = Pid::from_raw(0);
    let before = sched_getaffinity(this)?;
    if let Some(start) = &cli.start {
        let mut confined = CpuSet::new();
        for cpu in read_cpulist(start).with_context(|| format!("CPUs '{start}'"))? {
            confined.set(cpu)?;
        }
        sched_setaffinity(this, &confined).with_context(|| format!("no CPUs {start}"))?;
    }
    spin(Duration::from_secs_f64(cli.warm_up), capacities)?;
    ready.wait();
    let released = Instant::now();
    sched_setaffinity(this, &before)?;
    let back = released.elapsed();
    let mut seen = spin(Duration::from_secs_f64(cli.run), capacities)?;
    seen.reached = seen.reached.map(|reached| back + reached);
    Ok(seen)
}

fn main() -> Result<()> {
    let cli = Arc::new(Cli::parse());
    let (ready, capacities) = (Arc::new(Barrier::new(cli.nr.into())), Arc::new(capacities()));
    let threads: Vec<_> = (0..cli.nr)
        .map(|_| {
            let (cli, ready, capacities) = (cli.clone(), ready.clone(), capacities.clone());
            thread::spawn(move || hog(&cli, &ready, &capacities))
        })
        .collect();
    let mut hogs = Vec::new();
    for thread in threads {
        hogs.push(thread.join().ok().context("a hog panicked")??);
    }
    ensure!(hogs.iter().all(|seen| seen.cpus.iter().sum::<f64>() > 0.0), "a hog never ran");
    println!("{}", serde_json::to_string(&Report::new(&hogs, &capacities, cli.run))?);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn capacity_time_is_judged_by_the_strongest_cpus() {
        let capacities = [430.0, 430.0, 1024.0, 1024.0];
        let hog = |cpus: [f64; 4], us| Seen { cpus: cpus.to_vec(), reached: Some(Duration::from_micros(us)) };
        let report = Report::new(&[hog([0.0, 0.0, 2.0, 0.0], 5), hog([1.0, 0.0, 0.0, 1.0], 7)], &capacities, 2.0);
        assert_eq!((report.on_strongest, report.least_on_strongest), (75.0, 50.0));
        assert_eq!(report.of_ideal, 100.0 * (3.0 * 1024.0 + 430.0) / (4.0 * 1024.0));
        assert_eq!(report.reached_us, [Some(5.0), Some(7.0)]);
        // Three hogs, two strong CPUs.
        let all = vec![hog([0.0, 0.0, 2.0, 0.0], 1), hog([0.0, 0.0, 0.0, 2.0], 1), hog([2.0, 0.0, 0.0, 0.0], 1)];
        assert_eq!(Report::new(&all, &capacities, 2.0).of_ideal, 100.0);
    }

    #[test]
    fn a_hog_sees_where_it_runs() {
        let seen = spin(Duration::from_millis(20), &capacities()).unwrap();
        assert!(seen.cpus.iter().sum::<f64>() > 0.0);
    }
}

// SPDX-License-Identifier: GPL-2.0-only
//! `magpie-conservation`: does a CPU idle while a task that may run there waits? It evaluates the
//! kernel's tracepoints, under any scheduler:
//!
//! ```text
//! COMMAND runs for --seconds, traced
//! line of the trace --> Event ---> Sched: since when and where tasks wait, since when CPUs idle
//!       trace.rs                     a wait ends, or an idle period: how long were both at once?   sched.rs
//!                              Still: stalls of busy CPUs, which do not count                      still.rs
//! /proc/*/task/*/status: where a task may run ------------------> of those CPUs only; by distance of the CPU
//! ```
//!
//! A CPU idles from its halt until it is notified, wakes by itself, or sets need_resched in an
//! interrupt. These periods do not count, because the scheduler cannot help them:
//! - from the notification of the task's CPU, or its wakeup on that idle CPU, to the reaction. Its
//!   length is a separate figure of the machine: interrupts are off, or an emulated CPU waits;
//! - while another CPU was notified and has not reacted;
//! - while the task's CPU, or the CPU that queued it, does not take its own due interrupts.
//!
//! The load ends before the trace is read. Tasks that exited before count as allowed everywhere,
//! tasks preempted with migration disabled not at all. Lost events are an error.
//!
//! `us_per_s`, the sum of these times, compares schedulers, EEVDF included. Time counts once per
//! LLC, however many tasks wait there. It excludes reactions, because all schedulers notify CPUs by
//! the same interrupts; it includes stalls, because not all set the timers that show them.

mod sched;
mod still;
mod trace;

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::Command;
use std::thread::sleep;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use clap::Parser;
use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;
use scx_utils::{Cpumask, Topology};

use sched::{Allowed, Case, Sched};
use still::Still;
use trace::{Line, Trace, parse};

/// Says for how long CPUs were idle while a task that may run there waited: at most, and in all, in us of a second of each
/// LLC; prints a line of JSON. Needs root and tracefs.
#[derive(Parser)]
struct Cli {
    /// Time that is traced.
    #[arg(long, default_value_t = 10.0, value_name = "SEC")]
    seconds: f64,
    /// Time that the load runs before it is traced.
    #[arg(long, default_value_t = 0.0, value_name = "SEC")]
    warm_up: f64,
    /// More than this is counted, for a CPU of the LLC where the task waits. Microseconds.
    #[arg(long, default_value_t = 1000.0, value_name = "US")]
    llc_limit_us: f64,
    /// The same for other CPUs. Microseconds.
    #[arg(long, default_value_t = 1000.0, value_name = "US")]
    beyond_limit_us: f64,
    /// Print what was traced of so many that are longer than the limit.
    #[arg(long, default_value_t = 0, value_name = "N")]
    show: usize,
    /// Ring buffer of a CPU. MB.
    #[arg(long, default_value_t = 64)]
    buffer_mb: u64,
    /// The load; it is killed, with what it started, when the time is over.
    #[arg(last = true, required = true)]
    command: Vec<String>,
}

/// Return the allowed CPUs of each existing task.
fn allowed() -> Result<Allowed> {
    let mut allowed = BTreeMap::new();
    for process in fs::read_dir("/proc")?.flatten() {
        let Ok(tasks) = fs::read_dir(process.path().join("task")) else { continue };
        for task in tasks.flatten() {
            let pid = task.file_name().to_string_lossy().parse()?;
            let Ok(status) = fs::read_to_string(task.path().join("status")) else { continue };
            let list = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:"));
            allowed.insert(pid, Cpumask::from_cpulist(list.context("no Cpus_allowed_list")?.trim())?.iter().collect());
        }
    }
    Ok(allowed)
}

fn main() -> Result<()> {
    let cli = Cli::parse();
    let topology = Topology::new()?;
    let llc_of: Vec<usize> = topology.all_cpus.values().map(|cpu| cpu.llc_id).collect();
    if topology.all_cpus.keys().copied().ne(0..llc_of.len()) {
        bail!("a CPU is offline: bring it back");
    }

    let trace = Trace::ready(cli.buffer_mb)?;
    let mut load = Command::new(&cli.command[0]).args(&cli.command[1..]).process_group(0).spawn()?;
    sleep(Duration::from_secs_f64(cli.warm_up));
    let recorded = trace.record(cli.seconds);
    let group = Pid::from_raw(load.id() as i32);
    // Stop the load: while many of its tasks run, reading their affinities would take seconds.
    killpg(group, Signal::SIGSTOP)?;
    let allowed = allowed();
    // Whatever failed, no process of the load remains.
    killpg(group, Signal::SIGKILL)?;
    let killed = load.wait()?.signal() == Some(Signal::SIGKILL as i32);
    recorded?;
    trace.check()?;
    let allowed = allowed?;
    ensure!(killed, "the load ended too early");

    let lines: Vec<Line> = trace.lines()?.map_while(Result::ok).filter_map(|line| parse(&line)).collect();
    let still = Still::new(llc_of.len(), lines.iter());
    let mut sched = Sched::new(&llc_of, &allowed, [cli.llc_limit_us, cli.beyond_limit_us], still);
    lines.into_iter().for_each(|line| sched.event(line));
    sched.finish();
    let shown = &sched.cases[..sched.cases.len().min(cli.show)];
    for case in shown {
        let Case { from, to, pid, cpu, idle } = case;
        eprintln!("CPU {idle} was idle while task {pid} waited on CPU {cpu}, from {from:.0} to {to:.0} us");
    }
    for line in trace.lines()?.filter(|_| !shown.is_empty()) {
        let line = line?;
        if shown.iter().any(|case| case.concerns(&line)) {
            eprintln!("{line}");
        }
    }
    ensure!(sched.nr_waits > 0, "nobody waited: there is no load");
    println!(
        "{}",
        serde_json::json!({
            "waits": sched.nr_waits,
            "llc": sched.overlaps[0],
            "beyond": sched.overlaps[1],
            "told_max_us": sched.told_max,
            "stood_still": sched.still.count(),
            "stood_still_max_us": sched.still.longest(),
        })
    );
    Ok(())
}

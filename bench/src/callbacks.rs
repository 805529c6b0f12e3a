// SPDX-License-Identifier: GPL-2.0-only
//! `magpie-callbacks`: cost of the attached scheduler's callbacks while a command runs, by the
//! kernel's statistics of BPF programs (`bpf_stats_enabled`):
//!
//! ```text
//! run_time_ns and run_cnt of each struct_ops program, and the system's switches, before and after COMMAND
//!     --> a line of JSON: ns per call of each callback, and ns of all callbacks per switch
//! ```
//!
//! In a virtual machine with a nanosecond per instruction (`vm/run --icount 0`) these are
//! instructions, whatever the host. They include the statistics themselves: about 100 per call.

use std::collections::BTreeMap;
use std::fs;
use std::process::Command;

use anyhow::{Context, Result, ensure};
use clap::Parser;
use libbpf_rs::ProgramType;
use libbpf_rs::query::{ProgInfoIter, ProgInfoQueryOptions};

const STATS: &str = "/proc/sys/kernel/bpf_stats_enabled";
/// Members of sched_ext_ops. The kernel keeps 15 characters of a program's name, prefix included.
const CALLBACKS: [&str; 10] = [
    "select_cpu",
    "enqueue",
    "dispatch",
    "running",
    "stopping",
    "runnable",
    "quiescent",
    "update_idle",
    "tick",
    "set_cpumask",
];
/// Number of letters that identify a callback.
const TELLING: usize = 4;

/// Says what each callback of the scheduler that is attached costs while a command runs; prints a line of JSON. Needs root.
#[derive(Parser)]
struct Cli {
    #[arg(last = true, required = true)]
    command: Vec<String>,
}

#[derive(Clone, Copy, Default)]
struct Cost {
    ns: u64,
    calls: u64,
}

/// Return the callback of a program by its name, which may be cut off.
fn callback(program: &str) -> &str {
    let (_, name) = program.split_once('_').unwrap_or(("", program));
    let known = CALLBACKS.iter().find(|known| name.len() >= TELLING && known.starts_with(name));
    known.copied().unwrap_or(name)
}

/// Return the costs so far, by callback.
fn costs() -> BTreeMap<String, Cost> {
    let mut costs = BTreeMap::<String, Cost>::new();
    for program in ProgInfoIter::with_query_opts(ProgInfoQueryOptions::default()) {
        if program.ty == ProgramType::StructOps {
            let cost = costs.entry(callback(&program.name.to_string_lossy()).to_owned()).or_default();
            cost.ns += program.run_time_ns;
            cost.calls += program.run_cnt;
        }
    }
    costs
}

/// Return the number of context switches so far, on all CPUs.
fn switches() -> Result<u64> {
    let stat = fs::read_to_string("/proc/stat")?;
    let line = stat.lines().find_map(|line| line.strip_prefix("ctxt "));
    Ok(line.context("no ctxt in /proc/stat")?.trim().parse()?)
}

/// Return the number of reschedule interrupts so far, on all CPUs: RES on x86, IPI0 on arm64.
fn interrupts() -> Result<u64> {
    let text = fs::read_to_string("/proc/interrupts")?;
    let line = text.lines().find_map(|line| ["RES:", "IPI0:"].iter().find_map(|name| line.trim().strip_prefix(name)));
    Ok(line.unwrap_or_default().split_whitespace().map_while(|count| count.parse::<u64>().ok()).sum())
}

fn main() -> Result<()> {
    let cli = Cli::parse();
    fs::write(STATS, "1").with_context(|| format!("{STATS}: are you root?"))?;
    let (before, switched, interrupted) = (costs(), switches()?, interrupts()?);
    let status = Command::new(&cli.command[0]).args(&cli.command[1..]).stdout(std::io::stderr()).status();
    let (after, switched, interrupted) = (costs(), switches()? - switched, interrupts()? - interrupted);
    fs::write(STATS, "0")?;
    ensure!(status?.success(), "{} failed", cli.command[0]);

    let mut callbacks = serde_json::Map::new();
    let mut all = 0;
    for (name, after) in after {
        let before = before.get(&name).copied().unwrap_or_default();
        let (ns, calls) = (after.ns - before.ns, after.calls - before.calls);
        all += ns;
        if calls > 0 {
            callbacks.insert(name, serde_json::json!({ "calls": calls, "ns": ns as f64 / calls as f64 }));
        }
    }
    ensure!(!callbacks.is_empty(), "no scheduler is attached");
    let per_switch = all as f64 / switched as f64;
    let interrupts = interrupted as f64 / switched as f64;
    let figures = serde_json::json!({
        "callbacks": callbacks, "switches": switched, "ns_per_switch": per_switch, "interrupts_per_switch": interrupts,
    });
    println!("{figures}");
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_as_the_kernel_cuts_them_off() {
        for (program, name) in [
            ("magpie_select_c", "select_cpu"),
            ("bpfland_select_", "select_cpu"),
            ("bpfland_enqueue", "enqueue"),
            ("tickless_enqueu", "enqueue"),
            ("tickless_stoppi", "stopping"),
            ("magpie_runnin", "running"),
            ("magpie_update_i", "update_idle"),
            ("p2dq_run", "run"),
            ("magpie_init_tas", "init_tas"),
            ("plain", "plain"),
        ] {
            assert_eq!(callback(program), name, "{program}");
        }
    }
}

// SPDX-License-Identifier: GPL-2.0-only
//! `magpie-numa`: loads with memory on a chosen node, which report where they ran:
//!
//! ```text
//! hog     memory bound to a node, started on another, released: shares of its run time by node
//! pairs   two processes, each with memory on a node, that wake each other over pipes:
//!         round trips, and how often a member woke on another node than before
//! maps    a process of many mappings
//! ```

use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::fd::AsFd;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use clap::{Args, Parser, Subcommand};
use nix::sched::{CpuSet, sched_getaffinity, sched_setaffinity};
use nix::sys::mman::{MapFlags, ProtFlags, mmap_anonymous};
use nix::time::{ClockId, clock_gettime};
use nix::unistd::Pid;
use scx_utils::{NR_CPU_IDS, read_cpulist};
use serde::{Deserialize, Serialize};

/// Loads that tell on which node they ran; prints a line of JSON.
#[derive(Parser)]
struct Cli {
    #[command(subcommand)]
    load: Load,
}

#[derive(Subcommand)]
enum Load {
    /// Run without sleeping (except with --sleep), and report the run time by node.
    Hog(Hog),
    /// Run pairs of processes that wake each other over pipes.
    Pairs(Pairs),
    /// Create this many mappings, then run without sleeping.
    Maps {
        /// 1..10000000
        #[arg(long, default_value_t = 100_000, value_parser = clap::value_parser!(u32).range(1..=10_000_000))]
        count: u32,
        /// Time that the run takes. Seconds.
        #[arg(long, default_value_t = 10.0, value_name = "SEC")]
        run: f64,
    },
    #[command(hide = true)]
    Member(Member),
}

#[derive(Args, Clone)]
struct Memory {
    /// Node that its memory is bound to; without it memory is where it is first touched.
    #[arg(long)]
    memory: Option<usize>,
    /// MB.
    #[arg(long, default_value_t = 16)]
    mb: usize,
    /// The policy stays with the memory; else it only has put it there.
    #[arg(long)]
    keep_policy: bool,
}

#[derive(Args)]
struct Hog {
    #[command(flatten)]
    memory: Memory,
    /// CPUs that it is confined to until it has its memory, as 0-3,8.
    #[arg(long)]
    start: Option<String>,
    /// Time that is not counted. Seconds.
    #[arg(long, default_value_t = 2.0, value_name = "SEC")]
    warm_up: f64,
    /// Time that is counted. Seconds.
    #[arg(long, default_value_t = 5.0, value_name = "SEC")]
    run: f64,
    /// Sleeps as long as it runs, so many microseconds each; 0: does not sleep.
    #[arg(long, default_value_t = 0, value_name = "US")]
    sleep: u64,
}

#[derive(Args)]
struct Pairs {
    #[arg(long, default_value_t = 1)]
    pairs: usize,
    /// Where the members of a pair have their memory.
    #[arg(long, value_delimiter = ',', value_name = "NODE,NODE")]
    memory: Vec<usize>,
    /// CPU that each member starts on.
    #[arg(long, value_delimiter = ',', value_name = "CPU,CPU")]
    start: Vec<usize>,
    /// Time that a member spins when it is woken. Microseconds.
    #[arg(long, default_value_t = 50, value_name = "US")]
    work: u64,
    /// Time that the run takes. Seconds.
    #[arg(long, default_value_t = 5.0, value_name = "SEC")]
    run: f64,
}

#[derive(Args)]
struct Member {
    #[command(flatten)]
    memory: Memory,
    #[arg(long)]
    start: Option<String>,
    #[arg(long)]
    work: u64,
    /// Writes first, and ends after so many seconds.
    #[arg(long)]
    leads: Option<f64>,
}

#[derive(Debug, Default, Serialize)]
struct HogReport {
    /// Share of the run time by node, %.
    nodes: BTreeMap<u32, f64>,
}

#[derive(Debug, Default, Deserialize, Serialize)]
struct PairReport {
    round_trips: u64,
    /// Number of times that a member woke on another node than before.
    node_moves: u64,
    /// Time from the start to the last of the first 100 ms' round trips on two LLCs, ms.
    apart_ms: f64,
    /// Share of the later round trips on two LLCs, %.
    apart_later: f64,
}

fn cpu_and_node() -> (u32, u32) {
    let (mut cpu, mut node) = (0, 0);
    // SAFETY: two valid words; the kernel ignores the third argument.
    unsafe { libc::syscall(libc::SYS_getcpu, &mut cpu, &mut node, std::ptr::null::<u8>()) };
    (cpu, node)
}

fn thread_time() -> Duration {
    clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID).expect("each thread has one").into()
}

/// Parse a list like 0-3,8.
fn cpu_set(list: &str) -> Result<CpuSet> {
    let mut set = CpuSet::new();
    for cpu in read_cpulist(list.trim())? {
        set.set(cpu).with_context(|| format!("no CPU {cpu}"))?;
    }
    Ok(set)
}

/// Allocate memory on a node while confined to `start`, then restore the affinity.
fn settle(memory: &Memory, start: Option<&str>) -> Result<&'static [u8]> {
    let caller = Pid::from_raw(0);
    let before = sched_getaffinity(caller)?;
    if let Some(start) = start {
        sched_setaffinity(caller, &cpu_set(start)?).with_context(|| format!("no CPUs {start}"))?;
    }
    let bytes = map(memory.mb << 20)?;
    if let Some(node) = memory.memory {
        let nodes: u64 = 1 << node;
        bind(bytes, libc::MPOL_BIND, Some(&nodes))?;
        bytes.fill(1);
        if !memory.keep_policy {
            bind(bytes, libc::MPOL_DEFAULT, None)?;
        }
    }
    bytes.fill(2);
    sched_setaffinity(caller, &before)?;
    Ok(bytes)
}

fn map(len: usize) -> Result<&'static mut [u8]> {
    let (prot, size) = (ProtFlags::PROT_READ | ProtFlags::PROT_WRITE, len.try_into().context("no memory")?);
    // SAFETY: a new mapping, which is never unmapped.
    unsafe {
        let at = mmap_anonymous(None, size, prot, MapFlags::MAP_PRIVATE)?;
        Ok(std::slice::from_raw_parts_mut(at.cast().as_ptr(), len))
    }
}

fn bind(bytes: &mut [u8], mode: i32, nodes: Option<&u64>) -> Result<()> {
    let mask = nodes.map_or(std::ptr::null(), |nodes| nodes as *const u64);
    // SAFETY: a mapping of this process; a mask of 64 bits or none.
    let err = unsafe { libc::syscall(libc::SYS_mbind, bytes.as_mut_ptr(), bytes.len(), mode, mask, 65, 0) };
    ensure!(err == 0, "mbind: {}", std::io::Error::last_os_error());
    Ok(())
}

fn hog(args: &Hog) -> Result<HogReport> {
    let memory = settle(&args.memory, args.start.as_deref())?;
    let (start, warm_up) = (Instant::now(), Duration::from_secs_f64(args.warm_up));
    let end = warm_up + Duration::from_secs_f64(args.run);
    let mut nodes: BTreeMap<u32, Duration> = BTreeMap::new();
    let (mut last, mut slept, mut at) = (thread_time(), thread_time(), 0);
    while start.elapsed() < end {
        for _ in 0..2000 {
            at = (at + 4160) % memory.len();
            std::hint::black_box(memory[at]);
        }
        let now = thread_time();
        if start.elapsed() >= warm_up {
            *nodes.entry(cpu_and_node().1).or_default() += now - last;
        }
        last = now;
        if args.sleep > 0 && now - slept >= Duration::from_micros(args.sleep) {
            std::thread::sleep(Duration::from_micros(args.sleep));
            slept = now;
        }
    }
    let total: Duration = nodes.values().sum();
    let share = |time: Duration| (1000.0 * time.as_secs_f64() / total.as_secs_f64()).round() / 10.0;
    Ok(HogReport { nodes: nodes.into_iter().map(|(node, time)| (node, share(time))).collect() })
}

/// Return the LLC of each CPU, identified by its list of CPUs.
fn llcs() -> Vec<String> {
    let of = |cpu: usize| {
        let cache = format!("/sys/devices/system/cpu/cpu{cpu}/cache/index3/shared_cpu_list");
        fs::read_to_string(cache).unwrap_or_default()
    };
    (0..*NR_CPU_IDS).map(of).collect()
}

/// Run a member of a pair. Each message contains the sender's CPU.
fn member(args: &Member) -> Result<PairReport> {
    let _memory = settle(&args.memory, args.start.as_deref())?;
    let (llcs, work) = (llcs(), Duration::from_micros(args.work));
    // std's stdout would buffer until the end of a line.
    let (mut stdin, mut stdout) =
        (std::io::stdin().lock(), fs::File::from(std::io::stdout().as_fd().try_clone_to_owned()?));
    let (mut report, mut apart_later) = (PairReport::default(), 0);
    let (start, mut node, mut later) = (Instant::now(), None, 0);
    let mut message = [0; 4];
    if args.leads.is_some() {
        stdout.write_all(&cpu_and_node().0.to_ne_bytes())?;
    }
    while stdin.read_exact(&mut message).is_ok() {
        let (cpu, here) = cpu_and_node();
        report.node_moves += u64::from(node.is_some_and(|node| node != here));
        node = Some(here);
        report.round_trips += 1;
        let apart = llcs[cpu as usize] != llcs[u32::from_ne_bytes(message) as usize];
        let passed = start.elapsed();
        if passed >= Duration::from_millis(100) {
            later += 1;
            apart_later += u64::from(apart);
        } else if apart {
            report.apart_ms = passed.as_secs_f64() * 1000.0;
        }
        if args.leads.is_some_and(|run| passed.as_secs_f64() >= run) {
            break;
        }
        let spun = Instant::now();
        while spun.elapsed() < work {
            std::hint::spin_loop();
        }
        if stdout.write_all(&cpu.to_ne_bytes()).is_err() {
            break;
        }
    }
    report.apart_later = 100.0 * apart_later as f64 / f64::from(later.max(1));
    Ok(report)
}

fn pairs(args: &Pairs) -> Result<PairReport> {
    let mut members = Vec::new();
    for _ in 0..args.pairs {
        let ((there_in, there_out), (back_in, back_out)) = (std::io::pipe()?, std::io::pipe()?);
        let ends: [(Stdio, Stdio); 2] = [(back_in.into(), there_out.into()), (there_in.into(), back_out.into())];
        for (i, (stdin, stdout)) in ends.into_iter().enumerate() {
            let mut command = Command::new(std::env::current_exe()?);
            command
                .args(["member", "--work", &args.work.to_string()])
                .stdin(stdin)
                .stdout(stdout)
                .stderr(Stdio::piped());
            if let Some(node) = args.memory.get(i) {
                command.args(["--memory", &node.to_string()]);
            }
            if let Some(cpu) = args.start.get(i) {
                command.args(["--start", &cpu.to_string()]);
            }
            if i == 0 {
                command.args(["--leads", &args.run.to_string()]);
            }
            members.push((i, command.spawn().context("cannot start a member")?));
        }
    }
    let mut sum = PairReport::default();
    for (i, child) in members {
        let report = report_of(child)?;
        sum.node_moves += report.node_moves;
        if i == 0 {
            sum.round_trips += report.round_trips;
            sum.apart_ms = sum.apart_ms.max(report.apart_ms);
            sum.apart_later = sum.apart_later.max(report.apart_later);
        }
    }
    Ok(sum)
}

/// Parse the report that a member prints on stderr when it exits.
fn report_of(mut child: Child) -> Result<PairReport> {
    let stderr = BufReader::new(child.stderr.take().context("no stderr")?);
    let said: Vec<String> = stderr.lines().collect::<Result<_, _>>()?;
    ensure!(child.wait()?.success(), "a member failed: {}", said.join("; "));
    Ok(serde_json::from_str(said.last().context("a member said nothing")?)?)
}

/// Create mappings: neighbours with different protection are separate mappings.
fn maps(count: u32, run: Duration) -> Result<()> {
    let page = 4096;
    let bytes = map(count as usize * page)?;
    bytes.fill(1);
    for odd in bytes.chunks_mut(page).skip(1).step_by(2) {
        // SAFETY: a page of this mapping.
        let err = unsafe { libc::mprotect(odd.as_mut_ptr().cast(), page, libc::PROT_READ) };
        ensure!(err == 0, "mprotect: {}: see vm.max_map_count", std::io::Error::last_os_error());
    }
    println!("ready");
    let start = Instant::now();
    while start.elapsed() < run {
        std::hint::spin_loop();
    }
    Ok(())
}

fn main() -> Result<()> {
    match &Cli::parse().load {
        Load::Hog(args) => println!("{}", serde_json::to_string(&hog(args)?)?),
        Load::Pairs(args) => println!("{}", serde_json::to_string(&pairs(args)?)?),
        Load::Maps { count, run } => maps(*count, Duration::from_secs_f64(*run))?,
        Load::Member(args) => eprintln!("{}", serde_json::to_string(&member(args)?)?),
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const MEMORY: Memory = Memory { memory: None, mb: 1, keep_policy: false };

    #[test]
    fn lists_of_cpus() {
        let set = cpu_set("0-2,9\n").unwrap();
        let cpus: Vec<_> = (0..16).filter(|&cpu| set.is_set(cpu).unwrap()).collect();
        assert_eq!(cpus, [0, 1, 2, 9]);
        assert!(cpu_set("x").is_err() && cpu_set("5000").is_err());
    }

    #[test]
    fn a_hog_runs_somewhere() {
        let report = hog(&Hog { memory: MEMORY, start: None, warm_up: 0.0, run: 0.2, sleep: 1000 }).unwrap();
        let sum: f64 = report.nodes.values().sum();
        assert!((99.0..=101.0).contains(&sum), "{report:?}");
    }
}

// SPDX-License-Identifier: GPL-2.0-only
//! `magpie-conservation`: does a CPU idle while a task that may run there waits? By the kernel's own tracepoints, whatever
//! the scheduler:
//!
//! ```text
//! COMMAND runs for --seconds, traced
//! line of the trace --> Event ---> Sched: who waits since when and where, which CPU idles since when
//!                                    a wait ends, or an idle period: how long were both at once?
//! /proc/*/task/*/status: where a task may run ------------------> of those CPUs only; by distance of the CPU
//! ```
//!
//! A CPU idles from when it halts until it is told to look, wakes by itself, or does in an interrupt what has it reschedule;
//! a task whose CPU was told of it, or woke it itself while it was idle, in an interrupt, is under way.
//! How long it takes to do as told is a figure of its own, for that is the machine's: interrupts that are off, an emulated
//! CPU that waits for its turn. Nor can the scheduler help it when a busy CPU stands still, and does not even take the
//! interrupt of a timer of its own that is due, or is not done with the one it sent itself: what waits there then counts as
//! waiting before and after that only. The same while another CPU was told to come and has not come yet. The load ends
//! before the trace is read. Tasks that are gone when the trace ends count as allowed everywhere, and those that were
//! preempted where they may not migrate not at all. What was lost by the ring buffer is an error.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;
use std::thread::sleep;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use clap::Parser;
use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;
use scx_utils::{Cpumask, Topology};
use serde::Serialize;

const TRACING: &str = "/sys/kernel/tracing";
const EVENTS: [&str; 11] = [
    "sched/sched_switch",
    "sched/sched_wakeup",
    "sched/sched_wakeup_new",
    "sched/sched_migrate_task",
    "sched/sched_wake_idle_without_ipi",
    "ipi/ipi_send_cpu",
    "power/cpu_idle",
    "irq_vectors/local_timer_entry",
    "irq_vectors/irq_work_exit",
    "timer/hrtimer_start",
    "timer/hrtimer_cancel",
];

/// What cpu_idle says when a CPU has woken.
const PWR_EVENT_EXIT: u32 = u32::MAX;

/// Says for how long CPUs were idle while a task that may run there waited; prints a line of JSON. Needs root and tracefs.
#[derive(Parser)]
struct Cli {
    /// Time that is traced.
    #[arg(long, default_value_t = 10.0, value_name = "SEC")]
    seconds: f64,
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

#[derive(Debug, PartialEq)]
enum Event {
    /// prev leaves the CPU, and still wants one if it is runnable, this one if it may not migrate; 0 is the idle task.
    Switch { prev: i32, runnable: bool, may_migrate: bool, next: i32 },
    /// Put in line on a CPU.
    Wakeup { pid: i32, cpu: usize },
    /// Moved to the queue of a CPU.
    Migrate { pid: i32, cpu: usize },
    /// The CPU is to look what there is.
    Told { cpu: usize },
    /// This CPU is about to halt.
    Halt,
    /// This CPU has woken.
    Wake,
    /// This CPU takes a timer interrupt.
    Timer,
    /// This CPU has taken the interrupt that it sent itself, and done what it was for: the kicks of a scheduler are sent there.
    IrqWork,
    /// This CPU sets a timer, which is due then, in us.
    Start { timer: u64, due: f64 },
    /// ... or does without.
    Cancel { timer: u64 },
}

struct Line {
    cpu: usize,
    /// us
    now: f64,
    /// The CPU is to reschedule as soon as it may.
    resched: bool,
    event: Event,
}

/// None for comments.
fn parse(line: &str) -> Option<Line> {
    let (event, (head, rest)) = (EVENTS.iter().map(|event| event.split_once('/').unwrap().1))
        .find_map(|event| Some((event, line.split_once(&format!(": {event}:"))?)))?;
    let (head, time) = head.rsplit_once(' ')?;
    let (cpu, flags) = head.rsplit_once('[')?.1.split_once(']')?;
    let cpu = cpu.parse().ok()?;
    // Of the last one of that name: a comm may contain anything.
    let field = |name: &str| rest.rsplit_once(&format!(" {name}="))?.1.split_whitespace().next();
    let pid = |name: &str| field(name)?.parse::<i32>().ok();
    let to = |name: &str| field(name)?.parse::<usize>().ok();
    let timer = || u64::from_str_radix(field("hrtimer")?.trim_start_matches("0x"), 16).ok();
    let event = match event {
        "sched_switch" => {
            let runnable = field("prev_state")?.starts_with('R');
            // irqs-off, need-resched, hard and soft interrupt, preempt-depth, migrate-disable
            let may_migrate = flags.trim().chars().nth(4)? == '.';
            Event::Switch { prev: pid("prev_pid")?, runnable, may_migrate, next: pid("next_pid")? }
        }
        "sched_migrate_task" => Event::Migrate { pid: pid("pid")?, cpu: to("dest_cpu")? },
        "sched_wake_idle_without_ipi" | "ipi_send_cpu" => Event::Told { cpu: to("cpu")? },
        "cpu_idle" if field("state")?.parse() == Ok(PWR_EVENT_EXIT) => Event::Wake,
        "cpu_idle" => Event::Halt,
        "local_timer_entry" => Event::Timer,
        "irq_work_exit" => Event::IrqWork,
        "hrtimer_start" => Event::Start { timer: timer()?, due: field("expires")?.parse::<f64>().ok()? / 1e3 },
        "hrtimer_cancel" => Event::Cancel { timer: timer()? },
        _ => Event::Wakeup { pid: pid("pid")?, cpu: to("target_cpu")? },
    };
    let resched = matches!(flags.trim().chars().nth(1)?, 'N' | 'n' | 'B' | 'b');
    Some(Line { cpu, now: time.parse::<f64>().ok()? * 1e6, resched, event })
}

/// CPUs where a task may run.
type Allowed = BTreeMap<i32, BTreeSet<usize>>;

/// A task waited beside an idle CPU, for longer than the limit. Times in us.
struct Case {
    from: f64,
    to: f64,
    pid: i32,
    cpu: usize,
    idle: usize,
}

impl Case {
    /// Does the line of the trace help to see how it came to that?
    fn concerns(&self, line: &str) -> bool {
        parse(line).is_some_and(|line| (self.from - 9000.0..=self.to).contains(&line.now))
    }
}

/// How long a CPU was idle at most while a task waited that it might have run, and how often for longer than the limit.
#[derive(Default, Serialize)]
struct Overlap {
    max_us: f64,
    over_limit: u64,
    /// Of the longest: when (in us), who, where it waited, which CPU was idle.
    longest: Option<(f64, i32, usize, usize)>,
}

struct Waiting {
    since: f64,
    cpu: usize,
    /// The CPU that put it in line, and tells others.
    by: usize,
    /// Its CPU has been told, and has not looked yet.
    under_way: bool,
}

/// A CPU that is told so soon before or after a task was put in line there, is told of it. us
const AT_ONCE: f64 = 100.0;

/// A busy CPU takes an interrupt of its own that late, or it stood still. us
const LATE: f64 = 100.0;

/// When busy CPUs stood still: from, to; in us, by CPU.
#[derive(Default)]
struct Still(Vec<Vec<(f64, f64)>>);

impl Still {
    fn new(nr_cpus: usize, lines: impl Iterator<Item = Line>) -> Self {
        let mut still = vec![Vec::new(); nr_cpus];
        let mut busy = vec![false; nr_cpus];
        // When the timers are due that each set while it was busy.
        let mut due = vec![BTreeMap::new(); nr_cpus];
        // When each sent itself an interrupt.
        let mut sent = vec![None; nr_cpus];
        for Line { cpu, now, event, .. } in lines {
            match event {
                Event::Switch { next, .. } => busy[cpu] = next != 0,
                // It takes interrupts.
                Event::Halt => due[cpu].clear(),
                Event::Told { cpu: to } if to == cpu => _ = sent[cpu].get_or_insert(now),
                Event::IrqWork => {
                    if let Some(since) = sent[cpu].take().filter(|since| now - since > LATE) {
                        still[cpu].push((since, now));
                    }
                }
                Event::Start { timer, due: at } => {
                    due.iter_mut().for_each(|due| _ = due.remove(&timer));
                    if busy[cpu] {
                        due[cpu].insert(timer, at);
                    }
                }
                Event::Cancel { timer } => due.iter_mut().for_each(|due| _ = due.remove(&timer)),
                Event::Timer => {
                    let since = due[cpu].values().copied().fold(now, f64::min);
                    if now - since > LATE {
                        still[cpu].push((since, now));
                    }
                    due[cpu].retain(|_, &mut at| at > now);
                }
                _ => {}
            }
        }
        Self(still)
    }

    /// When within that time.
    fn within(&self, cpu: usize, from: f64, to: f64) -> impl Iterator<Item = (f64, f64)> {
        clipped(&self.0[cpu], from, to)
    }

    fn longest(&self) -> f64 {
        self.0.iter().flatten().map(|still| still.1 - still.0).fold(0.0, f64::max)
    }
}

/// Of spans that are in order of their ends, those within a time.
fn clipped(spans: &[(f64, f64)], from: f64, to: f64) -> impl Iterator<Item = (f64, f64)> {
    let first = spans.partition_point(|span| span.1 <= from);
    spans[first..].iter().take_while(move |span| span.0 < to).map(move |span| (span.0.max(from), span.1.min(to)))
}

/// How long some of the spans lasted.
fn union(mut spans: Vec<(f64, f64)>) -> f64 {
    spans.sort_by(|a, b| a.0.total_cmp(&b.0));
    let (mut sum, mut end) = (0.0, 0.0_f64);
    for (from, to) in spans {
        sum += (to - from.max(end)).max(0.0);
        end = end.max(to);
    }
    sum
}

/// What the events so far say.
struct Sched<'a> {
    llc_of: &'a [usize],
    still: Still,
    allowed: &'a Allowed,
    /// In us, for other CPUs of the LLC and beyond it.
    limits: [f64; 2],
    waiting: BTreeMap<i32, Waiting>,
    running: Vec<Option<i32>>,
    idle_since: Vec<Option<f64>>,
    /// When, and whether it was idle.
    told_at: Vec<Option<(f64, bool)>>,
    /// From when it was told to when it did so, for those that were idle; us.
    came: Vec<Vec<(f64, f64)>>,
    overlaps: [Overlap; 2],
    cases: Vec<Case>,
    /// The longest from when an idle CPU was told to look to when it did something, us.
    told_max: f64,
    nr_waits: u64,
}

impl<'a> Sched<'a> {
    fn new(llc_of: &'a [usize], allowed: &'a Allowed, limits: [f64; 2], still: Still) -> Self {
        Sched {
            llc_of,
            still,
            allowed,
            limits,
            waiting: BTreeMap::new(),
            running: vec![None; llc_of.len()],
            idle_since: vec![None; llc_of.len()],
            told_at: vec![None; llc_of.len()],
            came: vec![Vec::new(); llc_of.len()],
            overlaps: Default::default(),
            cases: Vec::new(),
            told_max: 0.0,
            nr_waits: 0,
        }
    }

    fn event(&mut self, Line { cpu, now, resched, event }: Line) {
        let by = cpu;
        if resched {
            self.idle_ends(cpu, now);
        }
        match event {
            Event::Switch { prev, runnable, may_migrate, next } => {
                self.idle_ends(cpu, now);
                self.told(cpu, now);
                if prev != 0 && runnable && may_migrate {
                    self.wait_begins(prev, cpu, by, now, false);
                }
                self.running[cpu] = Some(next);
                if next != 0 {
                    self.wait_ends(next, now);
                }
            }
            Event::Told { cpu } => {
                let idle = self.idle_ends(cpu, now);
                self.told_at[cpu].get_or_insert((now, idle));
                for waiting in self.waiting.values_mut().filter(|waiting| waiting.cpu == cpu) {
                    waiting.under_way |= now - waiting.since < AT_ONCE;
                }
            }
            Event::Halt => {
                self.told(cpu, now);
                self.idle_since[cpu] = Some(now);
            }
            Event::Wake => _ = self.idle_ends(cpu, now),
            Event::Timer | Event::IrqWork | Event::Start { .. } | Event::Cancel { .. } => {}
            // Also said of a task that has not left its CPU yet.
            Event::Wakeup { pid, cpu } if !self.running.contains(&Some(pid)) => {
                let by_itself = by == cpu && self.running[cpu] == Some(0);
                if by_itself {
                    self.told_at[cpu].get_or_insert((now, true));
                }
                self.wait_begins(pid, cpu, by, now, by_itself);
            }
            Event::Wakeup { .. } => {}
            // The idle CPUs of the LLC that it comes to have not failed it yet.
            Event::Migrate { pid, cpu } => {
                if self.wait_ends(pid, now) {
                    self.wait_begins(pid, cpu, by, now, false);
                }
            }
        }
    }

    /// `comes`: the CPU is idle, and was told just now.
    fn wait_begins(&mut self, pid: i32, cpu: usize, by: usize, now: f64, comes: bool) {
        let under_way = comes || self.told_at[cpu].is_some_and(|(told, _)| now - told < AT_ONCE);
        self.waiting.entry(pid).or_insert(Waiting { since: now, cpu, by, under_way });
    }

    /// false: it did not wait.
    fn wait_ends(&mut self, pid: i32, now: f64) -> bool {
        let Some(waiting) = self.waiting.remove(&pid) else { return false };
        self.nr_waits += 1;
        for idle in 0..self.idle_since.len() {
            self.overlap(pid, &waiting, idle, now);
        }
        true
    }

    /// The CPU has done as it was told, if it was.
    fn told(&mut self, cpu: usize, now: f64) {
        let Some((at, idle)) = self.told_at[cpu].take() else { return };
        if idle {
            self.told_max = self.told_max.max(now - at);
            self.came[cpu].push((at, now));
        }
        for waiting in self.waiting.values_mut().filter(|waiting| waiting.cpu == cpu && waiting.under_way) {
            (waiting.since, waiting.under_way) = (now, false);
        }
    }

    /// false: it did not idle.
    fn idle_ends(&mut self, cpu: usize, now: f64) -> bool {
        let waiting = std::mem::take(&mut self.waiting);
        for (&pid, waits) in &waiting {
            self.overlap(pid, waits, cpu, now);
        }
        self.waiting = waiting;
        self.idle_since[cpu].take().is_some()
    }

    /// Takes note of how long a task has waited until now while a CPU was idle, if it is.
    fn overlap(&mut self, pid: i32, waiting: &Waiting, idle: usize, now: f64) {
        let Some(idle_since) = self.idle_since[idle] else { return };
        if waiting.under_way {
            return;
        }
        let may_run = |cpu: &usize| self.allowed.get(&pid).is_none_or(|allowed| allowed.contains(cpu));
        if !may_run(&idle) {
            return;
        }
        let distance = usize::from(self.llc_of[idle] != self.llc_of[waiting.cpu]);
        let overlap = &mut self.overlaps[distance];
        let since = idle_since.max(waiting.since);
        let still = |cpu| self.still.within(cpu, since, now);
        let mut excused: Vec<_> = still(waiting.cpu).chain(still(waiting.by)).collect();
        for cpu in (0..self.came.len()).filter(may_run) {
            // Told before it began to wait: for another.
            let for_it = |&(told, _): &(f64, f64)| told > waiting.since;
            let coming = self.told_at[cpu].filter(|told| told.1).map(|told| (told.0, now));
            let came = &self.came[cpu];
            excused.extend(clipped(&came[came.partition_point(|span| span.0 <= waiting.since)..], since, now));
            excused.extend(coming.filter(for_it).map(|span| (span.0.max(since), span.1)));
        }
        let both = now - since - union(excused);
        if both > self.limits[distance] {
            overlap.over_limit += 1;
            self.cases.push(Case { from: since, to: now, pid, cpu: waiting.cpu, idle });
        }
        if both > overlap.max_us {
            overlap.max_us = both;
            overlap.longest = Some((now, pid, waiting.cpu, idle));
        }
    }
}

/// Where each task that there is may run.
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

fn write(file: &str, what: impl AsRef<[u8]>) -> Result<()> {
    fs::write(Path::new(TRACING).join(file), what).with_context(|| format!("{TRACING}/{file}"))
}

/// Traces for so long, on the clock that timers are set by; the trace is in the ring buffer then.
fn trace(seconds: f64, buffer_mb: u64) -> Result<()> {
    write("trace_clock", "mono")?;
    write("buffer_size_kb", (buffer_mb * 1024).to_string())?;
    write("trace", "")?;
    // All at once: events come and go one after the other, which takes a while.
    write("tracing_on", "0")?;
    let enable = |on| EVENTS.iter().try_for_each(|event| write(&format!("events/{event}/enable"), on));
    enable("1")?;
    write("tracing_on", "1")?;
    sleep(Duration::from_secs_f64(seconds));
    write("tracing_on", "0")?;
    enable("0")?;
    for cpu in fs::read_dir(Path::new(TRACING).join("per_cpu"))?.flatten() {
        let stats = fs::read_to_string(cpu.path().join("stats"))?;
        let lost = stats.lines().any(|line| line.starts_with("overrun: ") && line != "overrun: 0");
        ensure!(!lost, "events were lost: take a larger --buffer-mb");
    }
    Ok(())
}

fn main() -> Result<()> {
    let cli = Cli::parse();
    let topology = Topology::new()?;
    let llc_of: Vec<usize> = topology.all_cpus.values().map(|cpu| cpu.llc_id).collect();
    if topology.all_cpus.keys().copied().ne(0..llc_of.len()) {
        bail!("a CPU is offline: bring it back");
    }

    let mut load = Command::new(&cli.command[0]).args(&cli.command[1..]).process_group(0).spawn()?;
    trace(cli.seconds, cli.buffer_mb)?;
    let allowed = allowed()?;
    ensure!(load.try_wait()?.is_none(), "the load ended too early");
    killpg(Pid::from_raw(load.id() as i32), Signal::SIGKILL)?;
    load.wait()?;

    let lines = || Ok::<_, anyhow::Error>(BufReader::new(fs::File::open(Path::new(TRACING).join("trace"))?).lines());
    let still = Still::new(llc_of.len(), lines()?.map_while(Result::ok).filter_map(|line| parse(&line)));
    let mut sched = Sched::new(&llc_of, &allowed, [cli.llc_limit_us, cli.beyond_limit_us], still);
    for line in lines()? {
        if let Some(line) = parse(&line?) {
            sched.event(line);
        }
    }
    for case in &sched.cases[..sched.cases.len().min(cli.show)] {
        let Case { from, to, pid, cpu, idle } = case;
        eprintln!("CPU {idle} was idle while task {pid} waited on CPU {cpu}, from {from:.0} to {to:.0} us");
    }
    let shown = &sched.cases[..sched.cases.len().min(cli.show)];
    for line in lines()?.filter(|_| !shown.is_empty()) {
        let line = line?;
        if shown.iter().any(|case| case.concerns(&line)) {
            eprintln!("{line}");
        }
    }
    write("trace", "")?;
    ensure!(sched.nr_waits > 0, "nobody waited: there is no load");
    println!(
        "{}",
        serde_json::json!({
            "waits": sched.nr_waits,
            "llc": sched.overlaps[0],
            "beyond": sched.overlaps[1],
            "told_max_us": sched.told_max,
            "stood_still": sched.still.0.iter().map(Vec::len).sum::<usize>(),
            "stood_still_max_us": sched.still.longest(),
        })
    );
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn overlaps(allowed: &[(i32, &[usize])], lines: &[&str]) -> [(f64, u64); 2] {
        let allowed = allowed.iter().map(|&(pid, cpus)| (pid, cpus.iter().copied().collect())).collect();
        let parsed = || lines.iter().map(|line| parse(line).unwrap_or_else(|| panic!("{line}")));
        let mut sched = Sched::new(&[0, 0, 1], &allowed, [1000.0, 2000.0], Still::new(3, parsed()));
        parsed().for_each(|line| sched.event(line));

        sched.overlaps.map(|overlap| (overlap.max_us.round(), overlap.over_limit))
    }

    /// CPU 0 taken by task 10, the others idle from 1 ms on.
    const START: [&str; 5] = [
        "          <idle>-0       [000] d..2.     0.001000: sched_switch: prev_comm=swapper/0 prev_pid=0 prev_prio=120 prev_state=R ==> next_comm=hog next_pid=10 next_prio=120",
        "             a b-7       [001] d..2.     0.001000: sched_switch: prev_comm=a b prev_pid=7 prev_prio=120 prev_state=S ==> next_comm=swapper/1 next_pid=0 next_prio=120",
        "               c-8       [002] d..2.     0.001000: sched_switch: prev_comm=c prev_pid=8 prev_prio=120 prev_state=I ==> next_comm=swapper/2 next_pid=0 next_prio=120",
        "          <idle>-0       [001] d..1.     0.001000: cpu_idle: state=1 cpu_id=1",
        "          <idle>-0       [002] d..1.     0.001000: cpu_idle: state=0 cpu_id=2",
    ];
    const WAKES: &str =
        "             hog-10      [000] d.h4.     0.002000: sched_wakeup: comm=x pid=11 prio=120 target_cpu=000";
    const RUNS: &str = "             hog-10      [000] d..2.     0.007000: sched_switch: prev_comm=hog prev_pid=10 prev_prio=120 prev_state=R+ ==> next_comm=x next_pid=11 next_prio=120";

    #[test]
    fn a_task_waits_beside_idle_cpus() {
        assert_eq!(overlaps(&[], &[&START[..], &[WAKES, RUNS]].concat()), [(5000.0, 1), (5000.0, 1)]);
    }

    #[test]
    fn where_it_may_not_run_does_not_count() {
        assert_eq!(overlaps(&[(11, &[0, 2])], &[&START[..], &[WAKES, RUNS]].concat()), [(0.0, 0), (5000.0, 1)]);
        assert_eq!(overlaps(&[(11, &[0])], &[&START[..], &[WAKES, RUNS]].concat()), [(0.0, 0), (0.0, 0)]);
    }

    #[test]
    fn an_idle_period_ends_before_the_wait() {
        let other = "          <idle>-0       [001] d..2.     0.002500: sched_switch: prev_comm=swapper/1 prev_pid=0 prev_prio=120 prev_state=R ==> next_comm=y next_pid=12 next_prio=120";
        assert_eq!(overlaps(&[(11, &[0, 1])], &[&START[..], &[WAKES, other, RUNS]].concat()), [(500.0, 0), (0.0, 0)]);
    }

    #[test]
    fn who_is_preempted_waits_and_who_sleeps_does_not() {
        let preempted = &[&START[..], &[WAKES, RUNS]].concat();
        let back = "               x-11      [000] d..2.     0.008500: sched_switch: prev_comm=x prev_pid=11 prev_prio=120 prev_state=S ==> next_comm=hog next_pid=10 next_prio=120";
        let mut allowed: Vec<(i32, &[usize])> = vec![(11, &[0])];
        assert_eq!(overlaps(&allowed, &[preempted, &[back][..]].concat()), [(1500.0, 1), (1500.0, 0)]);
        allowed.push((10, &[0]));
        assert_eq!(overlaps(&allowed, &[preempted, &[back][..]].concat()), [(0.0, 0), (0.0, 0)]);
    }

    #[test]
    fn who_may_not_migrate_does_not_count() {
        let back = "               x-11      [000] d..2.     0.008500: sched_switch: prev_comm=x prev_pid=11 prev_prio=120 prev_state=S ==> next_comm=hog next_pid=10 next_prio=120";
        let disabled = RUNS.replace("d..2.", "d..21");
        let alone = [(11, &[0][..])];
        assert_eq!(overlaps(&alone, &[&START[..], &[WAKES, RUNS, back]].concat()), [(1500.0, 1), (1500.0, 0)]);
        assert_eq!(overlaps(&alone, &[&START[..], &[WAKES, &disabled, back]].concat()), [(0.0, 0), (0.0, 0)]);
    }

    #[test]
    fn one_that_is_taken_by_another_llc_waits_anew_there() {
        let taken = "          <idle>-0       [002] d..2.     0.002400: sched_migrate_task: comm=x pid=11 prio=120 orig_cpu=0 dest_cpu=2";
        let lines = [&START[..], &[WAKES, taken, RUNS]].concat();
        assert_eq!(overlaps(&[(11, &[0, 1])], &lines), [(400.0, 0), (4600.0, 1)]);
        // Waking up what has not left its CPU changes nothing.
        let again =
            "             hog-10      [000] d.h4.     0.006000: sched_wakeup: comm=hog pid=10 prio=120 target_cpu=000";
        assert_eq!(overlaps(&[(11, &[0])], &[&START[..], &[again, WAKES, RUNS]].concat()), [(0.0, 0), (0.0, 0)]);
    }

    /// A task whose CPU has been told of it is under way, and no business of others until that CPU has looked.
    #[test]
    fn under_way() {
        let told =
            "             hog-10      [000] d.h4.     0.002000: ipi_send_cpu: cpu=1 callsite=x+0x1/0x2 callback=0x0";
        let wakes =
            "             hog-10      [000] d.h4.     0.002000: sched_wakeup: comm=x pid=11 prio=120 target_cpu=001";
        let looks = "          <idle>-0       [001] d..2.     0.005000: sched_switch: prev_comm=swapper/1 prev_pid=0 prev_prio=120 prev_state=R ==> next_comm=y next_pid=12 next_prio=120";
        for lines in [[wakes, told], [told, wakes]] {
            let lines = [&START[..], &lines, &[looks, RUNS]].concat();
            assert_eq!(overlaps(&[(11, &[1, 2])], &lines), [(0.0, 0), (2000.0, 0)]);
        }
    }

    /// So is one that its CPU wakes itself, in an interrupt in the idle loop, which may go on: nobody can take it from there.
    #[test]
    fn an_idle_cpu_wakes_it_for_itself() {
        let of = |cpu: usize, task: &str| {
            format!(
                "          {task}      [00{cpu}] dNh2.     0.002000: sched_wakeup: comm=x pid=11 prio=120 target_cpu=001"
            )
        };
        let looks = "          <idle>-0       [001] d..2.     0.005000: sched_switch: prev_comm=swapper/1 prev_pid=0 prev_prio=120 prev_state=R ==> next_comm=y next_pid=12 next_prio=120";
        let waits = |wakes: &str| overlaps(&[(11, &[1, 2])], &[&START[..], &[wakes, looks, RUNS]].concat())[1];
        assert_eq!(waits(&of(1, "<idle>-0 ")), (2000.0, 0));
        // Another CPU woke it, and did not say so.
        assert_eq!(waits(&of(0, "hog-10   ")), (5000.0, 1));
    }

    /// Whom it is told to is not idle until it has looked, and is again if that was in vain.
    #[test]
    fn told_to_look() {
        for told in ["ipi_send_cpu: cpu=1 callsite=x+0x1/0x2 callback=0x0", "sched_wake_idle_without_ipi: cpu=1"] {
            let told = format!("             hog-10      [000] d.h4.     0.002300: {told}");
            let wakes = "          <idle>-0       [001] d..1.     0.003000: cpu_idle: state=4294967295 cpu_id=1";
            let halts = "          <idle>-0       [001] d..1.     0.006400: cpu_idle: state=1 cpu_id=1";
            let lines = [&START[..], &[WAKES, &told, wakes, RUNS]].concat();
            assert_eq!(overlaps(&[(11, &[0, 1])], &lines), [(300.0, 0), (0.0, 0)]);
            let lines = [&START[..], &[WAKES, &told, wakes, halts, RUNS]].concat();
            assert_eq!(overlaps(&[(11, &[0, 1])], &lines), [(600.0, 0), (0.0, 0)]);
        }
    }

    /// The idle task runs, but in an interrupt.
    #[test]
    fn what_is_about_to_reschedule_does_not_idle() {
        let irq =
            "          <idle>-0       [001] dNs5.     0.002300: sched_wakeup: comm=y pid=12 prio=120 target_cpu=001";
        assert_eq!(overlaps(&[(11, &[0, 1])], &[&START[..], &[WAKES, irq, RUNS]].concat()), [(300.0, 0), (0.0, 0)]);
    }

    /// The CPU where it waits does not take the interrupt of its timer: nothing there can help.
    #[test]
    fn a_cpu_that_stands_still() {
        let start = |cpu: usize, due: &str| {
            format!(
                "             hog-10      [{cpu:03}] d.h2.     0.001500: hrtimer_start: hrtimer=00000000a1 function=f expires={due} softexpires=1 mode=ABS"
            )
        };
        let (own, of_idle) = (start(0, "2700000"), start(1, "2700000"));
        let cancel = "             hog-10      [000] d.h2.     0.001800: hrtimer_cancel: hrtimer=00000000a1";
        let taken = "             hog-10      [000] d.h2.     0.005000: local_timer_entry: vector=236";
        let waits = |lines: &[&str]| overlaps(&[(11, &[0, 1])], &[&START[..], lines, &[RUNS]].concat())[0];
        assert_eq!(waits(&[&own, WAKES, taken]), (2700.0, 1));
        assert_eq!(waits(&[&own, WAKES]), (5000.0, 1));
        assert_eq!(waits(&[&start(0, "5000000"), WAKES, taken]), (5000.0, 1));
        // It may have been for another CPU, and one that is off is not due.
        assert_eq!(waits(&[&of_idle, WAKES, taken]), (5000.0, 1));
        assert_eq!(waits(&[&own, cancel, WAKES, taken]), (5000.0, 1));
    }

    /// It has its interrupts off, so that what it told itself to tell others is late.
    #[test]
    fn a_cpu_that_does_not_hear_itself() {
        let own = "             hog-10      [000] d.h4.     0.002100: ipi_send_cpu: cpu=0 callsite=irq_work_queue+0x1/0x2 callback=x+0x0/0x1";
        let heard = "             hog-10      [000] d.h4.     0.005000: irq_work_exit: vector=246";
        let waits = |lines: &[&str]| overlaps(&[(11, &[0, 1])], &[&START[..], lines, &[RUNS]].concat())[0];
        assert_eq!(waits(&[WAKES, own, heard]), (2100.0, 1));
        assert_eq!(waits(&[WAKES, own, &heard.replace("0.005000", "0.002150")]), (5000.0, 1));
        // The same of who put the task in line there.
        let (by, own, heard) = (&WAKES.replace("[000]", "[002]"), &own.replace("cpu=0 ", "cpu=2 "), heard);
        assert_eq!(waits(&[by, &own.replace("[000]", "[002]"), &heard.replace("[000]", "[002]")]), (2100.0, 1));
    }

    /// While another idle CPU that may run it is about to come, those that were not told cannot help it.
    #[test]
    fn help_is_under_way() {
        let told =
            "             hog-10      [000] d.h4.     0.002500: ipi_send_cpu: cpu=1 callsite=x+0x1/0x2 callback=0x0";
        let comes = "          <idle>-0       [001] d..2.     0.006000: sched_switch: prev_comm=swapper/1 prev_pid=0 prev_prio=120 prev_state=R ==> next_comm=y next_pid=12 next_prio=120";
        let waits =
            |allowed: &[usize], lines: &[&str]| overlaps(&[(11, allowed)], &[&START[..], lines, &[RUNS]].concat())[1];
        assert_eq!(waits(&[0, 1, 2], &[WAKES, told, comes]), (1500.0, 0));
        assert_eq!(waits(&[0, 1, 2], &[WAKES, told]), (500.0, 0));
        // Not for it: it may not run there, or was not there yet.
        assert_eq!(waits(&[0, 2], &[WAKES, told, comes]), (5000.0, 1));
        assert_eq!(waits(&[0, 1, 2], &[&told.replace("0.002500", "0.001500"), WAKES, comes]), (5000.0, 1));
    }

    #[test]
    fn comments_are_not_events() {
        assert!(parse("#           TASK-PID     CPU#  |||||  TIMESTAMP  FUNCTION").is_none());
        let line = parse(WAKES).unwrap();
        assert_eq!((line.cpu, line.now, line.event), (0, 2000.0, Event::Wakeup { pid: 11, cpu: 0 }));
    }
}

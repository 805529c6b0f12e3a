// SPDX-License-Identifier: GPL-2.0-only
//! Record the kernel's trace, and parse its lines.

use std::fs;
use std::io::{BufRead, BufReader, ErrorKind};
use std::path::Path;
use std::thread::sleep;
use std::time::Duration;

use anyhow::{Context, Result, ensure};

/// A separate instance of tracefs does not disturb other tracing.
const TRACING: &str = "/sys/kernel/tracing/instances/magpie-conservation";
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

/// State that cpu_idle reports when a CPU has woken.
const PWR_EVENT_EXIT: u32 = u32::MAX;

#[derive(Debug, PartialEq)]
pub enum Event {
    /// prev leaves the CPU. A runnable prev waits: here only, if it may not migrate. 0 is idle.
    Switch { prev: i32, runnable: bool, may_migrate: bool, next: i32 },
    /// The task is queued on a CPU.
    Wakeup { pid: i32, cpu: usize },
    /// The task moves to the queue of a CPU.
    Migrate { pid: i32, cpu: usize },
    /// The CPU is asked to reschedule.
    Told { cpu: usize },
    /// This CPU is about to halt.
    Halt,
    /// This CPU has woken.
    Wake,
    /// This CPU takes a timer interrupt.
    Timer,
    /// This CPU handled an irq_work that it sent itself, from which schedulers send kicks.
    IrqWork,
    /// This CPU starts a timer, due at this time, us.
    Start { timer: u64, due: f64 },
    /// This CPU cancels a timer.
    Cancel { timer: u64 },
}

pub struct Line {
    pub cpu: usize,
    /// us
    pub now: f64,
    /// need_resched is set on the CPU.
    pub resched: bool,
    pub event: Event,
}

/// Parse a line. None for comments.
pub fn parse(line: &str) -> Option<Line> {
    let (event, (head, rest)) = (EVENTS.iter().map(|event| event.split_once('/').unwrap().1))
        .find_map(|event| Some((event, line.split_once(&format!(": {event}:"))?)))?;
    let (head, time) = head.rsplit_once(' ')?;
    let (cpu, flags) = head.rsplit_once('[')?.1.split_once(']')?;
    let cpu = cpu.parse().ok()?;
    // Take the last field of that name, because a comm may contain anything.
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

fn write(file: &str, what: impl AsRef<[u8]>) -> Result<()> {
    fs::write(Path::new(TRACING).join(file), what).with_context(|| format!("{TRACING}/{file}"))
}

/// A trace in the kernel's ring buffer, which is freed when this is dropped.
pub struct Trace;

impl Trace {
    /// Set up the trace, on the clock of timers. Call it before the load starts: under a load with
    /// many wakeups it takes a tenth of a second per event.
    pub fn ready(buffer_mb: u64) -> Result<Self> {
        // The directory may remain from a run that was killed.
        match fs::create_dir(TRACING) {
            Err(error) if error.kind() != ErrorKind::AlreadyExists => {
                return Err(error).context(format!("{TRACING}: no tracing in this kernel?"));
            }
            _ => {}
        }
        let trace = Trace;
        write("tracing_on", "0")?;
        write("trace_clock", "mono")?;
        write("buffer_size_kb", (buffer_mb * 1024).to_string())?;
        write("trace", "")?;
        EVENTS.iter().try_for_each(|event| write(&format!("events/{event}/enable"), "1"))?;
        Ok(trace)
    }

    /// Trace for this time.
    pub fn record(&self, seconds: f64) -> Result<()> {
        write("tracing_on", "1")?;
        sleep(Duration::from_secs_f64(seconds));
        write("tracing_on", "0")
    }

    /// Fail if the ring buffer lost events.
    pub fn check(&self) -> Result<()> {
        for cpu in fs::read_dir(Path::new(TRACING).join("per_cpu"))?.flatten() {
            let stats = fs::read_to_string(cpu.path().join("stats"))?;
            let lost = stats.lines().any(|line| line.starts_with("overrun: ") && line != "overrun: 0");
            ensure!(!lost, "events were lost: take a larger --buffer-mb");
        }
        Ok(())
    }

    /// Return the lines of the trace.
    pub fn lines(&self) -> Result<impl Iterator<Item = std::io::Result<String>> + use<>> {
        Ok(BufReader::new(fs::File::open(Path::new(TRACING).join("trace"))?).lines())
    }
}

impl Drop for Trace {
    fn drop(&mut self) {
        _ = fs::remove_dir(TRACING);
    }
}

// SPDX-License-Identifier: GPL-2.0-only
//! What a file says: its tasks, their phases, and the events of these, in order.

use anyhow::{Context, Result, bail, ensure};

use super::json::Json;
use crate::task::{SCHED_BATCH, SCHED_IDLE, SCHED_NORMAL};

/// Longest time in a file, us, so that sums of some stay far from overflow: an hour.
const MAX_TIME: u64 = 3_600_000_000;

/// A thread object.
#[derive(Debug, PartialEq)]
pub struct Task {
    pub name: String,
    pub instances: usize,
    pub delay: u64,
    pub nice: i32,
    pub policy: u32,
    pub cpus: Vec<usize>,
    pub phases: Vec<Phase>,
    /// Of all phases; `None`: for ever.
    pub loops: Option<u32>,
}

#[derive(Debug, PartialEq)]
pub struct Phase {
    pub events: Vec<Event>,
    pub loops: Option<u32>,
}

/// Times in us. Mutexes, conditions and barriers by name.
#[derive(Clone, Debug, PartialEq)]
pub enum Event {
    Run(u64),
    Runtime(u64),
    Sleep(u64),
    Timer { name: String, period: u64, relative: bool },
    Lock(String),
    Unlock(String),
    Wait { condition: String, mutex: String },
    Sync { condition: String, mutex: String },
    Signal(String),
    Broadcast(String),
    Suspend(String),
    Barrier(String),
    Yield,
}

/// Names of events. Any text may follow, for JSON wants names that differ; so those that begin with another come first.
const EVENTS: [&str; 14] = [
    "runtime", "run", "sleep", "timer", "lock", "unlock", "wait", "signal", "broad", "sync", "suspend", "resume",
    "barrier", "yield",
];

/// What rt-app knows, and this does not: keys and the beginnings of events' names.
const NOT_SIMULATED: [&str; 12] = [
    "mem",
    "iorun",
    "fork",
    "dl-",
    "util_min",
    "util_max",
    "taskgroup",
    "period",
    "deadline",
    "exec",
    "timerslack",
    "lock_order",
];

/// Keys of the global section that say how rt-app itself works. How long is the scenario's to say.
const GLOBAL_IGNORED: [&str; 13] = [
    "duration",
    "calibration",
    "lock_pages",
    "logdir",
    "log_basename",
    "log_size",
    "logsize",
    "log",
    "ftrace",
    "gnuplot",
    "io_device",
    "mem_buffer_size",
    "cumulative_slack",
];

pub fn parse(text: &str) -> Result<Vec<Task>> {
    let root = Json::parse(text)?;
    let mut policy = SCHED_NORMAL;
    let mut tasks = None;
    for (key, value) in root.object()? {
        match key.as_str() {
            "tasks" => tasks = Some(value.object().context("\"tasks\"")?),
            "global" => policy = parse_global(value).context("\"global\"")?,
            // Of older versions of rt-app: it makes them when they are named.
            "resources" => {}
            _ => bail!("unknown key \"{key}\": there are \"tasks\", \"global\" and \"resources\""),
        }
    }
    let tasks = tasks.context("no \"tasks\"")?;
    tasks
        .iter()
        .map(|(name, task)| parse_task(name, task, policy).with_context(|| format!("task \"{name}\"")))
        .collect()
}

/// Returns the default policy.
fn parse_global(global: &Json) -> Result<u32> {
    let mut policy = SCHED_NORMAL;
    for (key, value) in global.object()? {
        match key.as_str() {
            "default_policy" => policy = parse_policy(value.text()?)?,
            "pi_enabled" => {
                ensure!(matches!(value, Json::Bool(false)), "\"pi_enabled\": priority inheritance is not simulated");
            }
            key if GLOBAL_IGNORED.contains(&key) => {}
            _ => bail!("unknown key \"{key}\""),
        }
    }
    Ok(policy)
}

fn parse_policy(name: &str) -> Result<u32> {
    Ok(match name {
        "SCHED_OTHER" => SCHED_NORMAL,
        "SCHED_BATCH" => SCHED_BATCH,
        "SCHED_IDLE" => SCHED_IDLE,
        _ => bail!("policy \"{name}\" is not one of SCHED_OTHER, SCHED_BATCH, SCHED_IDLE"),
    })
}

fn parse_task(name: &str, value: &Json, policy: u32) -> Result<Task> {
    let mut task = Task {
        name: name.into(),
        instances: 1,
        delay: 0,
        nice: 0,
        policy,
        cpus: Vec::new(),
        phases: Vec::new(),
        loops: None,
    };
    let mut events = Vec::new();
    for (key, value) in value.object()? {
        let parsed: Result<()> = (|| {
            match key.as_str() {
                "instance" => task.instances = value.number(0, 100_000)? as usize,
                "delay" => task.delay = value.number(0, MAX_TIME as i64)? as u64,
                "priority" => task.nice = value.number(-20, 19)? as i32,
                "policy" => task.policy = parse_policy(value.text()?)?,
                "cpus" => {
                    let cpus = value.array()?.iter().map(|cpu| Ok(cpu.number(0, i64::MAX)? as usize));
                    task.cpus = cpus.collect::<Result<_>>()?;
                    ensure!(!task.cpus.is_empty(), "no CPU");
                }
                "loop" => task.loops = value.loops()?,
                "phases" => {
                    for (phase, value) in value.object()? {
                        task.phases.push(parse_phase(name, value).with_context(|| format!("phase \"{phase}\""))?);
                    }
                }
                _ => events.push(parse_event(name, key, value)?),
            }
            Ok(())
        })();
        parsed.with_context(|| format!("\"{key}\""))?;
    }
    if task.phases.is_empty() {
        task.phases.push(Phase { events, loops: Some(1) });
    } else {
        ensure!(events.is_empty(), "it has events of its own besides its \"phases\"");
    }
    ensure!(task.phases.iter().any(|phase| !phase.events.is_empty()), "it does nothing");
    Ok(task)
}

fn parse_phase(task: &str, value: &Json) -> Result<Phase> {
    let mut phase = Phase { events: Vec::new(), loops: Some(1) };
    for (key, value) in value.object()? {
        match key.as_str() {
            "loop" => phase.loops = value.loops().context("\"loop\"")?,
            "policy" | "priority" | "cpus" => {
                bail!("\"{key}\" is simulated for a whole task only, not for a phase")
            }
            _ => phase.events.push(parse_event(task, key, value).with_context(|| format!("\"{key}\""))?),
        }
    }
    Ok(phase)
}

fn parse_event(task: &str, key: &str, value: &Json) -> Result<Event> {
    let time = || Ok::<_, anyhow::Error>(value.number(0, MAX_TIME as i64)? as u64);
    let text = || Ok::<_, anyhow::Error>(value.text()?.to_string());
    // workgen puts in the task's own name if there is none.
    let own = || Ok::<_, anyhow::Error>(if value.text()?.is_empty() { task.into() } else { value.text()?.into() });
    // An older version of a task's "period" is no event of that name either.
    if let Some(name) = NOT_SIMULATED.iter().find(|name| key.starts_with(**name)) {
        bail!("\"{name}\" of rt-app is not simulated");
    }
    let name = EVENTS.iter().find(|name| key.starts_with(**name));
    Ok(match name.copied().with_context(|| format!("unknown key \"{key}\": no event begins like that"))? {
        "runtime" => Event::Runtime(time()?),
        "run" => Event::Run(time()?),
        "sleep" => Event::Sleep(time()?),
        "timer" => parse_timer(value)?,
        "lock" => Event::Lock(text()?),
        "unlock" => Event::Unlock(text()?),
        "wait" => parse_wait(value, |condition, mutex| Event::Wait { condition, mutex })?,
        "sync" => parse_wait(value, |condition, mutex| Event::Sync { condition, mutex })?,
        "signal" => Event::Signal(text()?),
        // rt-app's resume is a broadcast to those suspended under the name.
        "broad" => Event::Broadcast(text()?),
        "resume" => Event::Broadcast(own()?),
        "suspend" => Event::Suspend(own()?),
        "barrier" => Event::Barrier(text()?),
        _ => Event::Yield,
    })
}

fn parse_timer(value: &Json) -> Result<Event> {
    // As rt-app has it, no name is a name.
    let (mut name, mut period, mut relative) = ("unknown".to_string(), None, true);
    for (key, value) in value.object()? {
        match key.as_str() {
            "ref" => name = value.text()?.into(),
            "period" => period = Some(value.number(1, MAX_TIME as i64).context("\"period\"")? as u64),
            "mode" => {
                relative = match value.text()? {
                    "relative" => true,
                    "absolute" => false,
                    mode => bail!("mode \"{mode}\" is neither relative nor absolute"),
                }
            }
            _ => bail!("unknown key \"{key}\": a timer has \"ref\", \"period\" and \"mode\""),
        }
    }
    Ok(Event::Timer { name, period: period.context("a timer needs a \"period\"")?, relative })
}

fn parse_wait(value: &Json, event: impl FnOnce(String, String) -> Event) -> Result<Event> {
    let (mut condition, mut mutex) = (None, None);
    for (key, value) in value.object()? {
        match key.as_str() {
            "ref" => condition = Some(value.text()?.to_string()),
            "mutex" => mutex = Some(value.text()?.to_string()),
            _ => bail!("unknown key \"{key}\": there are \"ref\" and \"mutex\""),
        }
    }
    Ok(event(condition.context("it needs a \"ref\"")?, mutex.context("it needs a \"mutex\"")?))
}

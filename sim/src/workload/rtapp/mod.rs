// SPDX-License-Identifier: GPL-2.0-only
//! Tasks from a file of the tool rt-app (doc/tutorial.txt there), for what that says of running, waiting and waking:
//! what this cannot do is refused, not passed over. A unit of work is a loop of a phase, from when it was due (its
//! timer, its wakeup) to its last event before it waits again.
//!
//! ```text
//! JSON --Json (members in order)--> Task, Phase, Event --add()--> steps: BeginDue, Run, End, Timer, Loop ...
//! ```

mod json;

use std::collections::BTreeMap;

use anyhow::{Context, Result, bail, ensure};
use serde::{Deserialize, Serialize};

use self::json::Json;
use super::Builder;
use crate::mask::Mask;
use crate::program::{ChannelId, Dist, Step};
use crate::task::{SCHED_BATCH, SCHED_IDLE, SCHED_NORMAL};
use crate::time::USEC;

/// Longest time in a file, us, so that sums of some stay far from overflow: an hour.
const MAX_TIME: u64 = 3_600_000_000;

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct RtApp {
    pub file: String,
}

impl RtApp {
    pub fn add(&self, builder: &mut Builder<'_>) -> Result<()> {
        ensure!(!self.file.is_empty(), "which file? rtapp:file=PATH");
        let text = std::fs::read_to_string(&self.file).with_context(|| self.file.clone())?;
        let tasks = parse(&text).with_context(|| self.file.clone())?;
        add(&tasks, builder).with_context(|| self.file.clone())
    }
}

/// A thread object.
#[derive(Debug, PartialEq)]
struct Task {
    name: String,
    instances: usize,
    delay: u64,
    nice: i32,
    policy: u32,
    cpus: Vec<usize>,
    phases: Vec<Phase>,
    /// Of all phases; `None`: for ever.
    loops: Option<u32>,
}

#[derive(Debug, PartialEq)]
struct Phase {
    events: Vec<Event>,
    loops: Option<u32>,
}

/// Times in us. Mutexes, conditions and barriers by name.
#[derive(Clone, Debug, PartialEq)]
enum Event {
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

fn parse(text: &str) -> Result<Vec<Task>> {
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

fn add(tasks: &[Task], builder: &mut Builder<'_>) -> Result<()> {
    let mut names = Names { barriers: barrier_users(tasks), ..Names::default() };
    let shared = shared_timers(tasks);
    for task in tasks {
        if let Some(cpu) = task.cpus.iter().find(|&&cpu| cpu >= builder.nr_cpus()) {
            bail!("task \"{}\": there is no CPU {cpu}", task.name);
        }
        let group = builder.group(&task.name, false);
        let mut timers = Vec::new();
        let steps = task_steps(task, builder, &mut names, &mut timers);
        if let Some(timer) = timers.iter().find(|timer| shared.contains(*timer)) {
            bail!(
                "task \"{}\": timer \"{timer}\" is shared with another or its instances, which is not simulated: a \
                 \"ref\" that begins with \"unique\" is each one's own",
                task.name
            );
        }
        let program = builder.program(group, &task.name, steps);
        for _ in 0..task.instances {
            let mut traits = builder.traits();
            (traits.nice, traits.policy) = (task.nice, task.policy);
            if !task.cpus.is_empty() {
                traits.allowed = task.cpus.iter().copied().collect::<Mask>();
            }
            builder.task_after(program, traits, task.delay * USEC);
        }
    }
    Ok(())
}

fn events(tasks: &[Task]) -> impl Iterator<Item = (&Task, &Event)> {
    tasks.iter().flat_map(|task| task.phases.iter().flat_map(|phase| &phase.events).map(move |event| (task, event)))
}

/// How many threads meet at each barrier: all instances, once for each place that names it.
fn barrier_users(tasks: &[Task]) -> BTreeMap<String, usize> {
    let mut users = BTreeMap::new();
    for (task, event) in events(tasks) {
        if let Event::Barrier(name) = event {
            *users.entry(name.clone()).or_insert(0) += task.instances;
        }
    }
    users
}

/// Timers that more than one thread uses.
fn shared_timers(tasks: &[Task]) -> Vec<String> {
    let mut users: BTreeMap<&str, BTreeMap<&str, usize>> = BTreeMap::new();
    for (task, event) in events(tasks) {
        if let Event::Timer { name, .. } = event
            && !name.starts_with("unique")
        {
            users.entry(name).or_default().insert(&task.name, task.instances);
        }
    }
    let shared = users.iter().filter(|(_, tasks)| tasks.values().sum::<usize>() > 1);
    shared.map(|(name, _)| name.to_string()).collect()
}

/// What threads share, by name: made when it is named first.
#[derive(Default)]
struct Names {
    mutexes: BTreeMap<String, ChannelId>,
    /// Of wait, signal, broad, sync, suspend and resume.
    conditions: BTreeMap<String, ChannelId>,
    barrier_channels: BTreeMap<String, ChannelId>,
    /// Users of each.
    barriers: BTreeMap<String, usize>,
}

impl Names {
    fn mutex(&mut self, builder: &mut Builder<'_>, name: &str) -> ChannelId {
        *self.mutexes.entry(name.into()).or_insert_with(|| builder.mutex())
    }

    fn condition(&mut self, builder: &mut Builder<'_>, name: &str) -> ChannelId {
        *self.conditions.entry(name.into()).or_insert_with(|| builder.channel(1, false))
    }
}

fn task_steps(task: &Task, builder: &mut Builder<'_>, names: &mut Names, timers: &mut Vec<String>) -> Vec<Step> {
    let mut steps = Vec::new();
    for phase in &task.phases {
        let start = steps.len();
        // When the phase began to be due is known at any time: it may wait at first.
        let work = work(&phase.events);
        for (i, event) in phase.events.iter().enumerate() {
            if i == work.start && !work.is_empty() {
                steps.push(Step::BeginDue);
            }
            event_steps(event, builder, names, timers, &mut steps);
            if i + 1 == work.end && !work.is_empty() {
                steps.push(Step::End);
            }
        }
        repeat(&mut steps, start, phase.loops);
    }
    repeat(&mut steps, 0, task.loops);
    steps.push(Step::Exit);
    steps
}

/// From there on again, so that it is done so many times.
fn repeat(steps: &mut Vec<Step>, start: usize, loops: Option<u32>) {
    match loops {
        None => steps.push(Step::Jump(start)),
        Some(1) => {}
        Some(loops) => steps.push(Step::Loop(start, loops - 1)),
    }
}

/// Which events are between the waits that a phase begins and ends with.
fn work(events: &[Event]) -> std::ops::Range<usize> {
    let waits = |event: &&Event| {
        matches!(
            event,
            Event::Sleep(_)
                | Event::Timer { .. }
                | Event::Wait { .. }
                | Event::Sync { .. }
                | Event::Suspend(_)
                | Event::Barrier(_)
        )
    };
    // The mutex of a condition is part of waiting for it.
    let or_locks = |event: &&Event| waits(event) || matches!(event, Event::Lock(_) | Event::Unlock(_));
    let before = events.iter().take_while(or_locks).collect::<Vec<_>>();
    let start = before.iter().rposition(waits).map_or(0, |last| last + 1);
    let after = events[start..].iter().rev().take_while(or_locks).collect::<Vec<_>>();
    let unlocks = after.iter().rev().take_while(|event| matches!(event, Event::Unlock(_))).count();
    let after = if after.iter().any(waits) { after.len() - unlocks } else { 0 };
    start..events.len() - after
}

fn event_steps(
    event: &Event,
    builder: &mut Builder<'_>,
    names: &mut Names,
    timers: &mut Vec<String>,
    steps: &mut Vec<Step>,
) {
    match event {
        Event::Run(us) => steps.push(Step::Run(Dist::Fixed(us * USEC))),
        Event::Runtime(us) => steps.push(Step::Spin(us * USEC)),
        Event::Sleep(us) => steps.push(Step::Sleep(Dist::Fixed(us * USEC))),
        Event::Timer { name, period, relative } => {
            let timer = timers.iter().position(|other| other == name).unwrap_or_else(|| {
                timers.push(name.clone());
                timers.len() - 1
            });
            steps.push(Step::Timer { timer, period: period * USEC, relative: *relative });
        }
        Event::Lock(name) => steps.push(Step::Recv(names.mutex(builder, name))),
        Event::Unlock(name) => steps.push(Step::Post(names.mutex(builder, name))),
        Event::Wait { condition, mutex } => {
            let (condition, mutex) = (names.condition(builder, condition), names.mutex(builder, mutex));
            steps.extend([Step::Join(condition), Step::Post(mutex), Step::Await(condition), Step::Recv(mutex)]);
        }
        Event::Sync { condition, mutex } => {
            let (condition, mutex) = (names.condition(builder, condition), names.mutex(builder, mutex));
            steps.extend([Step::Recv(mutex), Step::Signal(condition), Step::Join(condition), Step::Post(mutex)]);
            steps.extend([Step::Await(condition), Step::Recv(mutex), Step::Post(mutex)]);
        }
        Event::Signal(name) => steps.push(Step::Signal(names.condition(builder, name))),
        Event::Broadcast(name) => steps.push(Step::Broadcast(names.condition(builder, name))),
        Event::Suspend(name) => {
            let condition = names.condition(builder, name);
            steps.extend([Step::Join(condition), Step::Await(condition)]);
        }
        Event::Barrier(name) => {
            let channel = *names.barrier_channels.entry(name.clone()).or_insert_with(|| builder.channel(1, false));
            steps.push(Step::Barrier(channel, names.barriers[name]));
        }
        Event::Yield => steps.push(Step::Yield),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::{env, fs, process};

    use super::super::tests;
    use super::*;
    use crate::report::GroupReport;
    use crate::scenario::Outcome;

    /// The workload of a file with that in it.
    fn with_file<R>(json: &str, run: impl FnOnce(&str) -> R) -> R {
        static NR: AtomicUsize = AtomicUsize::new(0);
        let name = format!("magpie-sim-{}-{}.json", process::id(), NR.fetch_add(1, Ordering::Relaxed));
        let file = env::temp_dir().join(name);
        fs::write(&file, json).unwrap();
        let ret = run(&format!("rtapp:file={}", file.display()));
        fs::remove_file(&file).unwrap();
        ret
    }

    fn outcome(json: &str, ms: u64) -> Outcome {
        with_file(json, |workload| tests::outcome("1x1x4x1", workload, ms))
    }

    fn group<'a>(outcome: &'a Outcome, name: &str) -> &'a GroupReport {
        outcome.report.groups.iter().find(|group| group.name == name).unwrap()
    }

    fn near(value: f64, expected: f64) -> bool {
        (0.97..1.03).contains(&(value / expected))
    }

    #[test]
    fn the_example_does_as_it_says() {
        let file = concat!(env!("CARGO_MANIFEST_DIR"), "/examples/periodic.json");
        let outcome = tests::outcome("1x1x8x1", &format!("rtapp:file={file}"), 2000);
        for (name, rate, work) in [
            ("small", 4.0 / 0.016, 0.0008),
            ("big", 50.0, 0.006),
            ("producer", 100.0, 0.0003),
            ("consumer", 100.0, 0.0005),
        ] {
            let group = group(&outcome, name);
            assert!(near(group.throughput, rate), "{name}: {} a second", group.throughput);
            // What a wakeup and a switch take comes on top.
            let work_s = work * group.requests as f64;
            assert!(group.cpu_s > work_s && group.cpu_s < 1.05 * work_s, "{name}: {} s", group.cpu_s);
            assert!((work * 1e6..work * 1e6 + 50.0).contains(&group.request_us.p50), "{name}: {:?}", group.request_us);
        }
        // 10 * (1 + 1) ms and 30 + 20 ms.
        assert!(near(group(&outcome, "background").throughput, 11.0 / 0.07));
    }

    #[test]
    fn late_timers_catch_up_or_count_anew() {
        // The first loop takes five periods.
        let json = |mode| {
            format!(
                r#"{{"tasks": {{"a": {{"phases": {{
                    "late": {{"run": 50000, "timer": {{"ref": "unique", "period": 10000, "mode": "{mode}"}}}},
                    "then": {{"loop": -1, "run": 1000, "timer": {{"ref": "unique", "period": 10000, "mode": "{mode}"}}}}
                }} }} }} }}"#
            )
        };
        for (mode, requests) in [("relative", 16..=17), ("absolute", 20..=21)] {
            let outcome = outcome(&json(mode), 200);
            let group = group(&outcome, "a");
            assert!(requests.contains(&group.requests), "{mode}: {group:?}");
        }
    }

    #[test]
    fn runtime_is_by_the_clock() {
        let json = r#"{"tasks": {
            "work": {"cpus": [0], "run": 50000, "sleep": 100},
            "time": {"cpus": [0], "runtime": 50000, "sleep": 100}
        }}"#;
        let outcome = outcome(json, 4000);
        let (work, time) = (group(&outcome, "work"), group(&outcome, "time"));
        assert!(near(work.cpu_s, work.requests as f64 * 0.05), "{work:?}");
        // Half of the time the other has the CPU, which counts.
        assert!(time.cpu_s < time.requests as f64 * 0.035, "{time:?}");
    }

    #[test]
    fn mutexes_conditions_and_barriers() {
        let json = r#"{"tasks": {
            "locker": {"instance": 3, "lock": "m", "run": 1000, "unlock": "m"},
            "waiter": {"instance": 2, "lock": "n", "wait": {"ref": "c", "mutex": "n"}, "unlock": "n", "run": 100},
            "signaller": {"run": 100, "lock": "n", "signal": "c", "unlock": "n",
                "timer": {"ref": "t", "period": 2000}},
            "meeting": {"instance": 2, "run": 200, "barrier": "b"},
            "late": {"sleep": 4000, "barrier": "b", "yield": ""},
            "ping": {"loop": 50, "run": 10, "sync": {"ref": "s", "mutex": "p"}},
            "pong": {"delay": 1000, "run": 10, "sync": {"ref": "s", "mutex": "p"}}
        }}"#;
        let outcome = outcome(json, 1000);
        let rate = |name| group(&outcome, name).throughput;
        // One at a time.
        assert!((900.0..=1000.0).contains(&rate("locker")), "{}", rate("locker"));
        assert!(near(rate("signaller"), 500.0) && near(rate("waiter"), 500.0), "{}", rate("waiter"));
        assert!((230.0..=250.0).contains(&rate("late")), "{}", rate("late"));
        assert!(near(rate("meeting"), 2.0 * rate("late")), "{}", rate("meeting"));
        assert_eq!((group(&outcome, "ping").requests, group(&outcome, "pong").requests), (50, 50));
    }

    #[test]
    fn tasks_are_what_the_file_says() {
        let json = r#"{"tasks": {
            "nice": {"priority": 5, "cpus": [1, 2], "instance": 2, "run": 1000, "run": 500, "sleepy": 10},
            "batch": {"policy": "SCHED_BATCH", "loop": 3, "run0": 100, "sleep_a": 100}
        }, "global": {"default_policy": "SCHED_IDLE", "duration": -1}}"#;
        let outcome = outcome(json, 20);
        let kernel = &outcome.kernel;
        let of = |name: &str| -> Vec<_> {
            kernel.tasks.iter().filter(|task| kernel.programs[task.program].name == name).collect()
        };
        let nice = of("nice");
        assert_eq!(nice.len(), 2);
        for task in nice {
            assert_eq!((task.traits.nice, task.traits.policy), (5, SCHED_IDLE));
            assert_eq!(task.traits.allowed, [1, 2].into_iter().collect());
        }
        let batch = of("batch");
        assert_eq!((batch[0].traits.policy, batch[0].is_alive()), (SCHED_BATCH, false));
        assert_eq!(group(&outcome, "batch").requests, 3);
        // Members of the same name are all there.
        assert!(near(group(&outcome, "nice").request_us.p50, 1500.0), "{:?}", group(&outcome, "nice"));
    }

    #[test]
    fn what_it_cannot_do_is_refused() {
        let task = |members: &str| format!(r#"{{"tasks": {{"a": {{{members}}} }} }}"#);
        for (json, message) in [
            (r#"{"tsks": {}}"#.into(), "unknown key \"tsks\""),
            ("{}".into(), "no \"tasks\""),
            (r#"{"tasks": {}, "global": {"sped": 1}}"#.into(), "\"global\": unknown key \"sped\""),
            (r#"{"tasks": {}, "global": {"pi_enabled": true}}"#.into(), "not simulated"),
            (task(""), "task \"a\": it does nothing"),
            (task(r#""rum": 1"#), "task \"a\": \"rum\": unknown key \"rum\""),
            (task(r#""run": "1""#), "\"run\": this is a string, and an integer is needed"),
            (task(r#""run": 1.5"#), "a number with a fraction"),
            (task(r#""run": -1"#), "-1 is not in 0..3600000000"),
            (task(r#""run": 1, "loop": 0"#), "at least 1"),
            (task(r#""run": 1, "priority": 20"#), "20 is not in -20..19"),
            (task(r#""run": 1, "policy": "SCHED_FIFO""#), "SCHED_FIFO"),
            (task(r#""fork": "b""#), "not simulated"),
            (task(r#""run": 1, "cpus": []"#), "no CPU"),
            (task(r#""timer": {"ref": "t"}"#), "needs a \"period\""),
            (task(r#""timer": {"period": 5, "phase": 1}"#), "unknown key \"phase\""),
            (task(r#""timer": {"period": 5, "mode": "cyclic"}"#), "neither relative nor absolute"),
            (task(r#""wait": {"ref": "c"}"#), "needs a \"mutex\""),
            (task(r#""run": 1, "phases": {"p": {"run": 1}}"#), "events of its own"),
            (
                task(r#""phases": {"p": {"run": 1, "priority": 1}}"#),
                "phase \"p\": \"priority\" is simulated for a whole",
            ),
        ] {
            let err = format!("{:#}", parse(&json).unwrap_err());
            assert!(err.contains(message), "{json}: {err}");
        }
        assert!(tests::refusal("rtapp").contains("rtapp:file=PATH"));
        assert!(tests::refusal("rtapp:file=/none").contains("/none"));
    }

    #[test]
    fn what_the_machine_lacks_is_refused() {
        for (members, message) in [
            (r#""run": 1, "cpus": [0, 2]"#, "there is no CPU 2"),
            (r#""instance": 2, "run": 1, "timer": {"ref": "t", "period": 10}"#, "timer \"t\" is shared"),
        ] {
            let json = format!(r#"{{"tasks": {{"a": {{{members}}} }} }}"#);
            let err = with_file(&json, tests::refusal);
            assert!(err.contains(message), "{err}");
        }
    }

    #[test]
    fn work_is_between_waits() {
        let (run, sleep) = (Event::Run(1), Event::Sleep(1));
        let (lock, unlock) = (Event::Lock("m".into()), Event::Unlock("m".into()));
        let wait = Event::Wait { condition: "c".into(), mutex: "m".into() };
        for (events, expected) in [
            (vec![run.clone()], 0..1),
            (vec![run.clone(), sleep.clone()], 0..1),
            (vec![sleep.clone(), run.clone()], 1..2),
            (vec![sleep.clone()], 1..1),
            (vec![run.clone(), sleep.clone(), run.clone(), sleep.clone()], 0..3),
            (vec![lock.clone(), run.clone(), unlock.clone(), sleep.clone()], 0..3),
            (vec![run.clone(), lock.clone(), wait.clone(), unlock.clone()], 0..1),
            (vec![lock.clone(), wait, unlock.clone(), run.clone()], 2..4),
            (vec![lock, run, unlock], 0..3),
        ] {
            assert_eq!(work(&events), expected, "{events:?}");
        }
    }
}

// SPDX-License-Identifier: GPL-2.0-only
//! What the simulator does for it: a program of steps for each task, with what threads share.

use std::collections::BTreeMap;

use anyhow::{Result, bail};

use super::file::{Event, Task};
use crate::mask::Mask;
use crate::program::{ChannelId, Dist, Step};
use crate::time::USEC;
use crate::workload::Builder;

pub fn add(tasks: &[Task], builder: &mut Builder<'_>) -> Result<()> {
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
    use super::*;

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

// SPDX-License-Identifier: GPL-2.0-only
//! Parse the script `conformance/scenarios`, which explains the format.

use anyhow::{Context, Result, bail, ensure};
use magpie_sim::mask::Mask;
use magpie_sim::program::{ChannelId, Dist, Step};
use magpie_sim::time::MSEC;

/// Index of a task among the scenario's.
pub type TaskIndex = usize;

#[derive(Clone, Debug)]
pub struct Task {
    pub name: String,
    pub cpus: Mask,
    pub steps: Vec<Step>,
}

impl Task {
    pub fn is_child(&self) -> bool {
        self.cpus.is_empty()
    }
}

#[derive(Clone, Debug)]
pub struct Channel {
    name: String,
    /// A pipe, whose writer announces that it is about to sleep; else an eventfd.
    pub pipe: bool,
}

#[derive(Clone, Debug, Default)]
pub struct Scenario {
    pub name: String,
    /// Compare which callback follows which, not how often.
    pub pairs: bool,
    pub tasks: Vec<Task>,
    pub channels: Vec<Channel>,
    /// Time in ns and actions from outside the tasks: Affinity, Nice or HigherClass.
    pub actions: Vec<(u64, Step)>,
}

/// Task N of a scenario starts N times this after the first.
pub const START_GAP: u64 = 10 * MSEC;

pub fn parse(text: &str) -> Result<Vec<Scenario>> {
    let mut scenarios: Vec<Scenario> = Vec::new();
    let lines = text.lines().map(|line| line.split('#').next().unwrap_or_default().split_whitespace().collect());
    let lines: Vec<(usize, Vec<&str>)> =
        (1..).zip(lines).filter(|(_, words): &(_, Vec<_>)| !words.is_empty()).collect();
    for block in lines.chunk_by(|_, (_, words)| words[0] != "scenario") {
        let (number, head) = &block[0];
        ensure!(head[0] == "scenario", "line {number}: a line of no scenario");
        let mut scenario = Scenario::default();
        // Names first, because steps refer to later tasks.
        for (number, words) in block {
            declare(&mut scenario, words).with_context(|| format!("line {number}"))?;
        }
        let mut task = None;
        for (number, words) in block {
            add(&mut scenario, words, &mut task).with_context(|| format!("line {number}"))?;
        }
        scenarios.push(scenario);
    }
    Ok(scenarios)
}

fn declare(scenario: &mut Scenario, words: &[&str]) -> Result<()> {
    match *words {
        ["scenario", name] | ["scenario", name, "pairs"] => {
            (scenario.name, scenario.pairs) = (name.into(), words.len() == 3);
        }
        ["scenario", ..] => bail!("'scenario NAME [pairs]' expected"),
        ["task", name, cpus] => {
            scenario.tasks.push(Task { name: name.into(), cpus: parse_cpus(cpus)?, steps: Vec::new() });
        }
        ["child", name] => scenario.tasks.push(Task { name: name.into(), cpus: Mask::default(), steps: Vec::new() }),
        ["pipe", name] => scenario.channels.push(Channel { name: name.into(), pipe: true }),
        _ => {}
    }
    Ok(())
}

/// Add a line's step to the current task, or its action.
fn add(scenario: &mut Scenario, words: &[&str], task: &mut Option<TaskIndex>) -> Result<()> {
    match *words {
        ["scenario" | "pipe", ..] => {}
        ["task" | "child", ..] => *task = Some(task.map_or(0, |task| task + 1)),
        ["at", time, ref action @ ..] => {
            let action = (parse_time(time)?, parse_action(scenario, action, None)?);
            scenario.actions.push(action);
        }
        _ => {
            let task = task.context("a step of no task")?;
            let step = parse_step(scenario, words, task)?;
            scenario.tasks[task].steps.push(step);
        }
    }
    Ok(())
}

fn parse_step(scenario: &mut Scenario, words: &[&str], task: TaskIndex) -> Result<Step> {
    Ok(match *words {
        ["run", time] => Step::Run(Dist::Fixed(parse_time(time)?)),
        ["sleep", time] => Step::Sleep(Dist::Fixed(parse_time(time)?)),
        ["send", name] => Step::Send(channel(scenario, name)),
        ["recv", name] => Step::Recv(channel(scenario, name)),
        ["yield"] => Step::Yield,
        ["fork", name] => {
            let child = find(scenario, name)?;
            ensure!(scenario.tasks[child].is_child(), "{name} is not a child");
            Step::Fork(child)
        }
        ["wait"] => Step::Wait,
        _ => parse_action(scenario, words, Some(task))?,
    })
}

fn parse_action(scenario: &Scenario, words: &[&str], own: Option<TaskIndex>) -> Result<Step> {
    let target = |name: &str| match own {
        Some(own) if name == "self" => Ok(own),
        _ => find(scenario, name),
    };
    Ok(match *words {
        ["affinity", name, cpus] => Step::Affinity(Some(target(name)?), parse_cpus(cpus)?),
        ["nice", name, nice] => Step::Nice(Some(target(name)?), nice.parse()?),
        ["rt", cpu, time] => Step::HigherClass(cpu.parse()?, parse_time(time)?),
        _ => bail!("'{}' is no step", words.join(" ")),
    })
}

fn find(scenario: &Scenario, name: &str) -> Result<TaskIndex> {
    scenario.tasks.iter().position(|task| task.name == name).with_context(|| format!("there is no task {name}"))
}

/// Return the channel of this name, and create it at its first mention.
fn channel(scenario: &mut Scenario, name: &str) -> ChannelId {
    let known = scenario.channels.iter().position(|channel| channel.name == name);
    known.unwrap_or_else(|| {
        scenario.channels.push(Channel { name: name.into(), pipe: false });
        scenario.channels.len() - 1
    })
}

fn parse_time(text: &str) -> Result<u64> {
    Ok(humantime::parse_duration(text).with_context(|| format!("'{text}'"))?.as_nanos() as u64)
}

/// Parse "2", "1-3", "1,3". CPU 0 is excluded: it is for the director.
fn parse_cpus(text: &str) -> Result<Mask> {
    let cpus: Mask = text.parse().map_err(anyhow::Error::msg)?;
    ensure!(!cpus.is_empty() && cpus.iter().all(|cpu| (1..4).contains(&cpu)), "'{text}': CPUs are 1 to 3");
    Ok(cpus)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_script() {
        let one = "# x\nscenario one pairs\npipe p\ntask A 1,3 # y\n send p\n nice B 5\ntask B 1-3\n run 2ms\n";
        let scenarios = parse(&format!("{one}at 5ms affinity A 2\nscenario two")).unwrap();
        assert_eq!(scenarios.len(), 2);
        let one = &scenarios[0];
        assert!(one.pairs && one.channels[0].pipe);
        assert_eq!(one.tasks[0].steps, [Step::Send(0), Step::Nice(Some(1), 5)]);
        assert_eq!((one.tasks[0].cpus.to_string(), one.tasks[1].cpus.to_string()), ("1,3".into(), "1-3".into()));
        assert_eq!(one.actions, [(5 * MSEC, Step::Affinity(Some(0), Mask::only(2)))]);
    }

    #[test]
    fn mistakes_name_their_line() {
        for (text, line) in [
            ("task A 1", "line 1"),
            ("scenario x\nrun 1ms", "line 2"),
            ("scenario x\ntask A 0", "line 2"),
            ("scenario x\ntask A 1\n run 5", "line 3"),
            ("scenario x\ntask A 1\n fork A", "line 3"),
            ("scenario x\ntask A 1\n nice B 1", "line 3"),
        ] {
            let err = format!("{:#}", parse(text).unwrap_err());
            assert!(err.contains(line), "{text}: {err}");
        }
    }
}

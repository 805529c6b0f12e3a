// SPDX-License-Identifier: GPL-2.0-only
//! The script: what `conformance/scenarios` says, which explains the format.

use anyhow::{Context, Result, bail, ensure};
use magpie_sim::time::{MSEC, USEC};

/// By index: of a scenario's tasks, of its channels.
pub type TaskIndex = usize;
pub type ChannelIndex = usize;

#[derive(Clone, Debug, PartialEq)]
pub enum Action {
    Affinity(TaskIndex, Vec<usize>),
    Nice(TaskIndex, i32),
    /// A SCHED_FIFO task takes a CPU for so many ns.
    Rt(usize, u64),
}

#[derive(Clone, Debug, PartialEq)]
pub enum Step {
    /// ns
    Run(u64),
    Sleep(u64),
    Send(ChannelIndex),
    Recv(ChannelIndex),
    Yield,
    Fork(TaskIndex),
    Wait,
    Do(Action),
}

#[derive(Clone, Debug)]
pub struct Task {
    pub name: String,
    /// Empty for one that another forks.
    pub cpus: Vec<usize>,
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
    /// A pipe, whose writer says that it is about to sleep; else an eventfd.
    pub pipe: bool,
}

#[derive(Clone, Debug)]
pub struct Scenario {
    pub name: String,
    /// Compare which callback comes after which, not how often.
    pub pairs: bool,
    pub tasks: Vec<Task>,
    pub channels: Vec<Channel>,
    /// When, in ns, and what is done from outside.
    pub actions: Vec<(u64, Action)>,
}

/// Task N of a scenario starts N times this after the first.
pub const START_GAP: u64 = 10 * MSEC;

pub fn parse(text: &str) -> Result<Vec<Scenario>> {
    let mut scenarios: Vec<Scenario> = Vec::new();
    for block in blocks(text) {
        let mut lines = block.iter();
        let (number, head) = lines.next().context("an empty block")?;
        let at = |number: &usize| format!("line {number}");
        let (name, pairs) = match head[..] {
            ["scenario", name] => (name, false),
            ["scenario", name, "pairs"] => (name, true),
            _ => bail!("line {number}: 'scenario NAME [pairs]' expected"),
        };
        let mut scenario =
            Scenario { name: name.into(), pairs, tasks: Vec::new(), channels: Vec::new(), actions: Vec::new() };
        // Names first: steps speak of tasks that come later.
        for (number, words) in &block[1..] {
            match words[..] {
                ["task", name, cpus] => {
                    let cpus = parse_cpus(cpus).with_context(|| at(number))?;
                    scenario.tasks.push(Task { name: name.into(), cpus, steps: Vec::new() });
                }
                ["child", name] => {
                    scenario.tasks.push(Task { name: name.into(), cpus: Vec::new(), steps: Vec::new() });
                }
                ["pipe", name] => scenario.channels.push(Channel { name: name.into(), pipe: true }),
                _ => {}
            }
        }
        let mut task = 0;
        for (number, words) in lines {
            match words[..] {
                ["task" | "child", ..] => task += 1,
                ["pipe", _] => {}
                ["at", time, ref rest @ ..] => {
                    let when = parse_time(time).with_context(|| at(number))?;
                    let action = parse_action(&scenario, rest, None).with_context(|| at(number))?;
                    scenario.actions.push((when, action));
                }
                _ => {
                    ensure!(task > 0, "line {number}: a step of no task");
                    let step = parse_step(&mut scenario, words, task - 1).with_context(|| at(number))?;
                    scenario.tasks[task - 1].steps.push(step);
                }
            }
        }
        scenarios.push(scenario);
    }
    Ok(scenarios)
}

/// Words of lines with their numbers, a block for each scenario.
fn blocks(text: &str) -> Vec<Vec<(usize, Vec<&str>)>> {
    let mut blocks: Vec<Vec<_>> = Vec::new();
    for (number, line) in text.lines().enumerate() {
        let line = line.split('#').next().unwrap_or_default();
        let words: Vec<_> = line.split_whitespace().collect();
        match words.first() {
            None => continue,
            Some(&"scenario") => blocks.push(vec![(number + 1, words)]),
            Some(_) => match blocks.last_mut() {
                Some(block) => block.push((number + 1, words)),
                None => blocks.push(vec![(number + 1, words)]),
            },
        }
    }
    blocks
}

fn parse_step(scenario: &mut Scenario, words: &[&str], task: TaskIndex) -> Result<Step> {
    Ok(match *words {
        ["run", time] => Step::Run(parse_time(time)?),
        ["sleep", time] => Step::Sleep(parse_time(time)?),
        ["send", name] => Step::Send(channel(scenario, name)),
        ["recv", name] => Step::Recv(channel(scenario, name)),
        ["yield"] => Step::Yield,
        ["fork", name] => {
            let child = find(scenario, name)?;
            ensure!(scenario.tasks[child].is_child(), "{name} is not a child");
            Step::Fork(child)
        }
        ["wait"] => Step::Wait,
        _ => Step::Do(parse_action(scenario, words, Some(task))?),
    })
}

fn parse_action(scenario: &Scenario, words: &[&str], own: Option<TaskIndex>) -> Result<Action> {
    let target = |name: &str| match own {
        Some(own) if name == "self" => Ok(own),
        _ => find(scenario, name),
    };
    Ok(match *words {
        ["affinity", name, cpus] => Action::Affinity(target(name)?, parse_cpus(cpus)?),
        ["nice", name, nice] => Action::Nice(target(name)?, nice.parse()?),
        ["rt", cpu, time] => Action::Rt(cpu.parse()?, parse_time(time)?),
        _ => bail!("'{}' is no step", words.join(" ")),
    })
}

fn find(scenario: &Scenario, name: &str) -> Result<TaskIndex> {
    scenario.tasks.iter().position(|task| task.name == name).with_context(|| format!("there is no task {name}"))
}

/// Made by its first mention.
fn channel(scenario: &mut Scenario, name: &str) -> ChannelIndex {
    let known = scenario.channels.iter().position(|channel| channel.name == name);
    known.unwrap_or_else(|| {
        scenario.channels.push(Channel { name: name.into(), pipe: false });
        scenario.channels.len() - 1
    })
}

fn parse_time(text: &str) -> Result<u64> {
    let (number, unit) = match (text.strip_suffix("us"), text.strip_suffix("ms")) {
        (Some(number), _) => (number, USEC),
        (_, Some(number)) => (number, MSEC),
        _ => bail!("'{text}': a time is 5ms or 500us"),
    };
    Ok(number.parse::<u64>().with_context(|| format!("'{text}'"))? * unit)
}

/// "2", "1-3", "1,3". Not 0, which is for those that watch.
fn parse_cpus(text: &str) -> Result<Vec<usize>> {
    let mut cpus = Vec::new();
    for part in text.split(',') {
        let (from, to) = part.split_once('-').unwrap_or((part, part));
        cpus.extend(from.parse::<usize>()?..=to.parse::<usize>()?);
    }
    ensure!(cpus.iter().all(|cpu| (1..4).contains(cpu)), "'{text}': CPUs are 1 to 3");
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
        assert_eq!(one.tasks[0].steps, [Step::Send(0), Step::Do(Action::Nice(1, 5))]);
        assert_eq!((&one.tasks[0].cpus[..], &one.tasks[1].cpus[..]), (&[1, 3][..], &[1, 2, 3][..]));
        assert_eq!(one.actions, [(5 * MSEC, Action::Affinity(0, vec![2]))]);
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

// SPDX-License-Identifier: GPL-2.0-only
//! A scenario in the simulator.

use anyhow::{Result, bail, ensure};
use magpie_sim::fault::Fault;
use magpie_sim::kernel::{Kernel, Quirks};
use magpie_sim::machine::Machine;
use magpie_sim::mask::Mask;
use magpie_sim::program::{self, Dist, Program};
use magpie_sim::scenario::parse_flags;
use magpie_sim::stats::GroupStats;
use magpie_sim::task::{SCHED_NORMAL, Traits};
use magpie_sim::time::{MSEC, SEC};

use crate::order::{Event, Order, Who};
use crate::script::{Action, START_GAP, Scenario, Step};

/// Chance must not matter.
const SEEDS: [u64; 2] = [1, 2];

pub fn play(scenario: &Scenario, quirks: Quirks) -> Result<Order> {
    let [first, second] = SEEDS.map(|seed| play_once(scenario, quirks, seed));
    let (first, second) = (first?, second?);
    ensure!(
        first == second,
        "the seed changes the order of {}:\n{}",
        scenario.name,
        crate::order::diff(&first, &second)
    );
    Ok(first)
}

fn play_once(scenario: &Scenario, quirks: Quirks, seed: u64) -> Result<Order> {
    let machine = Machine::new(&crate::MACHINE.parse()?);
    let mut kernel = Kernel::new(machine, &parse_flags(&crate::FLAGS.map(String::from))?, seed)?;
    kernel.quirks = quirks;
    kernel.trace.keep = true;
    kernel.groups.push(GroupStats::new("script", false));
    // Programs and channels are as many as tasks and channels of the script, so that indexes are the same.
    for task in &scenario.tasks {
        let steps = task.steps.iter().map(translate).chain([program::Step::Exit]).collect();
        kernel.programs.push(Program { steps, group: 0, name: task.name.clone() });
    }
    for channel in &scenario.channels {
        kernel.channels.push(program::Channel::new(1000, channel.pipe));
    }
    let from = kernel.now + MSEC;
    for (index, task) in scenario.tasks.iter().enumerate().filter(|(_, task)| !task.is_child()) {
        let traits = Traits {
            allowed: task.cpus.iter().copied().collect(),
            nice: 0,
            policy: SCHED_NORMAL,
            kthread: false,
            loader: false,
            cgroup: 0,
            working_set: 0,
            remote_memory_pct: 0,
        };
        let id = kernel.spawn(index, traits, task.cpus[0]);
        ensure!(id == index, "children come after tasks");
        kernel.start(id, from + index as u64 * START_GAP);
    }
    let began = kernel.trace.records.len();
    let faults: Vec<_> = scenario.actions.iter().map(|(at, action)| (from + at, fault(action))).collect();
    kernel.plan(&faults);
    kernel.run_until(from + SEC);
    if let Some(violation) = &kernel.violation {
        bail!("{}: {violation}", scenario.name);
    }
    ensure!(kernel.tasks.iter().all(|task| !task.is_alive()), "{}: not all tasks have ended", scenario.name);

    let events: Vec<_> = (kernel.trace.records[began..].iter())
        .map(|record| Event {
            at: record.at,
            cpu: record.cpu,
            op: record.op,
            who: record.task.map_or(Who::None, |id| Who::Task(kernel.tasks[id].program)),
            arg: record.arg,
        })
        .collect();
    Ok(Order::new(scenario, &events))
}

fn mask(cpus: &[usize]) -> Mask {
    cpus.iter().copied().collect()
}

fn translate(step: &Step) -> program::Step {
    match *step {
        Step::Run(ns) => program::Step::Run(Dist::Fixed(ns)),
        Step::Sleep(ns) => program::Step::Sleep(Dist::Fixed(ns)),
        Step::Send(channel) => program::Step::Send(channel),
        Step::Recv(channel) => program::Step::Recv(channel),
        Step::Yield => program::Step::Yield,
        Step::Fork(child) => program::Step::Fork(child),
        Step::Wait => program::Step::Wait,
        Step::Do(Action::Affinity(task, ref cpus)) => program::Step::Affinity(task, mask(cpus)),
        Step::Do(Action::Nice(task, nice)) => program::Step::Nice(task, nice),
        Step::Do(Action::Rt(cpu, ns)) => program::Step::HigherClass(cpu, ns),
    }
}

fn fault(action: &Action) -> Fault {
    match *action {
        Action::Affinity(pick, ref cpus) => Fault::Affinity { pick, allowed: mask(cpus) },
        Action::Nice(pick, nice) => Fault::Nice { pick, nice },
        Action::Rt(cpu, ns) => Fault::HigherClass { cpu, ns },
    }
}

// SPDX-License-Identifier: GPL-2.0-only
//! Play a scenario in the simulator.

use anyhow::{Context, Result, bail, ensure};
use magpie_sim::kernel::Fault;
use magpie_sim::kernel::{Kernel, Quirks};
use magpie_sim::program::{Channel, Program, Step};
use magpie_sim::stats::GroupStats;
use magpie_sim::task::Traits;
use magpie_sim::time::{MSEC, SEC};
use magpie_sim::workload::Builder;

use crate::order::{Event, Order, Who};
use crate::script::{START_GAP, Scenario};

/// Seeds whose orders must be equal: chance must not matter.
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
    let mut kernel = Kernel::new(&crate::MACHINE.parse()?, crate::FLAGS, seed)?;
    kernel.quirks = quirks;
    kernel.trace.keep = true;
    kernel.groups.push(GroupStats::new("script", false));
    // One program and one channel for each of the script's, so that indices are equal.
    for task in &scenario.tasks {
        let steps = task.steps.iter().copied().chain([Step::Exit]).collect();
        kernel.programs.push(Program { steps, group: 0, name: task.name.clone() });
    }
    for channel in &scenario.channels {
        kernel.channels.push(Channel::new(1000, channel.pipe));
    }
    let from = kernel.now + MSEC;
    for (index, task) in scenario.tasks.iter().enumerate().filter(|(_, task)| !task.is_child()) {
        let ordinary = Builder::new(&mut kernel, from, 0).traits();
        let first = task.cpus.iter().next().context("a task has CPUs")?;
        let id = kernel.spawn(index, Traits { allowed: task.cpus, working_set: 0, ..ordinary }, first);
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

/// Convert an action to a fault.
fn fault(action: &Step) -> Fault {
    match *action {
        Step::Affinity(Some(pick), allowed) => Fault::Affinity { pick, allowed },
        Step::Nice(Some(pick), nice) => Fault::Nice { pick, nice },
        Step::HigherClass(cpu, ns) => Fault::HigherClass { cpu, ns },
        _ => unreachable!("the script has no such action"),
    }
}

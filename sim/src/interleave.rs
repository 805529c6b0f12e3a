// SPDX-License-Identifier: GPL-2.0-only
//! Try all orders of two CPUs: each of [`PAIRS`] is run for each order of accesses to words that
//! both sides access (`kernel/turns.rs`). Afterwards no idle CPU may have a task to run.
//!
//! ```text
//! plan: switch at the choices     -, S, SS, -S ... depth first; a choice is a point before an access
//! ```

use std::collections::BTreeSet;
use std::fmt;
use std::mem::take;

use anyhow::{Result, ensure};

use crate::cgroup::Spec;
use crate::checks::Violation;
use crate::dsq::{TaskId, is_throttled_queue};
use crate::kernel::turns::{Access, Run, Turns, Word};
use crate::kernel::{Curr, Kernel};
use crate::machine::Shape;
use crate::program::{Dist, Program, Step};
use crate::stats::GroupStats;
use crate::task::{Place, SCHED_BATCH, State, Traits};
use crate::time::{MSEC, USEC};

const MAX_ORDERS: usize = 1 << 20;

/// Time until no task waits next to an idle CPU after both sides: less than to the next tick.
const SOON: u64 = 300 * USEC;

/// Time of both sides: shortly after a tick.
const AT: u64 = 8 * MSEC + 300 * USEC;

/// Operations of two CPUs at the same time.
pub struct Pair {
    pub name: &'static str,
    cpus: usize,
    /// The second side is this CPU's reaction to a kick.
    kicked: Option<usize>,
    set_up: fn(&mut Kernel) -> [Run; 2],
}

pub struct Outcome {
    pub name: &'static str,
    pub orders: usize,
    /// Number of words that both sides access.
    pub words: usize,
    /// The first order that fails, with its accesses.
    pub failed: Option<(Violation, Vec<String>)>,
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:<44} {:>7} orders, {:>2} words: ", self.name, self.orders, self.words)?;
        let Some((violation, accesses)) = &self.failed else { return write!(f, "all hold") };
        write!(f, "{violation}")?;
        accesses.iter().try_for_each(|access| write!(f, "\n    {access}"))
    }
}

pub const PAIRS: &[Pair] = &[
    // The queued task is SCHED_BATCH, so it does not preempt the hog.
    pair("a task is queued, a CPU goes idle", 2, |kernel| {
        let hogs = busy(kernel, &[0, 1]);
        let wakee = task(kernel, &[0, 1], 0);
        kernel.tasks[wakee].raw_mut().policy = SCHED_BATCH;
        [wakes(0, wakee), sleeps(1, hogs[1])]
    }),
    pair("a task is queued, a thief takes the last one", 2, |kernel| {
        let hogs = busy(kernel, &[0, 1]);
        started(kernel, &[0, 1]);
        let wakee = task(kernel, &[0, 1], 0);
        [wakes(0, wakee), sleeps(1, hogs[1])]
    }),
    pair("two thieves, one task", 3, |kernel| {
        let hogs = busy(kernel, &[0, 1, 2]);
        started(kernel, &[0, 1, 2]);
        [sleeps(1, hogs[1]), sleeps(2, hogs[2])]
    }),
    pair("two wakeups, one idle CPU", 3, |kernel| {
        busy(kernel, &[0, 1]);
        let wakees = [task(kernel, &[0, 1, 2], 0), task(kernel, &[1, 0, 2], 0)];
        [wakes(0, wakees[0]), wakes(1, wakees[1])]
    }),
    pair("a wakeup, a CPU goes idle", 3, |kernel| {
        let hogs = busy(kernel, &[0, 1, 2]);
        let wakee = task(kernel, &[0, 1, 2], 0);
        [wakes(0, wakee), sleeps(2, hogs[2])]
    }),
    pair("a CPU goes offline, a wakeup", 3, |kernel| {
        busy(kernel, &[0, 2]);
        let wakee = task(kernel, &[1, 2], 0);
        [on(0, |kernel| kernel.offline(1)), wakes(2, wakee)]
    }),
    pair("a CPU goes offline, a thief takes its task", 3, |kernel| {
        let hogs = busy(kernel, &[0, 1, 2]);
        started(kernel, &[1, 2]);
        [on(0, |kernel| kernel.offline(1)), sleeps(2, hogs[2])]
    }),
    pair("a CPU comes online, a wakeup", 3, |kernel| {
        on(0, |kernel| kernel.offline(1))(kernel);
        busy(kernel, &[0, 2]);
        let wakee = task(kernel, &[2, 1], 0);
        let comes = |kernel: &mut Kernel| {
            on(0, |kernel| kernel.bring_online(1))(kernel);
            on(1, |_| {})(kernel);
        };
        [Box::new(comes), wakes(2, wakee)]
    }),
    pair("the loader places a CPU, which goes idle", 3, |kernel| {
        kernel.online.clear(1);
        kernel.attach().expect("it was attached before");
        on(0, |kernel| kernel.bring_online(1))(kernel);
        let runs = task(kernel, &[1], 0);
        kernel.start(runs, kernel.now);
        kernel.run_until(kernel.now + 50 * USEC);
        [on(0, Kernel::follow_hotplug), sleeps(1, runs)]
    }),
    pair("a throttled task's timer, its CPU goes idle", 2, |kernel| {
        let (hog, fires) = throttled(kernel);
        [fires, sleeps(1, hog)]
    }),
    Pair {
        kicked: Some(1),
        ..pair("a throttled task's timer, its CPU is kicked", 2, |kernel| {
            let (hog, fires) = throttled(kernel);
            sleeps(1, hog)(kernel);
            kernel.run_until(kernel.now + USEC);
            [fires, on(1, |_| {})]
        })
    },
];

const fn pair(name: &'static str, cpus: usize, set_up: fn(&mut Kernel) -> [Run; 2]) -> Pair {
    Pair { name, cpus, kicked: None, set_up }
}

impl Pair {
    pub fn try_all(&self) -> Result<Outcome> {
        let mut words = BTreeSet::new();
        loop {
            let outcome = self.try_orders(&mut words)?;
            // An order may have revealed another word that both access.
            if outcome.failed.is_some() || outcome.words == words.len() {
                return Ok(outcome);
            }
        }
    }

    /// Try all orders of accesses to `words`, and add shared words that are found.
    fn try_orders(&self, words: &mut BTreeSet<Word>) -> Result<Outcome> {
        let points = words.clone();
        let mut outcome = Outcome { name: self.name, orders: 0, words: points.len(), failed: None };
        let mut plan = Vec::new();
        loop {
            let (turns, violation) = self.run(Turns::new(points.clone(), plan))?;
            outcome.orders += usize::from(!turns.redundant);
            words.extend(turns.shared());
            if let Some(violation) = violation {
                let text = |Access { side, word, store }: &Access| {
                    format!(
                        "{:width$}{} {}",
                        "",
                        if *store { "writes" } else { "reads" },
                        word.name(),
                        width = 52 * side
                    )
                };
                let accesses = turns.accesses.iter().filter(|access| words.contains(&access.word)).map(text);
                outcome.failed = Some((violation, accesses.collect()));
                return Ok(outcome);
            }
            // The next plan, depth first: change the last choice that was not to switch.
            plan = turns.choices;
            while plan.pop_if(|switched| *switched).is_some() {}
            match plan.last_mut() {
                Some(last) => *last = true,
                None => return Ok(outcome),
            }
            ensure!(outcome.orders < MAX_ORDERS, "{}: more than {MAX_ORDERS} orders", self.name);
        }
    }

    fn run(&self, mut turns: Turns) -> Result<(Turns, Option<Violation>)> {
        let shape = Shape { nodes: 1, cores: self.cpus, ..Shape::default() };
        // Seed 0: the BPF prolog does not disable migration. The checks need one CPU at a time.
        let mut kernel = Kernel::observed(&shape, "", 0, |_, _| {})?;
        let sides = (self.set_up)(&mut kernel);
        assert_eq!(kernel.violation, None, "{}: set up", self.name);
        turns.begins_when_kicked = self.kicked;
        let turns = kernel.run_both(turns, sides);
        kernel.run_until(kernel.now + SOON);
        check(&mut kernel);
        Ok((turns, take(&mut kernel.violation)))
    }
}

/// Check what the fuzzer checks, and that no task waits that an idle CPU may run.
fn check(kernel: &mut Kernel) {
    kernel.check_state();
    for task in 0..kernel.tasks.len() {
        let t = &kernel.tasks[task];
        // dsq_vtime in the throttled queue is the time until which the task waits.
        let throttled = is_throttled(kernel, task) && t.raw().scx.dsq_vtime > kernel.now;
        let is_idle = |&cpu: &usize| kernel.cpus[cpu].curr == Curr::Idle && t.may_run_on(cpu);
        let idle = kernel.online.iter().find(is_idle).filter(|_| t.state == State::Runnable && !throttled);
        if let Some(cpu) = idle {
            kernel.violate("waits", format!("task {task} is in {:?}, and CPU {cpu} is idle", t.place));
        } else if t.state == State::Waking {
            kernel.violate("lost", format!("task {task} has not been woken"));
        }
    }
}

fn is_throttled(kernel: &Kernel, task: TaskId) -> bool {
    matches!(kernel.tasks[task].place, Place::Dsq(id) if is_throttled_queue(id))
}

/// Create a hog that may use these CPUs, asleep on the first.
fn task(kernel: &mut Kernel, cpus: &[usize], cgroup: usize) -> TaskId {
    if kernel.programs.is_empty() {
        let steps = vec![Step::Run(Dist::Fixed(1000 * MSEC)), Step::Jump(0)];
        kernel.groups.push(GroupStats::new("works", false));
        kernel.programs.push(Program { name: "works".into(), group: 0, steps });
    }
    kernel.spawn(0, Traits { allowed: cpus.iter().copied().collect(), cgroup, ..Traits::default() }, cpus[0])
}

/// Create a hog that may use these CPUs, and start it.
fn started(kernel: &mut Kernel, cpus: &[usize]) -> TaskId {
    let task = task(kernel, cpus, 0);
    kernel.start(task, kernel.now);
    kernel.run_until(kernel.now + 50 * USEC);
    task
}

/// Start a hog pinned to each CPU, and run until the program knows them.
fn busy(kernel: &mut Kernel, cpus: &[usize]) -> Vec<TaskId> {
    let hogs = cpus.iter().map(|&cpu| started(kernel, &[cpu])).collect();
    kernel.run_until(AT);
    hogs
}

/// Run this in an interrupt of the CPU. The CPU schedules if requested.
fn on(cpu: usize, run: impl FnOnce(&mut Kernel) + Send + 'static) -> Run {
    Box::new(move |kernel| {
        kernel.enter(cpu);
        run(kernel);
        kernel.leave(cpu);
    })
}

fn wakes(cpu: usize, task: TaskId) -> Run {
    on(cpu, move |kernel| kernel.wake(task, false))
}

fn sleeps(cpu: usize, task: TaskId) -> Run {
    on(cpu, move |kernel| kernel.block(task))
}

/// Throttle a task of CPU 1, which runs another task. Return the task, and its timer as a side.
fn throttled(kernel: &mut Kernel) -> (TaskId, Run) {
    let hog = busy(kernel, &[0, 1])[1];
    let cgroup = kernel.make_cgroup(&Spec::default());
    kernel.set_cgroup_max(cgroup, Some(1000), 100_000, 0);
    let limited = task(kernel, &[1], cgroup);
    kernel.start(limited, kernel.now);
    while !is_throttled(kernel, limited) {
        kernel.run_until(kernel.now + MSEC);
        assert!(kernel.now < 200 * MSEC, "a task uses up its cpu.max");
    }
    // Timers of slices fire sooner.
    let until = kernel.tasks[limited].raw().scx.dsq_vtime;
    let (index, due) = kernel.due_timer(until).expect("a task is throttled");
    kernel.run_until(due - 10 * USEC);
    let fires = move |kernel: &mut Kernel| {
        kernel.now = due;
        kernel.bpf_timer(index, due);
    };
    (hog, on(0, fires))
}

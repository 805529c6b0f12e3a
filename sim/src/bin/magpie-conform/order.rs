// SPDX-License-Identifier: GPL-2.0-only
//! The compared part of a trace: the order of the callbacks about the scripted tasks.
//!
//! Omitted, because they depend on time or on other tasks: ticks, init_task, numbers of CPUs, most
//! flags, other tasks, and
//! - dispatch() without a scripted task;
//! - dispatch() after which the task just continues, or remains until a higher class takes the CPU:
//!   their number depends on the run time. Kept right after the task's yield, which causes one;
//! - update_idle() and cpu_release(), which concern a CPU, unless it switches between a scripted
//!   task and idle, or is taken from one: then they are noted with that task.
//!
//! Concurrent events on several CPUs about several tasks get a fixed order (canonical()).
//!
//! The number of slices in scenarios marked `pairs` depends on time: pairs of lines are compared.

use std::collections::BTreeSet;
use std::fmt;

use magpie_sim::native::{SCX_ENQ_REENQ, SCX_ENQ_WAKEUP, SCX_WAKE_FORK, SCX_WAKE_SYNC};
use magpie_sim::time::MSEC;
use magpie_sim::trace::Op;

use similar::{Algorithm, capture_diff_slices};

use crate::script::{Scenario, TaskIndex};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Who {
    Task(TaskIndex),
    Other(i32),
    None,
}

#[derive(Clone, Copy, Debug)]
pub struct Event {
    pub at: u64,
    pub cpu: usize,
    pub op: Op,
    pub who: Who,
    pub arg: u64,
}

/// A later callback is no consequence of a dispatch(): the task continued meanwhile. Half a tick.
const SAME_SCHEDULE: u64 = 2 * MSEC;

/// The compared lines, in order or as a set of pairs.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Order(Vec<String>);

impl Order {
    pub fn new(scenario: &Scenario, events: &[Event]) -> Self {
        let events: Vec<_> = events.iter().copied().filter(|event| !is_left_out(event.op)).collect();
        let lines = (0..events.len()).filter_map(|at| {
            let (task, text) = line(&events, at)?;
            Some(Line { cpu: events[at].cpu, task, text: text.replace('*', &scenario.tasks[task].name) })
        });
        let lines = canonical(lines.collect());
        if !scenario.pairs {
            return Self(lines);
        }
        let pairs: BTreeSet<_> = lines.windows(2).map(|pair| format!("{}, {}", pair[0], pair[1])).collect();
        Self(pairs.into_iter().collect())
    }
}

impl fmt::Display for Order {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|line| writeln!(f, "      {line}"))
    }
}

struct Line {
    cpu: usize,
    task: TaskIndex,
    text: String,
}

/// Order concurrent lines, which share neither CPU nor task: their order in the trace means
/// nothing. Among lines that may be next, the last line's task precedes, which mostly wakes others.
fn canonical(mut lines: Vec<Line>) -> Vec<String> {
    let mut texts = Vec::new();
    while !lines.is_empty() {
        let is_next = |at: usize| !lines[..at].iter().any(|l| l.cpu == lines[at].cpu || l.task == lines[at].task);
        let next = (0..lines.len()).filter(|&at| is_next(at)).max_by_key(|&at| lines[at].task).unwrap_or(0);
        texts.push(lines.remove(next).text);
    }
    texts
}

fn is_left_out(op: Op) -> bool {
    matches!(op, Op::Tick | Op::InitTask | Op::Init | Op::Timer | Op::TaskWork | Op::Switch) || op.is_of_cgroups()
}

/// Return true if the callback shows that its CPU switches, or is about to.
fn tells_of_cpu(event: &Event) -> bool {
    !matches!(event.op, Op::SelectCpu | Op::Enqueue)
}

/// Return the task of a callback, and its text, in which * stands for the task.
fn line(events: &[Event], at: usize) -> Option<(TaskIndex, String)> {
    let event = &events[at];
    let on_cpu = |other: &&Event| other.cpu == event.cpu && tells_of_cpu(other);
    let before = || events[..at].iter().rev().find(on_cpu);
    let to_come = || events[at + 1..].iter().filter(on_cpu);
    let after = || to_come().next();
    // The last switch of the CPU before this callback.
    let last = || events[..at].iter().rev().filter(on_cpu).find(|other| other.op != Op::Dispatch);
    let is_stopping = |other: &&Event| other.op == Op::Stopping;
    let of = |who| match who {
        Who::Task(task) => Some(task),
        Who::Other(_) | Who::None => None,
    };
    let has = |flag: u64, word| if event.arg & flag != 0 { word } else { "" };
    Some(match event.op {
        Op::SelectCpu => {
            (of(event.who)?, format!("select_cpu *{}{}", has(SCX_WAKE_FORK, " fork"), has(SCX_WAKE_SYNC, " sync")))
        }
        Op::Enqueue => {
            (of(event.who)?, format!("enqueue *{}{}", has(SCX_ENQ_WAKEUP, " wakeup"), has(SCX_ENQ_REENQ, " again")))
        }
        Op::Dispatch => {
            let task = of(event.who)?;
            let same = |other: &&Event| other.who == event.who;
            let yielded = before().filter(same).is_some_and(|other| other.op == Op::Yield);
            let gone = last().filter(same).filter(is_stopping).is_some();
            let goes = after().filter(same).filter(is_stopping);
            let goes = goes.is_some_and(|other| other.arg != 0 && other.at - event.at < SAME_SCHEDULE);
            let taken = to_come().nth(1).is_some_and(|other| other.op == Op::CpuRelease);
            (yielded || gone || (goes && !taken)).then_some((task, "dispatch after *".into()))?
        }
        Op::Running => (of(event.who)?, "running *".into()),
        Op::Stopping => (of(event.who)?, format!("stopping * {}", if event.arg != 0 { "runnable" } else { "asleep" })),
        Op::Yield => (of(event.who)?, "yield *".into()),
        Op::UpdateIdle if event.arg != 0 => (of(last().filter(is_stopping)?.who)?, "idle after *".into()),
        Op::UpdateIdle => {
            let next = after().filter(|other| other.op == Op::Running)?;
            (of(next.who)?, "not idle for *".into())
        }
        Op::CpuRelease => (of(last().filter(is_stopping)?.who)?, "cpu_release after *".into()),
        _ => return None,
    })
}

/// Return lines only in `old` with -, only in `new` with +, and common lines between them.
pub fn diff(old: &Order, new: &Order) -> String {
    let (old, new) = (&old.0[..], &new.0[..]);
    let operations = capture_diff_slices(Algorithm::Myers, old, new);
    let changes = operations.iter().flat_map(|operation| operation.iter_changes(old, new));
    changes.map(|change| format!("    {} {}\n", change.tag(), change.value())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_the_scripted_tasks_cause() {
        let scenario = &crate::script::parse("scenario x\ntask A 1").unwrap()[0];
        let (task, none, other) = (Who::Task(0), Who::None, Who::Other(7));
        let events = [
            (Op::UpdateIdle, none, 0),
            (Op::Running, task, 0),
            (Op::Tick, task, 0),
            (Op::Dispatch, task, 0), // goes on
            (Op::Yield, task, 0),
            (Op::Dispatch, task, 0),
            (Op::Dispatch, task, 0), // goes on, and is preempted
            (Op::Stopping, task, 1),
            (Op::Enqueue, task, 0),
            (Op::CpuRelease, none, 0),
            (Op::Running, task, 0),
            (Op::Stopping, task, 0),
            (Op::Dispatch, task, 0),
            (Op::UpdateIdle, none, 1),
            (Op::UpdateIdle, none, 0), // for the other
            (Op::Running, other, 0),
        ];
        let events: Vec<_> = events.map(|(op, who, arg)| Event { at: 0, cpu: 1, op, who, arg }).into();
        let lines = Order::new(scenario, &events).0;
        let expected = [
            "not idle for A",
            "running A",
            "yield A",
            "dispatch after A",
            "stopping A runnable",
            "enqueue A",
            "cpu_release after A",
            "running A",
            "stopping A asleep",
            "dispatch after A",
            "idle after A",
        ];
        assert_eq!(lines, expected);
    }
}

// SPDX-License-Identifier: GPL-2.0-only
//! Growth of the cost of a wakeup and of a dispatch() with the number of CPUs of an LLC, in
//! instructions of the native build.
//!
//! ```text
//! one LLC of 8 .. 256 CPUs  x  idle, half, overloaded  --instructions.rs-->  counts  -->  verdict
//! ```
//!
//! Verdict: from the smallest to the largest LLC a count grows by at most [`A_CPU`] instructions
//! per CPU. The bitmaps have a line per 16 CPUs, which two or three failed searches read. A loop
//! over all CPUs would need more. No LLC has more than 256 CPUs.

use std::fmt;

use anyhow::{Result, ensure};
use scx_magpie::tunables::Tunables;
use strum::Display;

use crate::costs::TICK;
use crate::instructions::Counter;
use crate::kernel::Kernel;
use crate::machine::{Machine, Shape};
use crate::program::{Dist, Step};
use crate::scenario::parse_flags;
use crate::time::{MSEC, SEC};
use crate::workload::Builder;

/// Numbers of CPUs of the LLC.
pub const SIZES: [usize; 5] = [8, 32, 64, 128, 256];

/// Maximum growth of a count in instructions per CPU.
pub const A_CPU: f64 = 2.5;

/// Tasks per CPU, and how long each runs between two sleeps.
const TASKS: usize = 4;
const RUN: u64 = MSEC;

/// Time until tasks have spread and clocks differ; and time of the samples on large machines.
const WARM_UP: u64 = 60 * MSEC;
pub const WINDOW: u64 = 20 * MSEC;

/// Utilization of the CPUs.
#[derive(Clone, Copy, Debug, Display, PartialEq, Eq)]
#[strum(serialize_all = "lowercase")]
pub enum State {
    Idle,
    Half,
    Overloaded,
}

impl State {
    pub const ALL: [Self; 3] = [Self::Idle, Self::Half, Self::Overloaded];

    /// Return the CPU time that the tasks need, in % of all CPUs' time.
    fn load(self) -> u64 {
        match self {
            Self::Idle => 5,
            Self::Half => 50,
            Self::Overloaded => 150,
        }
    }
}

/// Mean instructions and their standard errors, by [`SIZES`].
#[derive(Clone, Copy, Debug, Default)]
pub struct Growth {
    pub counts: [f64; SIZES.len()],
    pub errors: [f64; SIZES.len()],
}

impl Growth {
    /// Return true if growth excludes a loop over all CPUs.
    pub fn is_bounded(&self) -> bool {
        let [first, .., last] = self.counts;
        let [error, .., error_last] = self.errors;
        last - first <= A_CPU * (SIZES[SIZES.len() - 1] - SIZES[0]) as f64 + 2.0 * error.hypot(error_last)
    }
}

/// Growth of wakeups and dispatches in one state.
#[derive(Clone, Copy, Debug)]
pub struct Row {
    pub state: State,
    pub wakeup: Growth,
    pub dispatch: Growth,
}

/// Count this many wakeups and dispatches for each size and state.
pub fn measure(flags: &[String], samples: usize, seed: u64) -> Result<Vec<Row>> {
    let tunables = parse_flags(flags)?;
    let mut rows = Vec::new();
    for state in State::ALL {
        let mut row = Row { state, wakeup: Growth::default(), dispatch: Growth::default() };
        for (i, &size) in SIZES.iter().enumerate() {
            let counter = count(&tunables, size, state, samples, seed)?;
            (row.wakeup.counts[i], row.wakeup.errors[i]) = mean(&counter.wakeups);
            (row.dispatch.counts[i], row.dispatch.errors[i]) = mean(&counter.dispatches);
        }
        rows.push(row);
    }
    Ok(rows)
}

/// Return mean and standard error.
fn mean(counts: &[u64]) -> (f64, f64) {
    let nr = counts.len() as f64;
    let mean = counts.iter().sum::<u64>() as f64 / nr;
    let variance = counts.iter().map(|&count| (count as f64 - mean).powi(2)).sum::<f64>() / (nr - 1.0).max(1.0);
    (mean, (variance / nr).sqrt())
}

/// Return a machine with one LLC after its warm-up.
pub fn loaded(tunables: &Tunables, size: usize, state: State, seed: u64) -> Result<Kernel> {
    let shape = Shape { nodes: 1, cores: size / 2, smt: 2, ..Shape::default() };
    let mut kernel = Kernel::new(Machine::new(&shape), tunables, seed)?;
    let at = kernel.now + TICK;
    let mut builder = Builder::new(&mut kernel, at, 0);
    let group = builder.group("growth", false);
    // A task needs load / (100 * TASKS) of a CPU.
    let sleep = RUN * (100 * TASKS as u64 - state.load()) / state.load();
    let steps = vec![Step::Sleep(Dist::Exp(sleep)), Step::Run(Dist::Exp(RUN)), Step::Jump(0)];
    let program = builder.program(group, "task", steps);
    builder.tasks(program, TASKS * size);
    kernel.run_until(at + WARM_UP);
    Ok(kernel)
}

fn count(tunables: &Tunables, size: usize, state: State, samples: usize, seed: u64) -> Result<Counter> {
    let mut kernel = loaded(tunables, size, state, seed)?;
    let wakeups = size as u64 * state.load() * WINDOW / (100 * RUN);
    kernel.counter = Some(Counter::new((wakeups as usize / samples).max(1), samples));
    let end = kernel.now + 10 * SEC;
    while !kernel.counter.as_ref().is_some_and(Counter::is_full) {
        ensure!(kernel.now < end, "{size} CPUs, {state}: too few wakeups");
        kernel.run_until(kernel.now + MSEC);
        if let Some(violation) = &kernel.violation {
            anyhow::bail!("{size} CPUs, {state}: {violation}");
        }
    }
    Ok(kernel.counter.take().expect("it was set above"))
}

/// Table of rows.
pub struct Table<'a>(pub &'a [Row]);

impl fmt::Display for Table<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:<22}", "instructions at CPUs")?;
        SIZES.iter().try_for_each(|size| write!(f, "{size:>8}"))?;
        writeln!(f)?;
        for row in self.0 {
            for (what, growth) in [("wakeup", &row.wakeup), ("dispatch", &row.dispatch)] {
                write!(f, "{:<22}", format!("{what}, {}", row.state))?;
                growth.counts.iter().try_for_each(|count| write!(f, "{count:>8.0}"))?;
                writeln!(f, "   {}", if growth.is_bounded() { "ok" } else { "TOO MUCH a CPU" })?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn growth(count: impl Fn(f64) -> f64) -> Growth {
        Growth { counts: SIZES.map(|size| count(size as f64)), ..Default::default() }
    }

    #[test]
    fn verdicts() {
        for (name, growth, bounded) in [
            ("flat", growth(|_| 100.0), true),
            ("log", growth(|n| 10.0 + 40.0 * n.log2()), true),
            ("a line for 16 CPUs", growth(|n| 100.0 + n), true),
            ("linear", growth(|n| 100.0 + 4.0 * n), false),
        ] {
            assert_eq!(growth.is_bounded(), bounded, "{name}");
        }
        let by_chance = Growth { counts: [100.0, 100.0, 100.0, 100.0, 725.0], errors: [10.0; 5] };
        assert!(by_chance.is_bounded() && !Growth { errors: [0.0; 5], ..by_chance }.is_bounded());
    }
}

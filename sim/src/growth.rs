// SPDX-License-Identifier: GPL-2.0-only
//! Growth of the cost of a wakeup and of a dispatch() with the number of CPUs of an LLC, in
//! instructions of the native build. Kfuncs belong to the simulated kernel and are not counted.
//!
//! ```text
//! one LLC of 8 .. 256 CPUs  x  idle, half, overloaded  --Counter-->  counts  -->  verdict
//!
//! Kernel::call() --fork--> child: the callback, step by step (ptrace), then the end
//!                \-------> counts steps in the program's code, then makes the same call itself
//! ```
//!
//! Verdict: from the smallest to the largest LLC a count grows by at most [`A_CPU`] instructions
//! per CPU. The bitmaps have a line per 16 CPUs, which two or three failed searches read. A loop
//! over all CPUs would need more. No LLC has more than 256 CPUs.
//!
//! Counts are exact and reproducible, need no hardware counters, and do not change the simulation.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fmt;
use std::rc::Rc;

use anyhow::{Result, bail, ensure};
use nix::sys::ptrace;
use nix::sys::signal::{Signal, raise};
use nix::sys::wait::{WaitStatus, waitpid};
use nix::unistd::{ForkResult, Pid, fork};
use strum::Display;

use crate::costs::TICK;
use crate::dsq::TaskId;
use crate::kernel::Kernel;
use crate::kernel::call::{Probe, end_child};
use crate::machine::Shape;
use crate::native::{SCX_ENQ_WAKEUP, text};
use crate::program::{Dist, Step};
use crate::time::{MSEC, SEC};
use crate::trace::Op;
use crate::workload::Builder;

pub const SIZES: [usize; 5] = [8, 32, 64, 128, 256];

/// Maximum growth of a count in instructions per CPU.
const A_CPU: f64 = 2.5;

/// Tasks per CPU, and how long each runs between two sleeps.
const TASKS: usize = 4;
const RUN: u64 = MSEC;

/// Time until tasks have spread and clocks differ; and time of the samples on large machines.
const WARM_UP: u64 = 60 * MSEC;
pub const WINDOW: u64 = 20 * MSEC;

/// Utilization of the CPUs: the CPU time that the tasks need, in % of all CPUs' time.
#[derive(Clone, Copy, Debug, Display)]
#[strum(serialize_all = "lowercase")]
pub enum State {
    Idle = 5,
    Half = 50,
    Overloaded = 150,
}

impl State {
    pub const ALL: [Self; 3] = [Self::Idle, Self::Half, Self::Overloaded];
}

const WAKEUP: usize = 0;
const DISPATCH: usize = 1;

/// Growth of a callback's cost in one state.
#[derive(Clone, Debug, Default)]
pub struct Row {
    pub name: String,
    /// Mean instructions and their standard errors, by [`SIZES`].
    pub counts: [f64; SIZES.len()],
    pub errors: [f64; SIZES.len()],
}

impl Row {
    /// Return true if growth excludes a loop over all CPUs.
    pub fn is_bounded(&self) -> bool {
        let ([first, .., last], [error, .., error_last]) = (self.counts, self.errors);
        last - first <= A_CPU * (SIZES[SIZES.len() - 1] - SIZES[0]) as f64 + 2.0 * error.hypot(error_last)
    }
}

impl fmt::Display for Row {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:<22}", self.name)?;
        self.counts.iter().try_for_each(|count| write!(f, "{count:>8.0}"))?;
        f.write_str(if self.is_bounded() { "   ok" } else { "   TOO MUCH a CPU" })
    }
}

pub fn head() -> String {
    SIZES.iter().fold(format!("{:<22}", "instructions at CPUs"), |head, size| head + &format!("{size:>8}"))
}

/// Count this many wakeups and dispatches for each size and state.
pub fn measure(samples: usize) -> Result<Vec<Row>> {
    let mut rows = Vec::new();
    for state in State::ALL {
        let mut pair = ["wakeup", "dispatch"].map(|what| Row { name: format!("{what}, {state}"), ..Row::default() });
        for (i, &size) in SIZES.iter().enumerate() {
            for (row, counts) in pair.iter_mut().zip(count(size, state, samples)?) {
                (row.counts[i], row.errors[i]) = mean(&counts);
            }
        }
        rows.extend(pair);
    }
    Ok(rows)
}

fn mean(counts: &[u64]) -> (f64, f64) {
    let nr = counts.len() as f64;
    let mean = counts.iter().sum::<u64>() as f64 / nr;
    let variance = counts.iter().map(|&count| (count as f64 - mean).powi(2)).sum::<f64>() / (nr - 1.0).max(1.0);
    (mean, (variance / nr).sqrt())
}

/// Return a machine with one LLC after its warm-up.
pub fn loaded(size: usize, state: State, seed: u64) -> Result<Kernel> {
    let shape = Shape { nodes: 1, cores: size / 2, smt: 2, ..Shape::default() };
    let mut kernel = Kernel::new(&shape, "", seed)?;
    let at = kernel.now + TICK;
    let mut builder = Builder::new(&mut kernel, at, 0);
    let group = builder.group("growth", false);
    // A task needs state / (100 * TASKS) of a CPU.
    let sleep = RUN * (100 * TASKS as u64 - state as u64) / state as u64;
    let steps = vec![Step::Sleep(Dist::Exp(sleep)), Step::Run(Dist::Exp(RUN)), Step::Jump(0)];
    let program = builder.program(group, "task", steps);
    builder.tasks(program, TASKS * size, &builder.traits());
    kernel.run_until(at + WARM_UP);
    Ok(kernel)
}

/// Return the counts of wakeups and of dispatches.
fn count(size: usize, state: State, samples: usize) -> Result<[Vec<u64>; 2]> {
    let mut kernel = loaded(size, state, 1)?;
    let wakeups = size as u64 * state as u64 * WINDOW / (100 * RUN);
    let every = (wakeups as usize / samples).max(1);
    let counter = Rc::new(RefCell::new(Counter { every, samples, ..Counter::default() }));
    kernel.probe = Some(counter.clone());
    let end = kernel.now + 10 * SEC;
    while counter.borrow().counts.iter().any(|counts| counts.len() < samples) {
        ensure!(kernel.now < end, "{size} CPUs, {state}: too few wakeups");
        kernel.run_until(kernel.now + MSEC);
        if let Some(violation) = &kernel.violation {
            bail!("{size} CPUs, {state}: {violation}");
        }
    }
    Ok(counter.take().counts)
}

/// Counts a sample of callbacks: counting takes thousands of times as long as the callback.
#[derive(Default)]
struct Counter {
    /// One of this many callbacks is counted, until there are enough.
    every: usize,
    samples: usize,
    nr: [usize; 2],
    /// Instructions of select_cpu() and, if it found no CPU, of enqueue(); of dispatch().
    counts: [Vec<u64>; 2],
    /// Tasks whose select_cpu() was counted, with the index of that.
    waking: BTreeMap<TaskId, usize>,
}

impl Counter {
    /// Count the callback if it is due. Return true in the child.
    fn sample(&mut self, what: usize) -> bool {
        self.nr[what] += 1;
        if !self.nr[what].is_multiple_of(self.every) || self.counts[what].len() >= self.samples {
            return false;
        }
        let count = count_steps();
        self.counts[what].extend(count);
        count.is_none()
    }
}

impl Probe for Counter {
    fn called(&mut self, op: Op, task: Option<TaskId>, arg: u64) -> bool {
        match (op, task) {
            (Op::SelectCpu, Some(task)) => {
                self.waking.remove(&task);
                let at = self.counts[WAKEUP].len();
                let in_child = self.sample(WAKEUP);
                if self.counts[WAKEUP].len() > at {
                    self.waking.insert(task, at);
                }
                in_child
            }
            (Op::Enqueue, Some(task)) if arg & SCX_ENQ_WAKEUP != 0 => {
                let Some(at) = self.waking.remove(&task) else { return false };
                let count = count_steps();
                self.counts[WAKEUP][at] += count.unwrap_or(0);
                count.is_none()
            }
            (Op::Dispatch, _) => self.sample(DISPATCH),
            _ => false,
        }
    }
}

/// Return the instructions that a child executes from here on; `None` in that child, which runs the
/// callback and [`end_child`].
fn count_steps() -> Option<u64> {
    // SAFETY: the child runs a callback, which takes no lock of other threads, and exits.
    let child = match unsafe { fork() }.expect("fork") {
        ForkResult::Parent { child } => child,
        ForkResult::Child if ptrace::traceme().is_err() || raise(Signal::SIGSTOP).is_err() => end_child(),
        ForkResult::Child => return None,
    };
    match waitpid(child, None).expect("waitpid") {
        WaitStatus::Stopped(..) => {}
        status => panic!("the child cannot be traced (is ptrace forbidden here?): {status:?}"),
    }
    ptrace::setoptions(child, ptrace::Options::PTRACE_O_EXITKILL).expect("PTRACE_SETOPTIONS");
    let (mut count, mut was_inside, mut was_sp) = (0, false, 0);
    loop {
        let (pc, sp) = position(child);
        let mut inside = text().contains(&(pc as usize));
        // A return would have raised the stack pointer.
        if was_inside && !inside && sp <= was_sp {
            inside = run_kfunc(child, sp);
        }
        (was_inside, was_sp) = (inside, sp);
        count += u64::from(inside);
        ptrace::step(child, None).expect("PTRACE_SINGLESTEP");
        match waitpid(child, None).expect("waitpid") {
            WaitStatus::Stopped(_, Signal::SIGTRAP) => {}
            WaitStatus::Exited(_, 0) => return Some(count),
            status => panic!("a callback that is counted ends with {status:?}"),
        }
    }
}

/// Return the instruction pointer and the stack pointer of the stopped child.
fn position(child: Pid) -> (u64, u64) {
    let regs = ptrace::getregs(child).expect("PTRACE_GETREGS");
    #[cfg(target_arch = "x86_64")]
    return (regs.rip, regs.rsp);
    #[cfg(target_arch = "aarch64")]
    return (regs.pc, regs.sp);
}

/// After the child has called a function out of the program's code: run to a breakpoint at the
/// return, because most time would be spent on steps that do not count. Return true if the child is
/// back in the program's code.
#[cfg(target_arch = "x86_64")]
fn run_kfunc(child: Pid, sp: u64) -> bool {
    let back = ptrace::read(child, sp as ptrace::AddressType).expect("PTRACE_PEEKDATA");
    if !text().contains(&(back as usize)) {
        return false;
    }
    let address = back as ptrace::AddressType;
    let code = ptrace::read(child, address).expect("PTRACE_PEEKTEXT");
    ptrace::write(child, address, code & !0xff | 0xcc).expect("PTRACE_POKETEXT");
    ptrace::cont(child, None).expect("PTRACE_CONT");
    let status = waitpid(child, None).expect("waitpid");
    assert!(matches!(status, WaitStatus::Stopped(_, Signal::SIGTRAP)), "a kfunc ends with {status:?}");
    ptrace::write(child, address, code).expect("PTRACE_POKETEXT");
    let mut regs = ptrace::getregs(child).expect("PTRACE_GETREGS");
    regs.rip = back as u64;
    ptrace::setregs(child, regs).expect("PTRACE_SETREGS");
    true
}

#[cfg(not(target_arch = "x86_64"))]
fn run_kfunc(_child: Pid, _sp: u64) -> bool {
    false
}

// SPDX-License-Identifier: GPL-2.0-only
//! Cache lines of the program's variables that move in a wakeup and in a switch, by variable, on
//! LLCs of 64 and 256 CPUs. The compiler reports each load and store (feature `lines`); the
//! simulation does not change.
//!
//! ```text
//! Kernel::call() --kind of the callback--> Log
//! load, store    --address--> line --owner of the copy-->  Log: moves by kind and variable
//! ```

use std::cell::RefCell;
use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::rc::Rc;

use anyhow::Result;

use crate::cache::Line;
use crate::dsq::TaskId;
use crate::growth::{State, WINDOW, loaded};
use crate::kernel::call::Probe;
use crate::machine::Machine;
use crate::native::{CACHE_LINE, SCX_ENQ_WAKEUP, variable};
use crate::trace::Op;

const SIZES: [usize; 2] = [64, 256];

const WARM_UP: u64 = 10 * WINDOW;

/// Lines that move per wakeup and per switch, by variable: one table per size and state.
pub struct Moved {
    size: usize,
    state: State,
    rows: Vec<(String, [f64; 2])>,
}

impl fmt::Display for Moved {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{:<40}{:>8}{:>8}", format!("{} CPUs, {}", self.size, self.state), "wakeup", "switch")?;
        self.rows.iter().try_for_each(|(name, [wakeup, switch])| writeln!(f, "  {name:<38}{wakeup:>8.2}{switch:>8.2}"))
    }
}

pub fn measure(seed: u64) -> Result<Vec<Moved>> {
    let mut tables = Vec::new();
    for (size, state) in SIZES.into_iter().flat_map(|size| State::ALL.map(|state| (size, state))) {
        let mut kernel = loaded(size, state, seed)?;
        let log = Rc::new(RefCell::new(Log::default()));
        kernel.probe = Some(log.clone());
        kernel.run_until(kernel.now + WARM_UP);
        // By now each CPU has read the variables that are rarely written.
        let lines = log.take().lines;
        *log.borrow_mut() = Log { lines, ..Log::default() };
        kernel.run_until(kernel.now + WINDOW);
        let log = log.borrow();
        let each = |moved: [u64; 2]| [0, 1].map(|kind| moved[kind] as f64 / log.nr[kind] as f64);
        let sum = log.moved.values().fold([0, 0], |sum, of| [sum[0] + of[0], sum[1] + of[1]]);
        let mut rows: Vec<_> = log.moved.iter().map(|(name, &moved)| (name.clone(), each(moved))).collect();
        rows.push(("all".into(), each(sum)));
        tables.push(Moved { size, state, rows });
    }
    Ok(tables)
}

/// Lines and their moves, in wakeups (0) and in switches (1).
#[derive(Default)]
struct Log {
    lines: HashMap<usize, Line>,
    /// The operation to which the running callback belongs.
    kind: Option<usize>,
    nr: [u64; 2],
    moved: BTreeMap<String, [u64; 2]>,
}

impl Probe for Log {
    fn called(&mut self, op: Op, _task: Option<TaskId>, arg: u64) -> bool {
        self.kind = match op {
            Op::SelectCpu => Some(0),
            Op::Enqueue if arg & SCX_ENQ_WAKEUP != 0 => Some(0),
            Op::Enqueue | Op::Dispatch | Op::Stopping | Op::Running | Op::UpdateIdle => Some(1),
            _ => None,
        };
        self.nr[0] += u64::from(op == Op::SelectCpu);
        self.nr[1] += u64::from(op == Op::Running || op == Op::UpdateIdle && arg != 0);
        false
    }

    fn accessed(&mut self, machine: &Machine, cpu: usize, addr: usize, store: bool) {
        let Some(name) = variable(addr) else { return };
        let line = self.lines.entry(addr / CACHE_LINE).or_insert_with(|| Line::of(cpu));
        let cost = if store { line.store(machine, cpu) } else { line.load(machine, cpu) };
        if let Some(kind) = self.kind.filter(|_| cost > 0) {
            self.moved.entry(name).or_default()[kind] += 1;
        }
    }
}

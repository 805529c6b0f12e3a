// SPDX-License-Identifier: GPL-2.0-only
//! Counts the cache lines of the BPF program's variables that come from another CPU in a wakeup and in a switch. The compiler
//! tells of each load and store (feature `lines`), so every variable counts, and the simulation stays as it is.
//!
//! ```text
//! Kernel::call() --of which kind is the callback?--> Lines
//! load, store    --address--> line --whose copy?-->  Lines: one that had to come, by kind and variable
//! ```

use std::collections::{BTreeMap, HashMap};
use std::fmt;

use anyhow::Result;
use scx_magpie::bpf_intf::magpie_limits_CACHE_LINE;

use crate::cache::Line;
use crate::growth::{State, WINDOW, loaded};
use crate::machine::Machine;
use crate::native::{SCX_ENQ_WAKEUP, variable};
use crate::scenario::parse_flags;
use crate::trace::Op;

/// CPUs of the LLC.
const SIZES: [usize; 2] = [64, 256];

const WARM_UP: u64 = 10 * WINDOW;

/// What a callback belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Kind {
    Wakeup,
    Switch,
    Other,
}

impl Kind {
    fn of(op: Op, arg: u64) -> Self {
        match op {
            Op::SelectCpu => Self::Wakeup,
            Op::Enqueue if arg & SCX_ENQ_WAKEUP != 0 => Self::Wakeup,
            Op::Enqueue | Op::Dispatch | Op::Stopping | Op::Running | Op::UpdateIdle => Self::Switch,
            _ => Self::Other,
        }
    }
}

/// Lines, and how often one moved.
pub struct Lines {
    lines: HashMap<usize, Line>,
    kind: Kind,
    wakeups: u64,
    switches: u64,
    moved: BTreeMap<String, [u64; 2]>,
}

impl Lines {
    fn new() -> Self {
        Self { lines: HashMap::new(), kind: Kind::Other, wakeups: 0, switches: 0, moved: BTreeMap::new() }
    }

    fn forget_counts(&mut self) {
        *self = Self { lines: std::mem::take(&mut self.lines), ..Self::new() };
    }

    /// A callback begins.
    pub fn called(&mut self, op: Op, arg: u64) {
        self.kind = Kind::of(op, arg);
        self.wakeups += u64::from(op == Op::SelectCpu);
        self.switches += u64::from(op == Op::Running || op == Op::UpdateIdle && arg != 0);
    }

    pub fn accessed(&mut self, machine: &Machine, cpu: usize, addr: usize, store: bool) {
        let Some(name) = variable(addr) else { return };
        let line = self.lines.entry(addr / magpie_limits_CACHE_LINE as usize).or_insert_with(|| Line::of(cpu));
        let cost = if store { line.store(machine, cpu) } else { line.load(machine, cpu) };
        if cost > 0 && self.kind != Kind::Other {
            self.moved.entry(name).or_default()[self.kind as usize] += 1;
        }
    }
}

/// Lines that move a wakeup and a switch, by variable; one table for each size and state.
pub struct Moved {
    size: usize,
    state: State,
    rows: Vec<(String, [f64; 2])>,
}

impl fmt::Display for Moved {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{:<40}{:>8}{:>8}", format!("{} CPUs, {}", self.size, self.state.name()), "wakeup", "switch")?;
        self.rows.iter().try_for_each(|(name, [wakeup, switch])| writeln!(f, "  {name:<38}{wakeup:>8.2}{switch:>8.2}"))
    }
}

pub fn measure(flags: &[String], seed: u64) -> Result<Vec<Moved>> {
    let tunables = parse_flags(flags)?;
    let mut tables = Vec::new();
    for (size, state) in SIZES.into_iter().flat_map(|size| State::ALL.map(|state| (size, state))) {
        let mut kernel = loaded(&tunables, size, state, seed)?;
        kernel.lines = Some(Lines::new());
        kernel.run_until(kernel.now + WARM_UP);
        // Each CPU has read by then what is seldom written.
        if let Some(lines) = &mut kernel.lines {
            lines.forget_counts();
        }
        kernel.run_until(kernel.now + WINDOW);
        let Some(lines) = kernel.lines.take() else { continue };
        let each =
            |[wakeup, switch]: [u64; 2]| [wakeup as f64 / lines.wakeups as f64, switch as f64 / lines.switches as f64];
        let sum = lines.moved.values().fold([0, 0], |sum, of| [sum[0] + of[0], sum[1] + of[1]]);
        let mut rows: Vec<_> = lines.moved.iter().map(|(name, &moved)| (name.clone(), each(moved))).collect();
        rows.push(("all".into(), each(sum)));
        tables.push(Moved { size, state, rows });
    }
    Ok(tables)
}

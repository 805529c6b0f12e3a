// SPDX-License-Identifier: GPL-2.0-only
//! Count the cache lines of the program's variables that move in a wakeup and in a switch. The
//! compiler reports each load and store (feature `lines`); the simulation does not change.
//!
//! ```text
//! Kernel::call() --kind of the callback--> Lines
//! load, store    --address--> line --owner of the copy-->  Lines: moves by kind and variable
//! ```

use std::collections::{BTreeMap, HashMap};

use scx_magpie::bpf_intf::magpie_limits_CACHE_LINE;

use crate::cache::Line;
use crate::machine::Machine;
use crate::native::{SCX_ENQ_WAKEUP, variable};
use crate::trace::Op;

/// The operation to which a callback belongs.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
enum Kind {
    Wakeup,
    Switch,
    #[default]
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

/// Lines and their moves.
#[derive(Default)]
pub struct Lines {
    lines: HashMap<usize, Line>,
    kind: Kind,
    pub wakeups: u64,
    pub switches: u64,
    /// Moves by variable, in wakeups and in switches.
    pub moved: BTreeMap<String, [u64; 2]>,
}

impl Lines {
    pub fn forget_counts(&mut self) {
        *self = Self { lines: std::mem::take(&mut self.lines), ..Self::default() };
    }

    /// Note the begin of a callback.
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

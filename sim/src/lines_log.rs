// SPDX-License-Identifier: GPL-2.0-only
//! Counts the cache lines of the BPF program's variables that come from another CPU in a wakeup and in a switch. The compiler
//! reports each load and store (feature `lines`), so every variable counts, and the simulation stays as it is.
//!
//! ```text
//! Kernel::call() --of which kind is the callback?--> Lines
//! load, store    --address--> line --whose copy?-->  Lines: one that had to come, by kind and variable
//! ```

use std::collections::{BTreeMap, HashMap};

use scx_magpie::bpf_intf::magpie_limits_CACHE_LINE;

use crate::cache::Line;
use crate::machine::Machine;
use crate::native::{SCX_ENQ_WAKEUP, variable};
use crate::trace::Op;

/// What a callback belongs to.
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

/// Lines, and how often one moved.
#[derive(Default)]
pub struct Lines {
    lines: HashMap<usize, Line>,
    kind: Kind,
    pub wakeups: u64,
    pub switches: u64,
    /// By variable, in wakeups and in switches.
    pub moved: BTreeMap<String, [u64; 2]>,
}

impl Lines {
    pub fn forget_counts(&mut self) {
        *self = Self { lines: std::mem::take(&mut self.lines), ..Self::default() };
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

// SPDX-License-Identifier: GPL-2.0-only
//! Cache lines that CPUs share: the CPUs with a copy, and the cost of a transfer.
//!
//! ```text
//! load:   the CPU has a copy? free : from the last writer, by distance; then the CPU has a copy
//! store:  it has the only copy? free : from the last writer; then it has the only copy
//! ```
//!
//! Lines: of the sparse bitmaps and of cgroups, and one per runqueue with its DSQ and locks.

use crate::costs::{LINE_CORE, LINE_FAR, LINE_LLC, LINE_NODE};
use crate::machine::{Distance, Machine};
use crate::mask::Mask;

/// Return the cost of a line from a CPU at this distance, in ns.
pub fn transfer(distance: Distance) -> u64 {
    match distance {
        Distance::Same => 0,
        Distance::Core => LINE_CORE,
        Distance::Llc => LINE_LLC,
        Distance::Node => LINE_NODE,
        Distance::Far => LINE_FAR,
    }
}

#[derive(Clone)]
pub struct Line {
    writer: usize,
    copies: Mask,
}

impl Default for Line {
    fn default() -> Self {
        Self { writer: 0, copies: Mask::all() }
    }
}

impl Line {
    /// Return a line of which only this CPU has a copy.
    pub fn of(cpu: usize) -> Self {
        Self { writer: cpu, copies: Mask::only(cpu) }
    }

    pub fn load(&mut self, machine: &Machine, cpu: usize) -> u64 {
        if self.copies.test(cpu) {
            return 0;
        }
        self.copies.set(cpu);
        transfer(machine.distance(cpu, self.writer))
    }

    pub fn store(&mut self, machine: &Machine, cpu: usize) -> u64 {
        if self.writer == cpu && self.copies.is_only(cpu) {
            return 0;
        }
        let cost = match machine.distance(cpu, self.writer) {
            // The CPU has a copy, but other CPUs have copies to invalidate.
            Distance::Same => LINE_LLC,
            distance => transfer(distance),
        };
        *self = Self::of(cpu);
        cost
    }
}

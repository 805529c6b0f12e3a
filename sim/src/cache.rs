// SPDX-License-Identifier: GPL-2.0-only
//! Cache lines that CPUs share: which holds a copy, and what it costs to get one.
//!
//! ```text
//! load:   a copy of our own? free : from the last writer, by distance; then we have a copy
//! store:  the only copy is ours? free : from the last writer; then ours is the only copy
//! ```
//!
//! Lines are those of the sparse bitmaps and of cgroups (by address) and one for each runqueue with its DSQ and locks.

use crate::costs::{LINE_CORE, LINE_FAR, LINE_LLC, LINE_NODE};
use crate::machine::{Distance, Machine};
use crate::mask::Mask;

/// What it costs to get a line from a CPU that far away.
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
    /// Only that CPU has a copy.
    pub fn of(cpu: usize) -> Self {
        Self { writer: cpu, copies: Mask::only(cpu) }
    }

    /// `cpu` reads the line. Returns ns.
    pub fn load(&mut self, machine: &Machine, cpu: usize) -> u64 {
        if self.copies.test(cpu) {
            return 0;
        }
        self.copies.set(cpu);
        transfer(machine.distance(cpu, self.writer))
    }

    /// `cpu` writes the line. Returns ns.
    pub fn store(&mut self, machine: &Machine, cpu: usize) -> u64 {
        if self.writer == cpu && self.copies.is_only(cpu) {
            return 0;
        }
        let cost = match machine.distance(cpu, self.writer) {
            // Ours, but others have copies to give up.
            Distance::Same => LINE_LLC,
            distance => transfer(distance),
        };
        *self = Self::of(cpu);
        cost
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_travel_once() {
        let machine = Machine::new(&"2x2x2x1".parse().unwrap());
        let mut line = Line::default();
        assert!(line.store(&machine, 0) > 0, "others had copies");
        assert_eq!(line.store(&machine, 0), 0);
        assert_eq!(line.load(&machine, 1), LINE_LLC);
        assert_eq!(line.load(&machine, 1), 0);
        assert_eq!(line.load(&machine, 4), LINE_FAR);
        assert_eq!(line.store(&machine, 2), LINE_NODE);
        assert_eq!(line.load(&machine, 0), LINE_NODE);
    }
}

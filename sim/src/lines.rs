// SPDX-License-Identifier: GPL-2.0-only
//! Cache lines that move in a wakeup and in a switch, by variable, on LLCs of 64 and 256 CPUs.

use std::fmt;

use anyhow::Result;

use crate::growth::{State, WINDOW, loaded};
use crate::lines_log::Lines;
use crate::scenario::parse_flags;

/// Numbers of CPUs of the LLC.
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

pub fn measure(flags: &[String], seed: u64) -> Result<Vec<Moved>> {
    let tunables = parse_flags(flags)?;
    let mut tables = Vec::new();
    for (size, state) in SIZES.into_iter().flat_map(|size| State::ALL.map(|state| (size, state))) {
        let mut kernel = loaded(&tunables, size, state, seed)?;
        kernel.lines = Some(Lines::default());
        kernel.run_until(kernel.now + WARM_UP);
        // By now each CPU has read the variables that are rarely written.
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

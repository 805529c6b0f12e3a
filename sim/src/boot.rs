// SPDX-License-Identifier: GPL-2.0-only
//! Boots a simulated kernel: its observer is the checks, and the program is loaded.

use anyhow::Result;
use scx_magpie::tunables::Tunables;

use crate::checks::observe;
use crate::kernel::Kernel;
use crate::machine::Machine;

impl Kernel {
    pub fn new(machine: Machine, tunables: &Tunables, seed: u64) -> Result<Self> {
        let mut kernel = Self::bare(machine, tunables, seed, observe)?;
        kernel.attach()?;
        Ok(kernel)
    }
}

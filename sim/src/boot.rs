// SPDX-License-Identifier: GPL-2.0-only
//! A kernel as every run has it: with the program loaded, and each moment checked.

use anyhow::Result;
use scx_magpie::cli::Tunables;

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

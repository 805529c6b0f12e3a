// SPDX-License-Identifier: GPL-2.0-only
//! `magpie-slice`: run a command with a slice of its own, as `chrt -o --sched-runtime` of a newer
//! util-linux does. The kernel's rule for fork and exec applies from there on.

use std::os::unix::process::CommandExt;
use std::process::Command;

use anyhow::{Result, bail};
use clap::Parser;
use nix::errno::Errno;

/// Ask the kernel for slices of this length, and run COMMAND with them.
#[derive(Parser)]
struct Cli {
    /// Length of a slice; 0 takes back what was asked for. Microseconds, 0..100000
    #[arg(value_name = "US", value_parser = clap::value_parser!(u64).range(0..=100_000))]
    slice_us: u64,

    /// Children do not inherit it
    #[arg(long)]
    reset_on_fork: bool,

    #[arg(trailing_var_arg = true, allow_hyphen_values = true, required = true)]
    command: Vec<String>,
}

fn main() -> Result<()> {
    let cli = Cli::parse();
    let attr = libc::sched_attr {
        size: size_of::<libc::sched_attr>() as u32,
        sched_policy: libc::SCHED_OTHER as u32,
        sched_flags: if cli.reset_on_fork { libc::SCHED_FLAG_RESET_ON_FORK as u64 } else { 0 },
        sched_nice: 0,
        sched_priority: 0,
        sched_runtime: cli.slice_us * 1000,
        sched_deadline: 0,
        sched_period: 0,
    };
    // SAFETY: the kernel reads `size` bytes of it.
    let set = unsafe { libc::syscall(libc::SYS_sched_setattr, 0, &raw const attr, 0) };
    Errno::result(set)?;
    bail!(Command::new(&cli.command[0]).args(&cli.command[1..]).exec());
}

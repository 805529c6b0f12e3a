// SPDX-License-Identifier: GPL-2.0-only
//! `scx_magpie verifier-stats`: the cost of each BPF program for this kernel's verifier.

use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd};

use anyhow::{Result, ensure};
use libbpf_rs::libbpf_sys;
use libbpf_rs::skel::Skel;

use crate::bpf_intf::pelt_consts_CAPACITY_SCALE as CAPACITY_SCALE;
use crate::cli::Opts;
use crate::scheduler::Scheduler;

/// The kernel's BPF_COMPLEXITY_LIMIT_INSNS.
const LIMIT: u32 = 1_000_000;

/// Load all programs and print the number of instructions that the verifier processed for each.
/// With `asymmetric` the machine's CPUs differ in capacity and rank.
pub fn print(opts: &Opts, asymmetric: bool) -> Result<()> {
    let mut object = MaybeUninit::uninit();
    let scheduler = Scheduler::load_for(opts, &mut object, |layout| {
        if asymmetric {
            let weak = layout.cpus.keys().skip(1).step_by(2).map(|&id| (id, CAPACITY_SCALE as usize / 2)).collect();
            layout.set_capacities(&weak);
            layout.cpus.values_mut().enumerate().for_each(|(rank, cpu)| cpu.rank = rank);
        }
    })?;

    println!("{:<24} {:>8} {:>9} {:>9}", "program", "insns", "verified", "of limit");
    for prog in scheduler.skel.object().progs() {
        if !prog.autoload() {
            continue;
        }
        let mut info = libbpf_sys::bpf_prog_info::default();
        let mut len = size_of_val(&info) as u32;
        // SAFETY: info and len are valid, and len is the size of info.
        let err = unsafe { libbpf_sys::bpf_prog_get_info_by_fd(prog.as_fd().as_raw_fd(), &mut info, &mut len) };
        ensure!(err == 0, "cannot query {}", prog.name().to_string_lossy());
        println!(
            "{:<24} {:>8} {:>9} {:>8.2}%",
            prog.name().to_string_lossy(),
            prog.insn_cnt(),
            info.verified_insns,
            100.0 * f64::from(info.verified_insns) / f64::from(LIMIT)
        );
    }
    Ok(())
}

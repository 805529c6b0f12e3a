// SPDX-License-Identifier: GPL-2.0-only
//! CPU frequencies by the governor schedutil, from the program's targets. Each CPU has a policy.
//!
//! ```text
//! scx_bpf_cpuperf_set() --> rq->scx.cpuperf_target --* 1.25, once in RATE_LIMIT--> freq --> speed, energy
//! ```

use crate::costs::KFUNC;
use crate::kernel::call::current;
use crate::kernel::{Curr, Kernel};
use crate::native::rq;
use crate::time::{MSEC, SEC};
use crate::trace::Op;

/// Fraction of the highest frequency in 1/1024: as 0.8 GHz of 4 GHz.
pub const MIN_FREQ: u64 = 205;
pub const MAX_FREQ: u64 = 1024;

/// rate_limit_us of the governor, in ns: the initial value with most drivers.
pub const RATE_LIMIT: u64 = 2 * MSEC;

pub struct Freq {
    pub now: u64,
    set_at: Option<u64>,
    charged_at: u64,
    /// Energy: the cube of the frequency, 0..1, integrated over busy time in s.
    pub energy: f64,
    pub rq: Box<rq>,
    /// Number of calls of scx_bpf_cpuperf_set().
    pub nr_set: u64,
}

impl Default for Freq {
    /// Full speed, as when a scheduler is enabled.
    fn default() -> Self {
        let mut rq = Box::new(rq::default());
        rq.scx.cpuperf_target = MAX_FREQ as u32;
        Self { now: MAX_FREQ, set_at: None, charged_at: 0, energy: 0.0, rq, nr_set: 0 }
    }
}

/// map_util_perf() and map_util_freq().
pub fn schedutil(target: u64, capacity: u64) -> u64 {
    let perf = target.min(capacity) * 5 / 4;
    (perf * MAX_FREQ / capacity).clamp(MIN_FREQ, MAX_FREQ)
}

impl Kernel {
    /// cpufreq_update_util(), after the CPU's target was set.
    pub fn set_target(&mut self, cpu: usize, target: u32) {
        let freq = &mut self.cpus[cpu].freq;
        freq.rq.scx.cpuperf_target = target;
        freq.nr_set += 1;
        if freq.set_at.is_some_and(|at| self.now < at + RATE_LIMIT) {
            return;
        }
        let wanted = schedutil(target.into(), self.machine.places[cpu].capacity);
        if wanted == self.cpus[cpu].freq.now {
            return;
        }
        self.charge_energy(cpu);
        self.account(cpu);
        self.cpus[cpu].freq.set_at = Some(self.now);
        self.cpus[cpu].freq.now = wanted;
        self.set_speeds(cpu);
        if matches!(self.cpus[cpu].curr, Curr::Task(_)) {
            self.arm_step(cpu);
        }
    }

    /// Account energy until now. Idle CPUs use none.
    pub fn charge_energy(&mut self, cpu: usize) {
        let busy = self.cpus[cpu].curr != Curr::Idle;
        let freq = &mut self.cpus[cpu].freq;
        let ns = self.now.saturating_sub(freq.charged_at);
        freq.charged_at = self.now;
        if busy {
            freq.energy += (freq.now as f64 / MAX_FREQ as f64).powi(3) * ns as f64 / SEC as f64;
        }
    }
}

fn kernel() -> &'static mut Kernel {
    // SAFETY: as in kfuncs.rs.
    unsafe { current() }
}

#[unsafe(no_mangle)]
extern "C" fn scx_bpf_cpuperf_cap(cpu: i32) -> u32 {
    kernel().machine.places[cpu as usize].capacity as u32
}

#[unsafe(no_mangle)]
extern "C" fn scx_bpf_cpuperf_cur(cpu: i32) -> u32 {
    kernel().cpus[cpu as usize].freq.now as u32
}

#[unsafe(no_mangle)]
extern "C" fn scx_bpf_cpuperf_set(cpu: i32, perf: u32) {
    let kernel = kernel();
    kernel.cost += KFUNC;
    // Under a runqueue's lock only that CPU's: a remote tick holds the lock of its task's CPU.
    let locked = kernel.call.map(|call| match (call.op, call.task) {
        (Op::Tick, Some(task)) => kernel.tasks[task].cpu,
        _ => call.cpu,
    });
    if perf > 1024 || locked.is_some_and(|locked| locked != cpu as usize) {
        return kernel.violate("cpuperf", format!("CPU {cpu} is told to run at {perf} in {:?}", kernel.call));
    }
    kernel.set_target(cpu as usize, perf);
}

#[unsafe(no_mangle)]
extern "C" fn sim_rq(cpu: i32) -> *mut rq {
    &raw mut *kernel().cpus[cpu as usize].freq.rq
}

// SPDX-License-Identifier: GPL-2.0-only
//! CPU frequencies, as the governor schedutil sets them from the program's targets. Each CPU has a policy of its own.
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

/// Of the highest frequency: as 0.8 GHz of 4 GHz.
pub const MIN_FREQ: u64 = 205;
pub const MAX_FREQ: u64 = 1024;

/// The governor's rate_limit_us, in ns: what most drivers have it start with.
pub const RATE_LIMIT: u64 = 2 * MSEC;

pub struct Freq {
    /// MIN_FREQ..=MAX_FREQ
    pub now: u64,
    set_at: Option<u64>,
    charged_at: u64,
    /// The cube of the frequency, 0..1, over the time that the CPU was busy: seconds at the highest one.
    pub energy: f64,
    pub rq: Box<rq>,
    /// scx_bpf_cpuperf_set()
    pub nr_set: u64,
}

impl Default for Freq {
    /// As when a scheduler is enabled: full speed.
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

    /// Accounts what the CPU took until now. Idle CPUs take nothing.
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
    // While a runqueue is locked, only its own CPU's: a remote tick locks that of its task.
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

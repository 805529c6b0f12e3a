// SPDX-License-Identifier: GPL-2.0-only
//! Work for a request: sleep, then spin, with or without the lock of the CPU; several times.

use std::thread;
use std::time::{Duration, Instant};

use nix::sched::sched_getcpu;
use nix::time::{ClockId, clock_gettime};
use scx_utils::NR_CPU_IDS;

use crate::futex::{Held, Lock, Wait};

pub struct Work {
    /// Number of parts; each sleeps and spins.
    pub parts: u32,
    /// Duration of each sleep.
    pub think: Duration,
    /// Duration of each spin.
    pub spin: Duration,
    /// Count only the time during which the worker runs.
    pub cpu_time: bool,
    /// None: the worker takes no lock.
    pub locks: Option<Locks>,
}

impl Work {
    pub fn do_request(&self) {
        for _ in 0..self.parts {
            if !self.think.is_zero() {
                thread::sleep(self.think);
            }
            let _held = self.locks.as_ref().map(Locks::lock);
            match self.cpu_time {
                true => spin_cpu_time(self.spin),
                false => spin_until(Instant::now() + self.spin),
            }
        }
    }
}

/// A lock for each possible CPU.
pub struct Locks {
    by_cpu: Vec<Lock>,
    wait: Wait,
}

impl Locks {
    pub fn new(wait: Wait) -> Self {
        Self { by_cpu: (0..*NR_CPU_IDS).map(|_| Lock::default()).collect(), wait }
    }

    /// Take the lock of the caller's CPU. A caller that slept for it keeps it after a migration;
    /// one that spun takes its new CPU's lock instead: only tasks of one CPU wait for each other.
    fn lock(&self) -> Held<'_> {
        loop {
            let cpu = this_cpu();
            let held = self.by_cpu[cpu % self.by_cpu.len()].lock(self.wait);
            if self.wait == Wait::Sleep || this_cpu() == cpu {
                return held;
            }
        }
    }
}

fn this_cpu() -> usize {
    sched_getcpu().expect("the kernel has it")
}

fn spin_until(until: Instant) {
    while Instant::now() < until {
        std::hint::spin_loop();
    }
}

/// Spin for `spin` of CPU time. Reading that is a system call, so the loop polls the clock.
fn spin_cpu_time(spin: Duration) {
    let until = thread_cpu_time() + spin;
    while let Some(left) = until.checked_sub(thread_cpu_time()).filter(|left| !left.is_zero()) {
        spin_until(Instant::now() + left);
    }
}

fn thread_cpu_time() -> Duration {
    clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID).expect("each thread has one").into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use nix::sched::{CpuSet, sched_setaffinity};
    use nix::unistd::Pid;

    #[test]
    fn preemption_does_not_shorten_cpu_time() {
        const SPIN: Duration = Duration::from_millis(50);
        let mut cpu = CpuSet::new();
        cpu.set(sched_getcpu().unwrap()).unwrap();
        let spun = || {
            sched_setaffinity(Pid::from_raw(0), &cpu).unwrap();
            let before = thread_cpu_time();
            spin_cpu_time(SPIN);
            thread_cpu_time() - before
        };
        thread::scope(|scope| {
            let spinners: Vec<_> = (0..3).map(|_| scope.spawn(spun)).collect();
            for spinner in spinners {
                assert!(spinner.join().unwrap() >= SPIN);
            }
        });
    }
}

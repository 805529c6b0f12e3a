// SPDX-License-Identifier: GPL-2.0-only
//! Count the instructions of the BPF program's native build in a wakeup and in a dispatch(). Kfuncs
//! belong to the simulated kernel and are not counted.
//!
//! ```text
//! Kernel::call() --fork--> child: the callback, step by step (ptrace), then the end
//!                \-------> counts steps in the program's code, then makes the same call itself
//! ```
//!
//! Counts are exact and reproducible, need no hardware counters, and do not change the simulation.

use std::collections::BTreeMap;
use std::ops::Range;

use nix::sys::ptrace;
use nix::sys::signal::{Signal, raise};
use nix::sys::wait::{WaitStatus, waitpid};
use nix::unistd::{ForkResult, Pid, fork};

use crate::dsq::TaskId;
use crate::native::{SCX_ENQ_WAKEUP, text};
use crate::trace::Op;

/// Counter for a sample of callbacks: counting takes thousands of times as long as the callback.
pub struct Counter {
    text: Range<usize>,
    /// One of this many callbacks is counted, until there are enough.
    every: usize,
    enough: usize,
    nr_wakeups: usize,
    nr_dispatches: usize,
    /// Instructions of select_cpu() and, if it found no CPU, of enqueue().
    pub wakeups: Vec<u64>,
    pub dispatches: Vec<u64>,
    /// Tasks whose select_cpu() was counted, with the index in `wakeups`.
    waking: BTreeMap<TaskId, usize>,
}

impl Counter {
    pub fn new(every: usize, enough: usize) -> Self {
        Self {
            text: text(),
            every,
            enough,
            nr_wakeups: 0,
            nr_dispatches: 0,
            wakeups: Vec::new(),
            dispatches: Vec::new(),
            waking: BTreeMap::new(),
        }
    }

    pub fn is_full(&self) -> bool {
        self.wakeups.len() >= self.enough && self.dispatches.len() >= self.enough
    }

    /// Return true if the callback of this number is to be counted.
    fn is_next(&self, nr: usize, counts: &[u64]) -> bool {
        nr.is_multiple_of(self.every) && counts.len() < self.enough
    }

    /// Return true in a child, which then runs the callback for the count, and [`end_child`].
    pub fn in_child(&mut self, op: Op, task: Option<TaskId>, arg: u64) -> bool {
        match (op, task) {
            (Op::SelectCpu, Some(task)) => {
                self.waking.remove(&task);
                self.nr_wakeups += 1;
                if !self.is_next(self.nr_wakeups, &self.wakeups) {
                    return false;
                }
                let Some(count) = self.count() else { return true };
                self.waking.insert(task, self.wakeups.len());
                self.wakeups.push(count);
            }
            (Op::Enqueue, Some(task)) if arg & SCX_ENQ_WAKEUP != 0 => {
                let Some(wakeup) = self.waking.remove(&task) else { return false };
                let Some(count) = self.count() else { return true };
                self.wakeups[wakeup] += count;
            }
            (Op::Dispatch, _) => {
                self.nr_dispatches += 1;
                if !self.is_next(self.nr_dispatches, &self.dispatches) {
                    return false;
                }
                let Some(count) = self.count() else { return true };
                self.dispatches.push(count);
            }
            _ => {}
        }
        false
    }

    /// Return the instructions that a child executes from here on; `None` in that child.
    fn count(&self) -> Option<u64> {
        // SAFETY: the child runs a callback, which takes no lock of other threads, and exits.
        match unsafe { fork() }.expect("fork") {
            ForkResult::Child => {
                if ptrace::traceme().is_err() || raise(Signal::SIGSTOP).is_err() {
                    end_child();
                }
                None
            }
            ForkResult::Parent { child } => Some(self.steps(child)),
        }
    }

    fn steps(&self, child: Pid) -> u64 {
        let mut count = 0;
        match waitpid(child, None).expect("waitpid") {
            WaitStatus::Stopped(..) => {}
            status => panic!("the child cannot be traced (is ptrace forbidden here?): {status:?}"),
        }
        ptrace::setoptions(child, ptrace::Options::PTRACE_O_EXITKILL).expect("PTRACE_SETOPTIONS");
        let mut was_inside = false;
        loop {
            let mut inside = self.text.contains(&instruction(child));
            if was_inside && !inside {
                inside = self.run_kfunc(child);
            }
            was_inside = inside;
            count += u64::from(inside);
            ptrace::step(child, None).expect("PTRACE_SINGLESTEP");
            match waitpid(child, None).expect("waitpid") {
                WaitStatus::Stopped(_, Signal::SIGTRAP) => {}
                WaitStatus::Exited(_, 0) => return count,
                status => panic!("a callback that is counted ends with {status:?}"),
            }
        }
    }

    /// After the child has left the program's code: if that was a call, run to a breakpoint at the
    /// return, because most time would be spent on steps that do not count. Return true if the
    /// child is back in the program's code.
    #[cfg(target_arch = "x86_64")]
    fn run_kfunc(&self, child: Pid) -> bool {
        let rsp = ptrace::getregs(child).expect("PTRACE_GETREGS").rsp;
        let back = ptrace::read(child, rsp as ptrace::AddressType).expect("PTRACE_PEEKDATA");
        if !self.text.contains(&(back as usize)) {
            return false;
        }
        let address = back as ptrace::AddressType;
        let code = ptrace::read(child, address).expect("PTRACE_PEEKTEXT");
        ptrace::write(child, address, code & !0xff | 0xcc).expect("PTRACE_POKETEXT");
        ptrace::cont(child, None).expect("PTRACE_CONT");
        match waitpid(child, None).expect("waitpid") {
            WaitStatus::Stopped(_, Signal::SIGTRAP) => {}
            status => panic!("a kfunc that is not counted ends with {status:?}"),
        }
        ptrace::write(child, address, code).expect("PTRACE_POKETEXT");
        let mut regs = ptrace::getregs(child).expect("PTRACE_GETREGS");
        regs.rip = back as u64;
        ptrace::setregs(child, regs).expect("PTRACE_SETREGS");
        true
    }

    #[cfg(not(target_arch = "x86_64"))]
    fn run_kfunc(&self, _child: Pid) -> bool {
        false
    }
}

/// Return the instruction pointer of the stopped child.
fn instruction(child: Pid) -> usize {
    let regs = ptrace::getregs(child).expect("PTRACE_GETREGS");
    #[cfg(target_arch = "x86_64")]
    return regs.rip as usize;
    #[cfg(target_arch = "aarch64")]
    return regs.pc as usize;
}

/// Exit after the callback, without flushing output that the child has inherited.
pub fn end_child() -> ! {
    // SAFETY: exits immediately.
    unsafe { libc::_exit(0) }
}

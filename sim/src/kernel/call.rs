// SPDX-License-Identifier: GPL-2.0-only
//! Calls of the BPF program's callbacks. Kfuncs find the simulated kernel with [`current`].

use std::cell::Cell;
use std::ffi::c_void;

use crate::costs::CALLBACK;
use crate::dsq::TaskId;
use crate::kernel::{Call, Curr, Kernel, Moment};
use crate::machine::Machine;
use crate::native::{sched_ext_ops, task_struct};
use crate::trace::{Op, Record};

thread_local! {
    static CURRENT: Cell<*mut Kernel> = const { Cell::new(std::ptr::null_mut()) };
}

/// Measures callbacks: their instructions (growth.rs), or the cache lines that they move (lines.rs).
pub trait Probe {
    /// Note the begin of a callback. Return true in a child process, which exits after the callback.
    fn called(&mut self, op: Op, task: Option<TaskId>, arg: u64) -> bool;

    /// Note that the program loads or stores.
    fn accessed(&mut self, _machine: &Machine, _cpu: usize, _addr: usize, _store: bool) {}
}

/// Exit after the callback, without flushing output that the child has inherited.
pub fn end_child() -> ! {
    // SAFETY: exits immediately.
    unsafe { libc::_exit(0) }
}

/// Return the kernel whose callback runs.
///
/// # Safety
/// Call it only from a kfunc, inside [`Kernel::call`]. The reference must not outlive the kfunc.
pub unsafe fn current<'a>() -> &'a mut Kernel {
    // SAFETY: guaranteed by the caller.
    unsafe { try_current() }.expect("a kfunc was called outside of a callback")
}

/// Return the kernel whose callback runs; `None` outside of callbacks.
///
/// # Safety
/// As for [`current`].
pub unsafe fn try_current<'a>() -> Option<&'a mut Kernel> {
    // SAFETY: call() set it, holds the kernel exclusively, and does not touch it until the callback returns.
    unsafe { CURRENT.get().as_mut() }
}

impl Kernel {
    /// Call a callback on the executing CPU. The trace records `task` and `arg`.
    pub fn call<R>(&mut self, op: Op, task: Option<TaskId>, arg: u64, callback: impl FnOnce(&sched_ext_ops) -> R) -> R {
        let cpu = self.cpu;
        self.cost += CALLBACK;
        self.trace.record(Record { at: self.now + self.cost, cpu, task, op, arg });
        let call = Call { op, cpu, task, nr_tasks: 0, rounds: 0, checks: 0, checks_back: 0 };
        let outer = self.call.replace(call);
        let disables = self.quirks.prolog_disables_migration;
        let curr = self.curr_raw(cpu);
        // SAFETY: tasks outlive the call.
        unsafe { (*curr).migration_disabled += u16::from(disables) };
        let ops = self.ops;
        let before = CURRENT.replace(self);
        if self.probe.as_ref().is_some_and(|probe| probe.borrow_mut().called(op, task, arg)) {
            callback(&ops);
            end_child();
        }
        let ret = callback(&ops);
        CURRENT.set(before);
        // SAFETY: as above.
        unsafe { (*curr).migration_disabled -= u16::from(disables) };
        self.tell(Moment::Called);
        self.call = outer;
        ret
    }

    /// Run one of the programs for the loader.
    pub(super) fn run_program(&mut self, program: unsafe extern "C" fn(*mut c_void) -> i32) {
        // SAFETY: the program ignores its argument.
        self.in_program(|| assert_eq!(unsafe { program(std::ptr::null_mut()) }, 0));
    }

    pub(super) fn in_program(&mut self, run: impl FnOnce()) {
        let before = CURRENT.replace(self);
        run();
        CURRENT.set(before);
    }

    /// Return the result of bpf_get_current_task_btf() on a CPU.
    pub fn curr_raw(&mut self, id: usize) -> *mut task_struct {
        let cpu = &mut self.cpus[id];
        match cpu.curr {
            Curr::Idle => &mut *cpu.idle_task,
            Curr::HigherClass => &mut *cpu.higher_class_task,
            Curr::Task(task) => self.tasks[task].raw,
        }
    }
}

// SPDX-License-Identifier: GPL-2.0-only
//! The program, loaded on a machine where nothing happens but what a test does.
//!
//! ```text
//! let mut rig = Rig::new("1x1x4x2", &[]);         all CPUs idle, no task waits, CPU 0 executes
//! rig.call(rig.u.mark_busy, (3, rig.cctx(3)))     a C function and its arguments
//! rig.cpu(3, |cctx| cctx.vtime = 5)              the program's own state
//! ```

use std::collections::BTreeSet;

use magpie_sim::dsq::{TaskId, pinned_queue};
use magpie_sim::kernel::{Curr, Kernel};
use magpie_sim::mask::Mask;
use magpie_sim::native::{Context, SCX_ENQ_WAKEUP, SCX_WAKE_TTWU, WEIGHT_SHIFT, task_ctx, task_struct, units};
use magpie_sim::task::{NICE_WEIGHTS, State, Traits};
use magpie_sim::trace::Op;
use proptest::prelude::*;
use scx_magpie::bpf_intf::{cpu_ctx, magpie_stat};

pub fn nice_weight() -> impl Strategy<Value = u32> {
    prop_oneof![Just(1024), prop::sample::select(&NICE_WEIGHTS)]
}

pub struct Rig {
    pub kernel: Kernel,
    /// The C functions.
    pub u: &'static units,
}

/// A C function, and its arguments as a tuple.
pub trait Function {
    type Args;
    type Ret;
    fn call(self, args: Self::Args) -> Self::Ret;
}

macro_rules! function {
    ($($arg:ident: $type:ident),*) => {
        impl<R, $($type),*> Function for Option<unsafe extern "C" fn($($type),*) -> R> {
            type Args = ($($type,)*);
            type Ret = R;
            fn call(self, ($($arg,)*): Self::Args) -> R {
                // SAFETY: pointers among the arguments come from the rig.
                unsafe { self.unwrap()($($arg),*) }
            }
        }
    };
}
function!();
function!(a: A);
function!(a: A, b: B);
function!(a: A, b: B, c: C);
function!(a: A, b: B, c: C, d: D);
function!(a: A, b: B, c: C, d: D, e: E);

impl Rig {
    /// On a machine as [`Shape`](magpie_sim::machine::Shape) describes it, with the scheduler's flags.
    pub fn new(machine: &str, flags: &[&str]) -> Self {
        // An even seed: the BPF prolog does not count in migration_disabled.
        let kernel = Kernel::new(&machine.parse().unwrap(), &flags.join(" "), 0).unwrap();
        Self { u: kernel.native.units(), kernel }
    }

    /// As if only these CPUs had been online when the program was loaded.
    pub fn with_online(machine: &str, online: impl IntoIterator<Item = usize>) -> Self {
        let mut rig = Self::new(machine, &[]);
        rig.kernel.online = online.into_iter().collect();
        rig.kernel.attach().unwrap();
        rig
    }

    /// Calls a C function on the executing CPU (`kernel.cpu`), as from its dispatch(). Nothing may go wrong.
    pub fn call<F: Function>(&mut self, function: F, args: F::Args) -> F::Ret {
        let ret = self.kernel.call(Op::Dispatch, None, 0, |_| function.call(args));
        assert_eq!(self.kernel.violation, None);
        ret
    }

    pub fn nr_cpus(&self) -> usize {
        self.kernel.machine.nr_cpus()
    }

    pub fn cctx(&self, cpu: usize) -> *mut cpu_ctx {
        self.kernel.native.shared().cpu_ctxs[cpu].get()
    }

    /// Reads or writes what the program keeps of a CPU.
    pub fn cpu<R>(&mut self, cpu: usize, look: impl FnOnce(&mut cpu_ctx) -> R) -> R {
        // SAFETY: the program does not run.
        look(unsafe { &mut *self.cctx(cpu) })
    }

    pub fn stat(&self, stat: magpie_stat) -> u64 {
        (0..self.nr_cpus()).map(|cpu| self.kernel.native.cpu_ctx(cpu).stats[stat as usize]).sum()
    }

    /// All CPUs but these are busy.
    pub fn only_idle(&mut self, idle: &[usize]) {
        for cpu in self.kernel.online.iter().collect::<Vec<_>>() {
            if idle.contains(&cpu) {
                self.call(self.u.mark_idle, (cpu as i32, self.cctx(cpu)));
            } else {
                self.call(self.u.mark_busy, (cpu as i32, self.cctx(cpu)));
            }
        }
    }

    /// CPUs whose bit is set in idle_map.
    pub fn idle(&self) -> BTreeSet<usize> {
        let native = &self.kernel.native;
        (0..self.nr_cpus()).filter(|&cpu| native.slot(cpu).is_some_and(|slot| native.is_idle_bit(slot))).collect()
    }

    /// CPUs whose bit is set in overload_map.
    pub fn overloaded(&self) -> BTreeSet<usize> {
        let native = &self.kernel.native;
        (0..self.nr_cpus()).filter(|&cpu| native.slot(cpu).is_some_and(|slot| native.is_overload_bit(slot))).collect()
    }

    /// A task that may use these CPUs, which sleeps on the first of them.
    pub fn task_on(&mut self, cpus: impl IntoIterator<Item = usize>) -> TaskId {
        let allowed: Mask = cpus.into_iter().collect();
        let cpu = allowed.iter().next().unwrap();
        self.kernel.spawn(0, Traits { allowed, ..Traits::default() }, cpu)
    }

    /// A task that may use all CPUs.
    pub fn task(&mut self) -> TaskId {
        self.task_on(0..self.nr_cpus())
    }

    pub fn raw(&self, task: TaskId) -> *mut task_struct {
        self.kernel.tasks[task].raw
    }

    /// Of a nice value. Outside of groups it counts at once.
    pub fn set_weight(&mut self, task: TaskId, weight: u32) {
        let nth = NICE_WEIGHTS.iter().position(|&of_nice| of_nice == weight).expect("no nice value has this weight");
        self.kernel.tasks[task].raw_mut().static_prio = 100 + nth as i32;
        self.remembered(task, |tctx| {
            if tctx.group == 0 {
                tctx.share = weight << WEIGHT_SHIFT;
            }
        });
    }

    pub fn tctx(&self, task: TaskId) -> *mut task_ctx {
        let (_, storage) = &self.kernel.tasks[task].storage[0];
        storage.as_ptr().cast_mut().cast()
    }

    /// Reads or writes what the program keeps of a task.
    pub fn remembered<R>(&mut self, task: TaskId, look: impl FnOnce(&mut task_ctx) -> R) -> R {
        // SAFETY: the program does not run; the storage is large enough for its type.
        look(unsafe { &mut *self.tctx(task) })
    }

    /// The task runs on the CPU, as far as the kernel is concerned.
    pub fn run(&mut self, task: TaskId, cpu: usize) {
        self.kernel.tasks[task].cpu = cpu;
        self.kernel.tasks[task].state = State::Running;
        self.kernel.tasks[task].raw_mut().se.exec_start = self.kernel.now;
        self.kernel.cpus[cpu].curr = Curr::Task(task);
    }

    /// The same, and the program has taken note.
    pub fn run_noted(&mut self, task: TaskId, cpu: usize) {
        self.run(task, cpu);
        self.kernel.tasks[task].set_queued(true);
        self.set_deadline(task, cpu);
        let slice = self.kernel.tasks[task].raw().scx.slice;
        self.call(self.u.begin_run, (self.raw(task), self.tctx(task), self.cctx(cpu), slice));
    }

    /// Computes the deadline of the task, which is on the virtual time of the CPU. Returns it.
    pub fn set_deadline(&mut self, task: TaskId, cpu: usize) -> u64 {
        self.call(self.u.set_deadline, (self.raw(task), self.tctx(task), self.cctx(cpu)));
        self.remembered(task, |tctx| tctx.deadline)
    }

    /// running() of the task on the CPU.
    pub fn running(&mut self, task: TaskId, cpu: usize) {
        self.run(task, cpu);
        self.kernel.cpu = cpu;
        let raw = self.raw(task);
        // SAFETY: as the kernel calls it.
        self.kernel.call(Op::Running, Some(task), 0, |ops| unsafe { ops.running.unwrap()(raw) });
        assert_eq!(self.kernel.violation, None);
    }

    /// stopping() of the task, which goes on waiting if `runnable`.
    pub fn stopping(&mut self, task: TaskId, runnable: bool) {
        let raw = self.raw(task);
        // SAFETY: as the kernel calls it.
        self.kernel.call(Op::Stopping, Some(task), 0, |ops| unsafe { ops.stopping.unwrap()(raw, runnable) });
    }

    /// enqueue() of the task, which a timer wakes on the CPU, and for which select_cpu() found no idle one.
    pub fn wake(&mut self, task: TaskId, cpu: usize) {
        self.kernel.cpu = cpu;
        self.kernel.tasks[task].cpu = cpu;
        if self.kernel.tasks[task].raw().nr_cpus_allowed > 1 {
            self.call(self.u.begin_burst, (self.raw(task), self.tctx(task), SCX_WAKE_TTWU));
        }
        self.kernel.native.context(Context::HardInterrupt);
        self.kernel.activate(task, cpu, SCX_ENQ_WAKEUP);
        self.kernel.native.context(Context::Syscall);
        assert_eq!(self.kernel.violation, None);
    }

    /// dispatch() of the CPU, after `prev`. Returns what it has in its local DSQ then.
    pub fn dispatch(&mut self, cpu: usize, prev: Option<TaskId>) -> Vec<TaskId> {
        self.kernel.cpu = cpu;
        let raw = prev.map_or(std::ptr::null_mut(), |task| self.raw(task));
        // SAFETY: as the kernel calls it.
        self.kernel.call(Op::Dispatch, prev, 0, |ops| unsafe { ops.dispatch.unwrap()(cpu as i32, raw) });
        assert_eq!(self.kernel.violation, None);
        self.local(cpu)
    }

    /// The CPU enters the idle loop.
    pub fn go_idle(&mut self, cpu: usize) {
        self.kernel.cpu = cpu;
        // SAFETY: as the kernel calls it.
        self.kernel.call(Op::UpdateIdle, None, cpu as u64, |ops| unsafe { ops.update_idle.unwrap()(cpu as i32, true) });
        assert_eq!(self.kernel.violation, None);
    }

    /// A timer tick while the task runs.
    pub fn tick(&mut self, task: TaskId) {
        let raw = self.raw(task);
        // SAFETY: as the kernel calls it.
        self.kernel.call(Op::Tick, Some(task), 0, |ops| unsafe { ops.tick.unwrap()(raw) });
    }

    /// Puts the task into a queue of the CPU, behind those with an earlier deadline, as enqueue() does.
    pub fn queue(&mut self, task: TaskId, cpu: usize, deadline: u64) {
        self.kernel.tasks[task].cpu = cpu;
        self.kernel.tasks[task].state = State::Runnable;
        self.kernel.cpus[cpu].nr_running += 1;
        let now = self.kernel.now;
        let queue = self.call(self.u.queue_add, (self.raw(task), self.tctx(task), cpu as i32, self.cctx(cpu), now));
        self.kernel.insert(task, queue, Some(deadline), 0);
        if queue == cpu as u64 {
            self.call(self.u.mark_overloaded, (cpu as i32,));
        }
    }

    /// Insert a task into a CPU's local DSQ behind current, as enqueue() does.
    pub fn queue_local(&mut self, task: TaskId, cpu: usize) {
        self.call(self.u.local_add, (self.tctx(task), cpu as i32, self.cctx(cpu), 1));
        self.kernel.cpus[cpu].local.push_back(task);
    }

    /// The tasks in a CPU's local DSQ.
    pub fn local(&self, cpu: usize) -> Vec<TaskId> {
        self.kernel.cpus[cpu].local.iter().collect()
    }

    /// The tasks in a CPU's queues, those that may migrate first.
    pub fn waiting(&self, cpu: usize) -> Vec<TaskId> {
        let queues = [cpu, pinned_queue(cpu)];
        queues.iter().flat_map(|&queue| self.kernel.dsqs[queue].as_ref().unwrap().iter()).collect()
    }

    /// The first timer that is set fires. Returns when, and the CPUs that it kicks.
    pub fn fire_timer(&mut self) -> (u64, Vec<usize>) {
        let mut timers = self.kernel.timers.iter().enumerate();
        let (index, due) = timers.find_map(|(index, timer)| timer.due.map(|due| (index, due))).expect("a timer is set");
        self.kernel.now = due;
        self.kernel.bpf_timer(index, due);
        (due, self.kicked())
    }

    /// The CPUs that were kicked since the last call.
    pub fn kicked(&mut self) -> Vec<usize> {
        self.kernel.kicks.drain(..).map(|(cpu, _)| cpu).collect()
    }
}

// SPDX-License-Identifier: GPL-2.0-only
//! The simulated kernel: its state, its events, and the calls of the BPF program's callbacks.
//!
//! ```text
//! event (what happens when, on which CPU)           handler                    callbacks, in the kernel's order
//!   Timer, RemoteWake --------------------------->  wakeup.rs  --------------> select_cpu, enqueue
//!   Step: the running task's work is done ------->  exec.rs    --------------> (wakes others, sleeps, forks, yields)
//!   Tick, Resched ------------------------------->  sched.rs   --------------> tick, dispatch, stopping, update_idle, running
//!   Fault: affinity, nice, real-time, hotplug --->  faults.rs  --------------> as the kernel's own handling of each
//!                                                   kfuncs.rs <--------------- what the callbacks ask of the kernel
//! ```
//!
//! An event runs to its end before the next: what overlaps on a real machine is a matter of order here, and chance
//! (the seed) decides it. Its handler adds up what its work costs, and the CPU is busy for so long.

use std::cell::Cell;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap};
use std::time::Duration;

use anyhow::Result;
use scx_magpie::bpf_intf::process;
use scx_magpie::cli::Tunables;
use scx_magpie::nr_scan::ScanLimit;
use scx_magpie::publisher::Publisher;
use scx_magpie::rodata::Rodata;
use scx_magpie::stats::Snapshot;
use scx_magpie::topology::Layout;

use crate::cache::Line;
use crate::cgroup::Cgroup;
use crate::checks::{Checks, Violation};
use crate::costs::{CALLBACK, IDLE_EXIT, SMT_SPEED, TICK};
use crate::dsq::{Dsq, MAX_DSQS, TaskId};
use crate::faults::Fault;
use crate::instructions::{Counter, end_child};
use crate::machine::Machine;
use crate::mask::Mask;
use crate::native::{NR_MAP_LINES, Native, PF_IDLE, cpumask, sched_ext_ops, task_struct};
use crate::program::{Channel, Program};
use crate::report::GroupStats;
use crate::task::{Place, State, Task, Traits};
use crate::timers::{Array, Timer};
use crate::trace::{Op, Record, Trace};

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Event {
    /// The running task has done its step's work; stale if the CPU's `armed` has moved on.
    Step {
        cpu: usize,
        armed: u64,
    },
    Resched(usize),
    Tick(usize),
    Timer(TaskId),
    RemoteWake {
        task: TaskId,
        cpu: usize,
    },
    /// By index among the faults.
    Fault(usize),
    HigherClassEnds(usize),
    /// By index among the timers; stale if that is not due then.
    BpfTimer {
        index: usize,
        due: u64,
    },
    /// What scx_bpf_reenqueue_local() has put off.
    Reenqueue(usize),
    /// The loader starts anew after a CPU came or went.
    Restart,
    Check,
}

/// Who has a CPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Curr {
    Idle,
    Task(TaskId),
    /// A task of a real-time or stop class.
    HigherClass,
}

pub struct Cpu {
    pub curr: Curr,
    pub need_resched: bool,
    /// Its events wait until then: it is in the kernel.
    pub busy_until: u64,
    /// Counts changes of `curr`, and of when its step will end: only the last Step event counts.
    pub armed: u64,
    /// The running task's CPU time, and its work, are accounted up to then.
    pub exec_start: u64,
    pub run_from: u64,
    /// Work per 1024 ns.
    pub speed: u64,
    pub tick_armed: bool,
    pub local: Dsq,
    /// Runnable tasks of ours whose task_cpu() it is, the running one included.
    pub nr_running: usize,
    /// ops.cpu_release() was called, and the CPU has not come back.
    pub released: bool,
    pub higher_class_ns: u64,
    /// Task that a stopper, which runs as a higher class, moves away when it is done.
    pub push_away: Option<TaskId>,
    pub idle_since: u64,
    pub idle_ns: u64,
    /// When somebody else unlocked its runqueue without telling (rq_unpin_lock()) that its clock is not valid any more.
    pub clock_left_at: Option<u64>,
    pub idle_task: Box<task_struct>,
    pub higher_class_task: Box<task_struct>,
    /// Its runqueue and DSQ, locks included.
    pub line: Line,
}

/// The callback that runs.
#[derive(Clone, Copy, Debug)]
pub struct Call {
    pub op: Op,
    pub cpu: usize,
    pub task: Option<TaskId>,
    /// Tasks that came to the local DSQ of `cpu`.
    pub nr_tasks: u32,
    /// Rounds of loops.
    pub rounds: u32,
    /// Most tasks that one iterator gave.
    pub looks: u32,
}

/// In what kernels differ, as far as the program can tell.
#[derive(Clone, Copy, Debug, Default)]
pub struct Quirks {
    /// The BPF prolog counts migrate_disable() in the current task.
    pub prolog_disables_migration: bool,
    /// scx_bpf_reenqueue_local() has it done by an interrupt to come, when the CPU has turned to the higher class: from
    /// 6.19 on. Before, it is done in cpu_release(), when the task that goes is still the current one.
    pub defers_reenqueue: bool,
    /// A CPU that tries to move a task from another runqueue, in vain, lets go of its lock meanwhile; and then somebody claims
    /// it, whose kick comes to nothing, for schedule() forgets it at its end. Unit tests only: here nothing comes between.
    pub claimed_while_stealing: bool,
}

impl Quirks {
    fn of_seed(seed: u64) -> Self {
        Self { prolog_disables_migration: seed & 1 != 0, defers_reenqueue: seed & 2 != 0, ..Self::default() }
    }
}

pub struct Kernel {
    pub machine: Machine,
    pub native: Native,
    pub ops: sched_ext_ops,
    pub tunables: Tunables,
    pub layout: Layout,
    publisher: Publisher,
    pub now: u64,
    /// CPU whose event is handled, and ns that the handling has taken so far.
    pub cpu: usize,
    pub cost: u64,
    pub call: Option<Call>,
    pub rng: fastrand::Rng,
    events: BinaryHeap<Reverse<(u64, u64, Event)>>,
    nr_pushed: u64,
    pub nr_events: u64,
    pub cpus: Vec<Cpu>,
    pub online: Mask,
    pub online_c: Box<cpumask>,
    pub last_any: usize,
    pub tasks: Vec<Task>,
    /// By id; see `dsq.rs`.
    pub dsqs: Vec<Option<Dsq>>,
    pub programs: Vec<Program>,
    pub channels: Vec<Channel>,
    pub groups: Vec<GroupStats>,
    /// The root first, parents before their children.
    pub cgroups: Vec<Cgroup>,
    /// The program's arrays, and timers in them.
    pub arrays: Vec<Array>,
    /// Its hashes: by map and key.
    pub hashes: BTreeMap<(usize, u64), Box<[u64]>>,
    pub timers: Vec<Timer>,
    /// What was counted before the time from which on there is a report.
    pub warm_up: Snapshot,
    pub measured_from: u64,
    pub faults: Vec<(u64, Fault)>,
    /// Lines of the BPF program's bitmaps.
    pub map_lines: Vec<Line>,
    pub kicks: Vec<(usize, u64)>,
    pub quirks: Quirks,
    pub checks: Checks,
    /// Counts the instructions of some callbacks.
    pub counter: Option<Counter>,
    pub trace: Trace,
    pub violation: Option<Violation>,
    /// What the program said by scx_bpf_dump().
    pub dump: Vec<String>,
}

thread_local! {
    static CURRENT: Cell<*mut Kernel> = const { Cell::new(std::ptr::null_mut()) };
}

/// The kernel whose callback runs.
///
/// # Safety
/// Only from a kfunc, which a callback calls, which [`Kernel::call`] calls; and the reference must not outlive it.
pub unsafe fn current<'a>() -> &'a mut Kernel {
    let kernel = CURRENT.get();
    assert!(!kernel.is_null(), "a kfunc was called outside of a callback");
    // SAFETY: call() set it, holds the kernel exclusively, and does not touch it until the callback returns.
    unsafe { &mut *kernel }
}

impl Kernel {
    pub fn new(machine: Machine, tunables: &Tunables, seed: u64) -> Result<Self> {
        let nr_cpus = machine.nr_cpus();
        let online: BTreeSet<_> = (0..nr_cpus).collect();
        let layout = machine.layout(&online)?;
        let native = Native::acquire();
        let cpus = (0..nr_cpus)
            .map(|_| Cpu {
                curr: Curr::Idle,
                need_resched: false,
                busy_until: 0,
                armed: 0,
                exec_start: 0,
                run_from: 0,
                speed: 1024,
                tick_armed: false,
                local: Dsq::default(),
                nr_running: 0,
                released: false,
                higher_class_ns: 0,
                push_away: None,
                idle_since: 0,
                idle_ns: 0,
                clock_left_at: None,
                idle_task: Box::new(task_struct { flags: PF_IDLE, ..Default::default() }),
                higher_class_task: Box::new(task_struct { pid: 1, tgid: 1, ..Default::default() }),
                line: Line::default(),
            })
            .collect();
        let mut kernel = Self {
            ops: native.ops(),
            native,
            tunables: tunables.clone(),
            publisher: Publisher::new(layout.clone(), ScanLimit::from(tunables)),
            layout,
            // Not 0, which the program takes for never.
            now: TICK,
            cpu: 0,
            cost: 0,
            call: None,
            rng: fastrand::Rng::with_seed(seed),
            events: BinaryHeap::new(),
            nr_pushed: 0,
            nr_events: 0,
            cpus,
            online: Mask::first(nr_cpus),
            online_c: Box::new(Mask::first(nr_cpus).to_c()),
            last_any: 0,
            tasks: Vec::new(),
            dsqs: Vec::new(),
            programs: Vec::new(),
            channels: Vec::new(),
            groups: Vec::new(),
            cgroups: vec![Cgroup::root()],
            arrays: Vec::new(),
            hashes: BTreeMap::new(),
            timers: Vec::new(),
            warm_up: Snapshot::default(),
            measured_from: 0,
            faults: Vec::new(),
            map_lines: vec![Line::default(); NR_MAP_LINES],
            kicks: Vec::new(),
            quirks: Quirks::of_seed(seed),
            checks: Checks::new(nr_cpus, TICK),
            counter: None,
            trace: Trace::default(),
            violation: None,
            dump: Vec::new(),
            machine,
        };
        kernel.attach()?;
        Ok(kernel)
    }

    /// Loads the program for the CPUs that are online, and runs init() and init_task().
    pub fn attach(&mut self) -> Result<()> {
        let online: BTreeSet<_> = self.online.iter().collect();
        self.layout = self.machine.layout(&online)?;
        self.publisher = Publisher::new(self.layout.clone(), ScanLimit::from(&self.tunables));
        self.native.load(&Rodata::new(&self.layout, &self.tunables, self.machine.nr_cpus()));
        self.ops = self.native.ops();
        self.dsqs = vec![None; MAX_DSQS];
        self.arrays.clear();
        self.hashes.clear();
        self.timers.clear();
        self.checks_attached();
        let err = self.call(Op::Init, None, 0, |ops| unsafe { ops.init.unwrap()() });
        if err != 0 {
            self.violate("init", format!("init() returned {err}"));
        }
        self.in_program(|native| native.register_loader());
        self.publish();
        for id in 0..self.cgroups.len() {
            if self.cgroups[id].alive {
                self.init_cgroup(id);
            }
        }
        for task in 0..self.tasks.len() {
            if self.tasks[task].is_alive() {
                self.init_task(task, false);
            }
        }
        Ok(())
    }

    /// A task that sleeps, and whose program [`Kernel::start`] starts.
    pub fn spawn(&mut self, program: usize, traits: Traits, cpu: usize) -> TaskId {
        let task = self.tasks.len();
        self.tasks.push(Task::new(task, program, traits, cpu, self.now));
        self.init_task(task, true);
        task
    }

    /// The task wakes for the first time, at `at`.
    pub fn start(&mut self, task: TaskId, at: u64) {
        self.push(at, Event::Timer(task));
    }

    fn init_task(&mut self, task: TaskId, fork: bool) {
        self.tasks[task].storage.clear();
        let raw = self.tasks[task].raw;
        let mut args =
            crate::native::scx_init_task_args { fork, cgroup: &raw mut *self.cgroups[self.tasks[task].cgroup].raw };
        let err = self.call(Op::InitTask, Some(task), 0, |ops| unsafe { ops.init_task.unwrap()(raw, &mut args) });
        if err != 0 {
            self.violate("init", format!("init_task() returned {err}"));
        }
    }

    pub fn push(&mut self, at: u64, event: Event) {
        self.nr_pushed += 1;
        // Interrupts that waited for the CPU come before what its task does next, or a task of many system calls would
        // keep them out.
        let order = self.nr_pushed | u64::from(matches!(event, Event::Step { .. })) << 63;
        self.events.push(Reverse((at.max(self.now), order, event)));
    }

    /// Handles events up to `until`, or until an invariant does not hold.
    pub fn run_until(&mut self, until: u64) {
        while self.violation.is_none() {
            match self.events.peek() {
                Some(&Reverse((at, ..))) if at <= until => {}
                _ => break,
            }
            let Some(Reverse((at, _, event))) = self.events.pop() else { break };
            debug_assert!(at >= self.now);
            self.now = at;
            self.handle(event);
        }
        self.now = self.now.max(until);
    }

    fn handle(&mut self, event: Event) {
        let cpu = match event {
            Event::Step { cpu, armed } => {
                if self.cpus[cpu].armed != armed {
                    return;
                }
                cpu
            }
            Event::Resched(cpu) | Event::Tick(cpu) | Event::Reenqueue(cpu) => cpu,
            Event::RemoteWake { cpu, .. } | Event::HigherClassEnds(cpu) => cpu,
            Event::Timer(task) => self.timer_cpu(task),
            Event::Fault(_) | Event::Restart | Event::BpfTimer { .. } => self.boot_cpu(),
            Event::Check => return self.check(),
        };
        if self.cpus[cpu].busy_until > self.now {
            return self.push(self.cpus[cpu].busy_until, event);
        }
        self.nr_events += 1;
        self.enter(cpu);
        match event {
            Event::Step { .. } => self.step(cpu),
            Event::Resched(_) => {}
            Event::Tick(_) => self.tick(cpu),
            Event::Timer(task) => self.timer(task),
            Event::RemoteWake { task, .. } => self.remote_wake(task, cpu),
            Event::Fault(index) => self.fault(index),
            Event::HigherClassEnds(_) => self.higher_class_ends(cpu),
            Event::Reenqueue(_) => _ = self.reenqueue(cpu),
            Event::Restart => self.restart(),
            Event::BpfTimer { index, due } => self.bpf_timer(index, due),
            Event::Check => {}
        }
        self.leave(cpu);
    }

    /// The CPU enters the kernel.
    pub fn enter(&mut self, cpu: usize) {
        self.cpu = cpu;
        self.cost = if self.cpus[cpu].curr == Curr::Idle { IDLE_EXIT } else { 0 };
        self.account(cpu);
    }

    /// It goes back to what it does, or on to what it is told to do.
    fn leave(&mut self, cpu: usize) {
        self.deliver_kicks();
        let mut rounds = 0;
        // Each task, be it stolen, may be of a group that is throttled: sent off as soon as it runs, and then another look.
        let max = 16 + 2 * self.tasks.len();
        while self.cpus[cpu].need_resched && self.online.test(cpu) {
            self.schedule(cpu);
            self.deliver_kicks();
            rounds += 1;
            if rounds > max {
                self.violate("livelock", format!("CPU {cpu} is told to reschedule again and again"));
                break;
            }
        }
        let until = self.now + self.cost;
        self.cpus[cpu].busy_until = until;
        self.cpus[cpu].run_from = until;
    }

    /// Work done by the running task since the last look.
    pub fn account(&mut self, id: usize) {
        let cpu = &mut self.cpus[id];
        if let Curr::Task(task) = cpu.curr
            && let Some(until) = self.tasks[task].spin_until
        {
            // Done when it is time, however fast the CPU is.
            self.tasks[task].remaining = until.saturating_sub(self.now);
            cpu.run_from = cpu.run_from.max(self.now);
        } else if let Curr::Task(task) = cpu.curr
            && self.now > cpu.run_from
        {
            let done = (self.now - cpu.run_from) * cpu.speed / 1024;
            let left = &mut self.tasks[task].remaining;
            // Rounding down loses less than a unit of work each time, which must not keep a step from ending.
            *left = left.saturating_sub(done + 1);
            cpu.run_from = self.now;
        }
    }

    /// When the running task's work will be done.
    pub fn arm_step(&mut self, id: usize) {
        let cpu = &mut self.cpus[id];
        let Curr::Task(task) = cpu.curr else { return };
        cpu.armed += 1;
        let armed = cpu.armed;
        let from = (self.now + self.cost).max(cpu.run_from);
        let left = self.tasks[task].remaining * 1024 / cpu.speed;
        self.push(from + left, Event::Step { cpu: id, armed });
    }

    /// The CPU's core is shared or is no more: its CPUs change speed.
    pub fn set_speeds(&mut self, id: usize) {
        let siblings = self.machine.siblings(id);
        if siblings.len() == 1 {
            self.cpus[id].speed = self.machine.places[id].capacity;
            return;
        }
        let busy = siblings.clone().filter(|&cpu| self.cpus[cpu].curr != Curr::Idle).count() as u64;
        for cpu in siblings {
            let alone = self.machine.places[cpu].capacity;
            let speed = if busy > 1 { alone * SMT_SPEED * 2 / (100 * busy) } else { alone };
            if speed != self.cpus[cpu].speed {
                self.account(cpu);
                let faster = speed > self.cpus[cpu].speed;
                self.cpus[cpu].speed = speed;
                // When it is slower, the armed event comes too early and is armed again.
                if faster && cpu != id {
                    self.arm_step(cpu);
                }
            }
        }
    }

    /// A CPU for what has none of its own.
    pub fn boot_cpu(&self) -> usize {
        self.online.iter().next().unwrap_or(0)
    }

    fn timer_cpu(&self, task: TaskId) -> usize {
        let cpu = self.tasks[task].cpu;
        if self.online.test(cpu) { cpu } else { self.boot_cpu() }
    }

    /// Calls a callback on the executing CPU; `task` is the one it is about, `arg` what else it is told.
    pub fn call<R>(&mut self, op: Op, task: Option<TaskId>, arg: u64, callback: impl FnOnce(&sched_ext_ops) -> R) -> R {
        let cpu = self.cpu;
        self.cost += CALLBACK;
        self.trace.record(Record { at: self.now + self.cost, cpu, task, op, arg });
        let call = Call { op, cpu, task, nr_tasks: 0, rounds: 0, looks: 0 };
        let outer = self.call.replace(call);
        let disables = self.quirks.prolog_disables_migration;
        let curr = self.curr_raw(cpu);
        // SAFETY: tasks outlive the call.
        unsafe { (*curr).migration_disabled += u16::from(disables) };
        let ops = self.ops;
        let before = CURRENT.replace(self);
        if self.counter.as_mut().is_some_and(|counter| counter.in_child(op, task, arg)) {
            callback(&ops);
            end_child();
        }
        let ret = callback(&ops);
        CURRENT.set(before);
        // SAFETY: as above.
        unsafe { (*curr).migration_disabled -= u16::from(disables) };
        self.check_call();
        self.call = outer;
        ret
    }

    /// Runs one of the program's own entry points for user space.
    fn in_program(&mut self, run: impl FnOnce(&Native)) {
        let native: *const Native = &self.native;
        let before = CURRENT.replace(self);
        // SAFETY: nothing replaces self.native.
        run(unsafe { &*native });
        CURRENT.set(before);
    }

    /// Has the program note the lengths of its queues, for statistics.
    pub fn sample_queues(&mut self) {
        self.in_program(|native| native.sample_queues());
    }

    /// What bpf_get_current_task_btf() is on a CPU.
    pub fn curr_raw(&mut self, id: usize) -> *mut task_struct {
        let cpu = &mut self.cpus[id];
        match cpu.curr {
            Curr::Idle => &mut *cpu.idle_task,
            Curr::HigherClass => &mut *cpu.higher_class_task,
            Curr::Task(task) => self.tasks[task].raw,
        }
    }

    /// As the loader does each util_interval.
    pub fn publish(&mut self) {
        let shared = self.native.shared();
        self.publisher.publish(shared.cpu_ctxs, shared.llc_publisheds, Duration::from_nanos(self.now));
        self.publisher.publish_capacities(shared.capacities);
    }

    /// As the loader does when it has found the process's memory on a node, or (-1) on no one of them.
    pub fn set_memory(&mut self, tgid: i32, node: i32) {
        let process = process { looks: 0, node, pad: 0 };
        // SAFETY: plain words, as many.
        let words: [u64; size_of::<process>() / 8] = unsafe { std::mem::transmute(process) };
        self.hashes.insert((self.native.processes(), tgid as u64), words.into());
    }

    /// What CPUs can reach, for their frequency is clamped, as the loader takes note of it.
    pub fn set_reachable(&mut self, reachable: impl Fn(usize, usize) -> usize) {
        self.publisher.set_reachable(reachable);
        self.publish();
    }

    /// sum_util of each LLC of the layout.
    pub fn sum_util(&self) -> Vec<u32> {
        self.publisher.sum_util(self.native.shared().cpu_ctxs, Duration::from_nanos(self.now))
    }

    /// An invariant does not hold: the run ends.
    pub fn violate(&mut self, kind: &'static str, what: String) {
        if self.violation.is_none() {
            self.violation = Some(Violation { kind: kind.into(), at: self.now, what });
        }
    }

    /// Notes that a task, which is in no queue, is put in one.
    pub fn set_place(&mut self, task: TaskId, place: Place) {
        if self.tasks[task].place != Place::Nowhere && place != Place::Nowhere {
            let was = self.tasks[task].place;
            self.violate("two places", format!("task {task} is put in {place:?}, and is in {was:?}"));
        }
        self.tasks[task].place = place;
    }

    /// Takes a task out of the queue that it is in.
    pub fn take_out(&mut self, task: TaskId) {
        let found = match self.tasks[task].place {
            Place::Nowhere => true,
            Place::Local(cpu) => self.cpus[cpu].local.remove(task),
            Place::Dsq(id) => self.dsqs[id].as_mut().is_some_and(|dsq| dsq.remove(task)),
        };
        if !found {
            self.violate("lost", format!("task {task} is not in {:?}", self.tasks[task].place));
        }
        self.tasks[task].place = Place::Nowhere;
    }

    pub fn is_waiting(&self, task: TaskId) -> bool {
        self.tasks[task].state == State::Runnable
    }
}

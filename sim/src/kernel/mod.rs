// SPDX-License-Identifier: GPL-2.0-only
//! The simulated kernel: its state in this file, and its behavior in a file for each part.
//!
//! ```text
//! events.rs           moves to the CPU of the next event and handles it:
//!   exec.rs             Step: the running task's work is done; it wakes, sleeps, forks or yields
//!   faults.rs           Fault, FollowHotplug: affinity, nice, cgroups, real-time tasks, hotplug
//!     loader.rs           loads the program: init, init_task
//!       cgroups.rs          cgroup_init, cgroup_move ...
//!   sched.rs            Tick, Resched: tick, dispatch, stopping, running, update_idle
//!     change.rs           stopping, running; or dequeue and enqueue
//!   wakeup.rs           Timer, RemoteWake: select_cpu, enqueue
//!     queues.rs           insert into a DSQ, remove, move to the local one; locks
//!   timers.rs           BpfTimer
//!   work.rs             CPU time, and the end of a task's step
//!   cpufreq.rs          frequencies of CPUs
//!     turns.rs            two CPUs at the same time
//!     call.rs             every callback --> the BPF program --> kfuncs.rs: its calls of the kernel
//! ```
//!
//! - A file calls files below it only, except for kfuncs.rs, which the program calls. It imports
//!   this file, which imports only the data of observe.rs.
//! - An event runs to its end before the next, except under turns.rs. Operations that overlap on a
//!   real machine have an order here, which the seed decides. The CPU is busy for their costs.
//! - The kernel reports each [`Moment`] to its observer, `checks`, on which it does not depend.

/// Report a violation and return.
macro_rules! violate {
    ($kernel:ident, $kind:expr, $($what:tt)+) => {
        return $kernel.violate($kind, format!($($what)+))
    };
}
pub(crate) use violate;

/// Report a violation and return if a condition holds that must not.
macro_rules! fail_if {
    ($kernel:ident, $wrong:expr, $($what:tt)+) => {
        if $wrong {
            $crate::kernel::violate!($kernel, $($what)+);
        }
    };
}
pub(crate) use fail_if;

pub mod call;
mod cgroups;
mod change;
pub mod cpufreq;
mod events;
mod exec;
mod faults;
mod kfuncs;
mod loader;
mod observe;
mod queues;
mod sched;
mod timers;
pub mod turns;
mod wakeup;
mod work;

use std::cell::RefCell;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap, HashMap};
use std::rc::Rc;

use anyhow::Result;
use scx_magpie::nr_scan::ScanLimit;
use scx_magpie::publisher::Publisher;
use scx_magpie::stats::Snapshot;
use scx_magpie::topology::Layout;
use scx_magpie::tunables::Tunables;

use self::call::Probe;
use self::cpufreq::Freq;
pub use self::faults::Fault;
pub use self::observe::{FULL_MARGINS, Moment, Notes, Util, Violation};
use self::timers::Timer;
use self::turns::Turns;
use crate::cache::Line;
use crate::cgroup::{Cgroup, NR_AUTOGROUPS, autogroup};
use crate::costs::TICK;
use crate::dsq::{Dsq, TaskId};
use crate::machine::Machine;
use crate::mask::Mask;
use crate::native::{Native, PF_IDLE, sched_ext_ops, task_group, task_struct};
use crate::program::{Channel, Program};
use crate::stats::GroupStats;
use crate::task::{State, Task};
use crate::trace::{Op, Trace};

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Event {
    /// The running task has done its step's work. Stale if `armed` is not the CPU's.
    Step { cpu: usize, armed: u64 },
    /// The reschedule interrupt.
    Resched(usize),
    /// The timer interrupt.
    Tick(usize),
    /// A sleeping task's timer fires and wakes it.
    Timer(TaskId),
    /// A wakeup from another CPU arrives.
    RemoteWake { task: TaskId, cpu: usize },
    /// A fault, by index.
    Fault(usize),
    /// The task of the higher class has finished its work.
    HigherClassEnds(usize),
    /// A timer, by index. Stale if the timer is not due at `due`.
    BpfTimer { index: usize, due: u64 },
    /// The deferred work of scx_bpf_reenqueue_local().
    Reenqueue(usize),
    /// The loader handles hotplug.
    FollowHotplug,
    /// The observer checks invariants that hold at any time.
    Check,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Curr {
    #[default]
    Idle,
    Task(TaskId),
    /// A task of a real-time or stop class.
    HigherClass,
}

#[derive(Default)]
pub struct Cpu {
    pub curr: Curr,
    pub need_resched: bool,
    /// The CPU is in the kernel until this time. Its events wait.
    pub busy_until: u64,
    /// Counts changes of `curr` and of its step's end. Only the last Step event is valid.
    pub armed: u64,
    /// Work is accounted up to this time, CPU time up to the task's se.exec_start.
    pub run_from: u64,
    /// Work per 1024 ns.
    pub speed: u64,
    pub freq: Freq,
    pub tick_armed: bool,
    /// SCX_RQ_CAN_STOP_TICK: the task selected last has an infinite slice.
    pub can_stop_tick: bool,
    /// nohz_full: the tick is stopped while the CPU runs a task; a remote tick comes each second.
    pub tick_stopped: bool,
    pub ticked_at: u64,
    pub local: Dsq,
    pub nr_running: usize,
    /// A higher class has the CPU, and ops.cpu_release() was called.
    pub released: bool,
    pub higher_class_ns: u64,
    /// Task that a stopper moves to another CPU. The stopper runs as a higher class.
    pub push_away: Option<TaskId>,
    pub idle_since: u64,
    pub idle_ns: u64,
    /// When another CPU unlocked its runqueue and left the clock marked as valid (no rq_unpin_lock()).
    pub clock_left_at: Option<u64>,
    pub idle_task: Box<task_struct>,
    pub higher_class_task: Box<task_struct>,
    /// Cache line of the runqueue, the DSQ and their locks.
    pub line: Line,
}

#[derive(Clone, Copy, Debug)]
pub struct Call {
    pub op: Op,
    pub cpu: usize,
    pub task: Option<TaskId>,
    /// Tasks inserted into the local DSQ of `cpu`.
    pub nr_tasks: u32,
    pub rounds: u32,
    /// Tasks checked by its longest iteration, and by the longest one from the end of a queue.
    pub checks: u32,
    pub checks_back: u32,
}

/// Differences between kernels that the program can see.
#[derive(Clone, Copy, Debug, Default)]
pub struct Quirks {
    /// The BPF prolog counts migrate_disable() in the current task.
    pub prolog_disables_migration: bool,
    /// scx_bpf_reenqueue_local() works from anywhere, is deferred to an interrupt, and replaces
    /// ops.cpu_release(): from 6.19 on.
    pub reenqueues_from_anywhere: bool,
    /// A task that is preempted with migration disabled is bound to its CPU by a change of its
    /// affinity: from 6.19 on.
    pub binds_as_a_change: bool,
    /// The kernel enqueues tasks with SCX_ENQ_IMMED again if a higher class takes the CPU, or if
    /// the CPU is not free: from 7.1 on.
    pub puts_back: bool,
    /// A CPU that fails to move a task from another runqueue drops its lock meanwhile. Another CPU
    /// claims it then, and schedule() clears the kick. Unit tests only: events do not overlap.
    pub claimed_while_stealing: bool,
    /// A task is queued on this CPU at the next write to a bitmap. Unit tests only, as above.
    pub queued_at_store: Option<usize>,
}

impl Quirks {
    fn of_seed(seed: u64) -> Self {
        Self {
            prolog_disables_migration: seed & 1 != 0,
            reenqueues_from_anywhere: seed & 2 != 0,
            binds_as_a_change: seed & 2 != 0,
            puts_back: seed & 6 == 6,
            ..Self::default()
        }
    }
}

pub type Observer = fn(&mut Kernel, Moment);

type Values = BTreeMap<(usize, u64), Box<[u64]>>;

pub struct Kernel {
    pub machine: Machine,
    pub native: Native,
    pub ops: sched_ext_ops,
    pub tunables: Tunables,
    pub layout: Layout,
    publisher: Publisher,
    pub now: u64,
    /// The executing CPU, and the cost of its event so far in ns.
    pub cpu: usize,
    pub cost: u64,
    pub call: Option<Call>,
    pub rng: fastrand::Rng,
    events: BinaryHeap<Reverse<(u64, u64, Event)>>,
    nr_pushed: u64,
    pub nr_events: u64,
    pub cpus: Vec<Cpu>,
    pub online: Mask,
    pub possible: Mask,
    pub last_any: usize,
    pub tasks: Vec<Task>,
    longest_own_slice: u64,
    /// Indexed by id; see `dsq.rs`.
    pub dsqs: Vec<Option<Dsq>>,
    pub programs: Vec<Program>,
    pub channels: Vec<Channel>,
    pub groups: Vec<GroupStats>,
    /// The root is first, and parents precede their children.
    pub cgroups: Vec<Cgroup>,
    pub autogroups: Vec<Box<task_group>>,
    /// Values of the program's arrays and hashes, by map and key.
    pub arrays: Values,
    pub hashes: Values,
    pub timers: Vec<Timer>,
    pub timers_fail: bool,
    pub works_fail: bool,
    pub hashes_full: bool,
    /// The program's counters at the end of the warm-up, and the time of that.
    pub warm_up: Snapshot,
    pub measured_from: u64,
    pub faults: Vec<(u64, Fault)>,
    /// Cache lines of the BPF program that many CPUs use, by address.
    pub shared_lines: HashMap<usize, Line>,
    pub lines_moved: u64,
    pub kicks: Vec<(usize, u64)>,
    turns: Option<Turns>,
    pub quirks: Quirks,
    observer: Observer,
    pub checks: Notes,
    pub probe: Option<Rc<RefCell<dyn Probe>>>,
    pub trace: Trace,
    pub violation: Option<Violation>,
}

impl Kernel {
    pub fn bare(machine: Machine, tunables: &Tunables, seed: u64, observer: Observer) -> Result<Self> {
        let nr_cpus = machine.nr_cpus();
        let online: BTreeSet<_> = (0..nr_cpus).collect();
        let layout = machine.layout(&online)?;
        let native = Native::acquire();
        let cpus = (0..nr_cpus)
            .map(|_| Cpu {
                speed: 1024,
                idle_task: Box::new(task_struct { flags: PF_IDLE, prio: 120, ..Default::default() }),
                higher_class_task: Box::new(task_struct { pid: 1, tgid: 1, ..Default::default() }),
                ..Cpu::default()
            })
            .collect();
        Ok(Self {
            ops: native.ops(),
            native,
            tunables: tunables.clone(),
            longest_own_slice: 0,
            publisher: Publisher::new(layout.clone(), ScanLimit::from(tunables)),
            layout,
            // Not 0, because the program takes 0 for never.
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
            possible: Mask::first(nr_cpus),
            last_any: 0,
            tasks: Vec::new(),
            dsqs: Vec::new(),
            programs: Vec::new(),
            channels: Vec::new(),
            groups: Vec::new(),
            cgroups: vec![Cgroup::root()],
            autogroups: (0..NR_AUTOGROUPS).map(|_| autogroup()).collect(),
            arrays: Values::new(),
            hashes: Values::new(),
            timers: Vec::new(),
            timers_fail: false,
            works_fail: false,
            hashes_full: false,
            warm_up: Snapshot::default(),
            measured_from: 0,
            faults: Vec::new(),
            shared_lines: HashMap::new(),
            lines_moved: 0,
            kicks: Vec::new(),
            turns: None,
            quirks: Quirks::of_seed(seed),
            observer,
            checks: Notes::new(nr_cpus, TICK),
            probe: None,
            trace: Trace::default(),
            violation: None,
            machine,
        })
    }

    pub fn push(&mut self, at: u64, event: Event) {
        self.nr_pushed += 1;
        // Pending interrupts precede the next step, or a task's many system calls would delay them.
        let order = self.nr_pushed | u64::from(matches!(event, Event::Step { .. })) << 63;
        self.events.push(Reverse((at.max(self.now), order, event)));
    }

    /// Report a violation for an impossible CPU, as the kernel ejects the scheduler.
    pub fn check_possible(&mut self, cpu: usize) {
        fail_if!(self, !self.possible.test(cpu), "invalid", "CPU {cpu} is not possible");
    }

    /// Return the CPU for events that belong to none: the first that is online.
    pub fn boot_cpu(&self) -> usize {
        self.online.iter().next().unwrap_or(0)
    }

    fn tell(&mut self, moment: Moment) {
        (self.observer)(self, moment);
    }

    pub fn violate(&mut self, kind: &'static str, what: String) {
        if self.violation.is_none() {
            self.violation = Some(Violation { kind: kind.into(), at: self.now, what });
        }
    }

    pub fn is_waiting(&self, task: TaskId) -> bool {
        self.tasks[task].state == State::Runnable
    }
}

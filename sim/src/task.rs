// SPDX-License-Identifier: GPL-2.0-only
//! A simulated task: the kernel's state of it, and its position in its program.

use std::ffi::c_void;

use crate::cgroup::{CgroupId, IDLE_POLICY_WEIGHT};
use crate::dsq::TaskId;
use crate::mask::Mask;
use crate::native::{PF_KTHREAD, scx_public_consts_SCX_TASK_QUEUED, task_ctx, task_struct, uclamp_id_UCLAMP_MAX};
use crate::program::ProgramId;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    Sleeping,
    /// select_cpu() has returned, and the wakeup is on its way to the CPU.
    Waking,
    /// Waits for a CPU in the queue `place`.
    Runnable,
    Running,
    Dead,
}

/// The queue of a runnable task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    Nowhere,
    Local(usize),
    Dsq(usize),
}

/// A direct dispatch that takes effect when the callback returns.
#[derive(Clone, Copy, Debug)]
pub struct Insert {
    pub dsq_id: u64,
    pub vtime: Option<u64>,
    pub enq_flags: u64,
}

/// The kernel's sched_prio_to_weight, from nice -20 to 19.
pub const NICE_WEIGHTS: [u32; 40] = [
    88761, 71755, 56483, 46273, 36291, 29154, 23254, 18705, 14949, 11916, 9548, 7620, 6100, 4904, 3906, 3121, 2501,
    1991, 1586, 1277, 1024, 820, 655, 526, 423, 335, 272, 215, 172, 137, 110, 87, 70, 56, 45, 36, 29, 23, 18, 15,
];

#[derive(Clone, Debug, Default)]
pub struct Traits {
    pub allowed: Mask,
    pub nice: i32,
    pub policy: u32,
    /// sched_attr.sched_runtime: a slice of its own, ns; 0: none.
    pub own_slice: u64,
    pub kthread: bool,
    pub loader: bool,
    pub cgroup: CgroupId,
    /// Number of cache lines that the task misses on another CPU.
    pub working_set: u64,
    /// Additional time for its work away from its first node, where its memory remains, %.
    pub remote_memory_pct: u64,
}

impl Traits {
    pub fn static_prio(&self) -> i32 {
        120 + self.nice
    }
}

pub const SCHED_NORMAL: u32 = 0;
pub const SCHED_BATCH: u32 = 3;
pub const SCHED_IDLE: u32 = 5;

pub const LOADER_TGID: i32 = 2;

/// Callback of a task work: the map, the key and the value that contains it.
pub type Work = unsafe extern "C" fn(*mut c_void, *mut c_void, *mut c_void) -> i32;

pub struct Task {
    /// The BPF program's view. Boxed, because the program keeps pointers; both sides write to it.
    pub raw: *mut task_struct,
    /// Target of raw.cpus_ptr.
    mask: Box<Mask>,
    pub traits: Traits,
    pub state: State,
    pub place: Place,
    pub cpu: usize,
    pub first_cpu: usize,
    pub cgroup: CgroupId,
    /// None: the first session, which has no autogroup.
    pub session: Option<usize>,
    pub ddsp: Option<Insert>,
    /// Inserted with SCX_ENQ_IMMED.
    pub immed: bool,
    /// Task work at the next return to user space (bpf_task_work_schedule_resume()).
    pub work: Option<Work>,
    /// The task was preempted in its task work.
    pub in_work: bool,
    /// scx_bpf_task_storage_get(), by map.
    pub storage: Vec<(*const c_void, Box<[u64]>)>,

    pub program: ProgramId,
    pub pc: usize,
    /// The loops that the task is in: step and remaining rounds.
    pub loops: Vec<(usize, u32)>,
    /// Remaining work of the step, in ns of capacity 1024.
    pub remaining: u64,
    pub started_at: u64,
    pub begun_at: u64,
    /// When the task was due to continue: see [`Step::BeginDue`](crate::program::Step).
    pub due_at: u64,
    pub spin_until: Option<u64>,
    /// The work of the current Fork is done.
    pub forks: bool,
    pub timer_at: Option<u64>,
    pub parent: Option<TaskId>,
    pub nr_children: u32,
    pub waits_for_children: bool,
    /// The task blocks when it next leaves the CPU.
    pub blocked: bool,

    /// When the task last became runnable (woke or was enqueued again).
    pub runnable_at: u64,
    /// Since when the task is not throttled and its allowed CPUs are unchanged.
    pub allowed_at: u64,
    /// A kernel thread preempted the task, which is not offered to other CPUs before the tick.
    pub behind_kthread: bool,
    /// It became runnable by a wakeup.
    pub woken: bool,
    /// sum_exec_runtime at that time, or at the wakeup before.
    pub woke_exec: u64,
    pub last_cpu: Option<usize>,
}

impl Task {
    pub fn new(id: TaskId, program: ProgramId, traits: Traits, cpu: usize, now: u64) -> Self {
        let mask = Box::new(traits.allowed);
        let tgid = if traits.loader { LOADER_TGID } else { 100 + id as i32 };
        let mut raw = Box::new(task_struct {
            flags: if traits.kthread { PF_KTHREAD } else { 0 },
            policy: traits.policy,
            static_prio: traits.static_prio(),
            prio: 120,
            pid: tgid,
            tgid,
            cpus_ptr: mask.as_c().cast_mut(),
            nr_cpus_allowed: traits.allowed.len() as i32,
            sim_id: id as u32,
            ..Default::default()
        });
        let clamp = &mut raw.uclamp[uclamp_id_UCLAMP_MAX as usize];
        (clamp.value, clamp.active) = (1024, 1);
        let mut task = Self {
            raw: Box::into_raw(raw),
            mask,
            cgroup: traits.cgroup,
            session: None,
            traits,
            state: State::Sleeping,
            place: Place::Nowhere,
            cpu,
            first_cpu: cpu,
            ddsp: None,
            immed: false,
            work: None,
            in_work: false,
            storage: Vec::new(),
            program,
            pc: 0,
            loops: Vec::new(),
            remaining: 0,
            started_at: now,
            begun_at: now,
            due_at: now,
            spin_until: None,
            forks: false,
            timer_at: None,
            parent: None,
            nr_children: 0,
            waits_for_children: false,
            blocked: false,
            runnable_at: now,
            allowed_at: now,
            behind_kthread: false,
            woken: false,
            woke_exec: 0,
            last_cpu: None,
        };
        task.set_own_slice();
        task
    }

    pub fn set_own_slice(&mut self) {
        let slice = self.traits.own_slice;
        let se = &mut self.raw_mut().se;
        (se.custom_slice, se.slice) = ((slice > 0).into(), slice);
    }

    pub fn raw(&self) -> &task_struct {
        // SAFETY: owned until drop; the BPF program only reads it, and does not run now.
        unsafe { &*self.raw }
    }

    /// Return the kernel's weight, 1024 at nice 0.
    pub fn weight(&self) -> u32 {
        let raw = self.raw();
        if raw.policy == SCHED_IDLE { IDLE_POLICY_WEIGHT } else { NICE_WEIGHTS[raw.static_prio as usize - 100] }
    }

    pub fn tctx(&self) -> Option<&task_ctx> {
        // SAFETY: the storage is large enough for its type, and the program does not run.
        self.storage.first().map(|(_, value)| unsafe { &*value.as_ptr().cast() })
    }

    pub fn raw_mut(&mut self) -> &mut task_struct {
        // SAFETY: as raw().
        unsafe { &mut *self.raw }
    }

    /// Return the CPUs that the task may use now.
    pub fn mask(&self) -> Mask {
        *self.mask
    }

    pub fn set_mask(&mut self, mask: Mask) {
        *self.mask = mask;
    }

    pub fn may_run_on(&self, cpu: usize) -> bool {
        self.mask.test(cpu)
    }

    pub fn is_migration_disabled(&self) -> bool {
        self.raw().migration_disabled != 0
    }

    pub fn enable_migration(&mut self) {
        self.raw_mut().migration_disabled = 0;
        self.in_work = false;
        self.set_mask(self.traits.allowed);
    }

    pub fn set_queued(&mut self, queued: bool) {
        self.raw_mut().scx.flags = if queued { scx_public_consts_SCX_TASK_QUEUED } else { 0 };
    }

    /// Return false for a dead task, whose pointer the BPF program does not use but may hold.
    pub fn is_alive(&self) -> bool {
        self.state != State::Dead
    }
}

impl Drop for Task {
    fn drop(&mut self) {
        // SAFETY: from Box::into_raw, freed once.
        drop(unsafe { Box::from_raw(self.raw) });
    }
}

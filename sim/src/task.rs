// SPDX-License-Identifier: GPL-2.0-only
//! A simulated task: what the kernel knows of it, and how far it is in its program.

use std::ffi::c_void;

use crate::cgroup::{CgroupId, IDLE_POLICY_WEIGHT};
use crate::dsq::TaskId;
use crate::mask::Mask;
use crate::native::{
    PF_KTHREAD, cpumask, scx_public_consts_SCX_TASK_QUEUED, task_ctx, task_struct, uclamp_id_UCLAMP_MAX,
};
use crate::program::ProgramId;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    Sleeping,
    /// select_cpu() is over, the wakeup is on its way to the CPU.
    Waking,
    /// Waits for a CPU; where, says `place`.
    Runnable,
    Running,
    Dead,
}

/// In which queue a runnable task is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    Nowhere,
    Local(usize),
    Dsq(usize),
}

/// A direct dispatch that waits for the callback to return.
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

/// How a task differs from the ordinary.
#[derive(Clone, Debug)]
pub struct Traits {
    pub allowed: Mask,
    /// -20..19
    pub nice: i32,
    /// SCHED_*
    pub policy: u32,
    pub kthread: bool,
    pub loader: bool,
    /// Where it starts.
    pub cgroup: CgroupId,
    /// Lines that it misses on a strange CPU.
    pub working_set: u64,
    /// How much longer its work takes on another node than where it started: its memory stays there.
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

/// The loader's thread group.
pub const LOADER_TGID: i32 = 2;

/// A task work's callback: the map, the key and the value that holds it.
pub type Work = unsafe extern "C" fn(*mut c_void, *mut c_void, *mut c_void) -> i32;

pub struct Task {
    /// What the BPF program sees. Boxed, for it keeps pointers; written through `raw` by both sides.
    pub raw: *mut task_struct,
    /// What raw.cpus_ptr points to.
    mask: *mut cpumask,
    pub traits: Traits,
    pub state: State,
    pub place: Place,
    /// The kernel's task_cpu().
    pub cpu: usize,
    /// Where it started.
    pub first_cpu: usize,
    pub cgroup: CgroupId,
    /// None: the first one, which has no autogroup.
    pub session: Option<usize>,
    pub ddsp: Option<Insert>,
    /// Inserted with SCX_ENQ_IMMED.
    pub immed: bool,
    /// What it does when it next leaves for user space (bpf_task_work_schedule_resume()).
    pub work: Option<Work>,
    /// It was preempted there.
    pub in_work: bool,
    /// scx_bpf_task_storage_get(): by map.
    pub storage: Vec<(*const c_void, Box<[u64]>)>,

    pub program: ProgramId,
    pub pc: usize,
    /// Rounds left of the loops that it is in, by step.
    pub loops: Vec<(usize, u32)>,
    /// Work left of the step, in ns of capacity 1024.
    pub remaining: u64,
    pub started_at: u64,
    pub begun_at: u64,
    /// When it was to go on last: see [`Step::BeginDue`](crate::program::Step).
    pub due_at: u64,
    /// When the Spin that it is in ends.
    pub spin_until: Option<u64>,
    /// Has done the work of the Fork that it is at.
    pub forks: bool,
    /// When its timer was due last.
    pub timer_at: Option<u64>,
    pub parent: Option<TaskId>,
    pub nr_children: u32,
    pub waits_for_children: bool,
    /// Is to send itself to sleep when it next leaves the CPU.
    pub blocked: bool,

    /// When it became runnable (woke, or was put back in line) last.
    pub runnable_at: u64,
    /// Since when it may use the CPUs that it may use, and is not throttled.
    pub allowed_at: u64,
    /// It was preempted by a kernel thread, and is not offered before the tick.
    pub behind_kthread: bool,
    /// That was a wakeup.
    pub woken: bool,
    /// Its sum_exec_runtime then, or when it woke before.
    pub woke_exec: u64,
    /// Where it ran last.
    pub last_cpu: Option<usize>,
    pub nr_migrations: u64,
    pub longest_wait: u64,
}

impl Task {
    pub fn new(id: TaskId, program: ProgramId, traits: Traits, cpu: usize, now: u64) -> Self {
        let mask = Box::into_raw(Box::new(cpumask::default()));
        let tgid = if traits.loader { LOADER_TGID } else { 100 + id as i32 };
        let mut raw = Box::new(task_struct {
            flags: if traits.kthread { PF_KTHREAD } else { 0 },
            policy: traits.policy,
            static_prio: traits.static_prio(),
            prio: 120,
            pid: tgid,
            tgid,
            cpus_ptr: mask,
            sim_id: id as u32,
            ..Default::default()
        });
        raw.uclamp_req[uclamp_id_UCLAMP_MAX as usize].value = 1024;
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
            nr_migrations: 0,
            longest_wait: 0,
        };
        task.set_mask(task.traits.allowed);
        task.raw_mut().nr_cpus_allowed = task.traits.allowed.len() as i32;
        task
    }

    pub fn raw(&self) -> &task_struct {
        // SAFETY: ours until drop; the BPF program only reads it, and not now.
        unsafe { &*self.raw }
    }

    /// The kernel's, 1024 at nice 0.
    pub fn weight(&self) -> u32 {
        let raw = self.raw();
        if raw.policy == SCHED_IDLE { IDLE_POLICY_WEIGHT } else { NICE_WEIGHTS[raw.static_prio as usize - 100] }
    }

    /// What the program keeps of it.
    pub fn tctx(&self) -> Option<&task_ctx> {
        // SAFETY: the storage is large enough for its type, and the program does not run.
        self.storage.first().map(|(_, value)| unsafe { &*value.as_ptr().cast() })
    }

    pub fn raw_mut(&mut self) -> &mut task_struct {
        // SAFETY: as raw().
        unsafe { &mut *self.raw }
    }

    /// Where it may run at this moment.
    pub fn mask(&self) -> Mask {
        // SAFETY: as raw().
        Mask::of_c(unsafe { &*self.mask })
    }

    pub fn set_mask(&mut self, mask: Mask) {
        // SAFETY: as raw().
        unsafe { *self.mask = mask.to_c() };
    }

    pub fn may_run_on(&self, cpu: usize) -> bool {
        // SAFETY: as raw().
        unsafe { (*self.mask).bits[cpu / 64] & 1 << (cpu % 64) != 0 }
    }

    pub fn is_migration_disabled(&self) -> bool {
        self.raw().migration_disabled != 0
    }

    /// Its migration is enabled again.
    pub fn enable_migration(&mut self) {
        self.raw_mut().migration_disabled = 0;
        self.in_work = false;
        self.set_mask(self.traits.allowed);
    }

    pub fn set_queued(&mut self, queued: bool) {
        self.raw_mut().scx.flags = if queued { scx_public_consts_SCX_TASK_QUEUED } else { 0 };
    }

    /// The BPF program looks at a running or waiting task's pointer, never at a dead one's: but its memory stays.
    pub fn is_alive(&self) -> bool {
        self.state != State::Dead
    }
}

impl Drop for Task {
    fn drop(&mut self) {
        // SAFETY: from Box::into_raw, freed once.
        unsafe {
            drop(Box::from_raw(self.raw));
            drop(Box::from_raw(self.mask));
        }
    }
}

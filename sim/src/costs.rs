// SPDX-License-Identifier: GPL-2.0-only
//! What things cost on the simulated machine, in nanoseconds unless it says otherwise. Orders of magnitude of a
//! current server at 2.5 to 3 GHz: results are for comparing one setting with another, not for predicting seconds.

/// The timer tick: HZ=250, as Debian's kernels and the VM's.
pub const TICK: u64 = 4_000_000;

/// Work of a tick apart from the scheduler's callback. Measured by others with `perf trace` and `osnoise`: 1 to 3 us.
pub const TICK_WORK: u64 = 1_500;

/// `__schedule` and `switch_to`, without callbacks: `perf bench sched pipe` takes 2 switches, 2 wakeups and 4 system
/// calls a round trip of 4 to 5 us on one core.
pub const CONTEXT_SWITCH: u64 = 900;

/// `try_to_wake_up` without callbacks; same source.
pub const WAKEUP: u64 = 400;

/// Entering and leaving a system call and its work, pipe or futex; same source.
pub const SYSCALL: u64 = 300;

/// `clone` of a thread or small process up to `wake_up_new_task`; lmbench `lat_proc fork`: 50 to 100 us, exec apart.
pub const FORK: u64 = 50_000;

/// From sending a reschedule IPI to its handler (Intel's and AMD's figures for a posted x2APIC IPI: 0.5 to 2 us).
pub const IPI: u64 = 1_000;

/// Leaving C1; what the kernel's `intel_idle` tables say of C1 (2 us), deeper states being a matter of governors.
pub const IDLE_EXIT: u64 = 2_000;

/// Body of one callback: entering and leaving a BPF program and a hundred instructions. docs of sched_ext peers and
/// `bpf_stats_enabled` on this project's VM: 200 to 600 instructions a callback.
pub const CALLBACK: u64 = 150;

/// A kfunc that takes no lock.
pub const KFUNC: u64 = 10;

/// Holding a DSQ's or a runqueue's lock for one insertion or removal.
pub const LOCK_HOLD: u64 = 80;

/// A cache line from another CPU of the same core, LLC, node, or from another node. Core-to-core latency tables
/// published for Zen 3/4 and Ice Lake/Sapphire Rapids: 5 to 10, 20 to 60, 90 to 130, 140 to 300.
pub const LINE_CORE: u64 = 8;
pub const LINE_LLC: u64 = 45;
pub const LINE_NODE: u64 = 110;
pub const LINE_FAR: u64 = 220;

/// Lines of a task's working set that it misses when it runs on another CPU; 0 if that is of the same core (shared
/// L1 and L2). 512 lines are 32 KB, an L1. The kernel's own guess, `sched_migration_cost_ns`, is 500 us: its worst case.
pub const WORKING_SET_LINES: u64 = 512;

/// A line has 64 bytes.
pub const LINES_PER_KB: u64 = 16;

/// Such misses overlap: lines in flight at once (a core's line fill buffers are 10 to 16).
pub const MISS_PARALLELISM: u64 = 8;

/// Lines of a message that travel from sender to receiver: a few hundred bytes and the kernel's own.
pub const MESSAGE_LINES: u64 = 8;

/// Speed of a CPU whose sibling is busy, % of a core of its own: SMT gains 20 to 30 % in published measurements.
pub const SMT_SPEED: u64 = 62;

/// Length and mean distance of a background kernel thread's work on each CPU (workqueues, RCU, writeback).
pub const NOISE_WORK: u64 = 20_000;
pub const NOISE_INTERVAL: u64 = 50_000_000;

/// Relative spread of run times and message lengths, %, uniformly to both sides: caches, branches, frequency.
pub const WORK_SPREAD: u64 = 20;

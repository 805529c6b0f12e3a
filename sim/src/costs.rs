// SPDX-License-Identifier: GPL-2.0-only
//! Costs of operations on the simulated machine, in ns unless stated otherwise: orders of magnitude
//! of a current server at 2.5 to 3 GHz. Results compare settings; they do not predict seconds.

/// The timer tick: HZ=250, as in Debian's kernels and in the VM's.
pub const TICK: u64 = 4_000_000;

/// Work of a tick without the callback. Published `perf trace` and `osnoise`: 1 to 3 us.
pub const TICK_WORK: u64 = 1_500;

/// `__schedule` and `switch_to` without callbacks: `perf bench sched pipe` takes 4 to 5 us per
/// round trip of 2 switches, 2 wakeups and 4 system calls on one core.
pub const CONTEXT_SWITCH: u64 = 900;

/// `try_to_wake_up` without callbacks; same source.
pub const WAKEUP: u64 = 400;

/// Entry, exit and work of a system call on a pipe or a futex; same source.
pub const SYSCALL: u64 = 300;

/// `clone` of a thread or small process up to `wake_up_new_task` (lmbench: 50 to 100 us, no exec).
pub const FORK: u64 = 50_000;

/// From a reschedule IPI's start to its handler (Intel and AMD, posted x2APIC IPI: 0.5 to 2 us).
pub const IPI: u64 = 1_000;

/// Exit from C1: 2 us in the kernel's `intel_idle` tables. Deeper states depend on governors.
pub const IDLE_EXIT: u64 = 2_000;

/// One callback without kfuncs: entry and exit of a BPF program and its instructions, 200 to 600 by
/// `bpf_stats_enabled` on this project's VM and by documentation of other sched_ext schedulers.
pub const CALLBACK: u64 = 150;

/// A kfunc that takes no lock.
pub const KFUNC: u64 = 10;

/// Hold time of the lock of a DSQ or a runqueue for one insertion or removal.
pub const LOCK_HOLD: u64 = 80;

/// Transfer of a cache line from another CPU of the same core, LLC or node, or from another node.
/// Published latencies of Zen 3/4 and Ice Lake/Sapphire Rapids: 5-10, 20-60, 90-130, 140-300.
pub const LINE_CORE: u64 = 8;
pub const LINE_LLC: u64 = 45;
pub const LINE_NODE: u64 = 110;
pub const LINE_FAR: u64 = 220;

/// Lines of its working set that a task misses on another core (512: 32 KB, an L1); 0 on a sibling.
/// The kernel's own estimate is its worst case: `sched_migration_cost_ns`, 500 us.
pub const WORKING_SET_LINES: u64 = 512;

pub const LINES_PER_KB: u64 = 16;

/// Number of such misses in flight at the same time (a core has 10 to 16 line fill buffers).
pub const MISS_PARALLELISM: u64 = 8;

/// Lines of a message from sender to receiver: a few hundred bytes, and the kernel's own lines.
pub const MESSAGE_LINES: u64 = 8;

/// Speed of a CPU with a busy sibling, in % of an entire core: SMT gains 20 to 30 % (published).
pub const SMT_SPEED: u64 = 62;

/// Mean work and interval of a background kernel thread per CPU (workqueues, RCU, writeback).
pub const NOISE_WORK: u64 = 20_000;
pub const NOISE_INTERVAL: u64 = 50_000_000;

/// Spread of run times and message lengths, %, uniform to both sides: caches, branches, frequency.
pub const WORK_SPREAD: u64 = 20;

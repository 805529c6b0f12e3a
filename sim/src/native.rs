// SPDX-License-Identifier: GPL-2.0-only
//! Native build of the BPF program: callbacks, variables, and the reset to the loaded state.
//!
//! ```text
//! load():  .bss = 0, .data as compiled, then the loader's configuration (bpf_config); .rodata is read-only afterwards
//! ops():   the callbacks, which kernel/ calls; they call kfuncs.rs
//! units(): single functions of the program, for tests/units
//! ```
//!
//! A process has one program, whose variables are those of the C source. One simulation at a time
//! holds [`Native`]; others wait.
#![allow(non_camel_case_types, non_upper_case_globals, non_snake_case)]

use std::cell::UnsafeCell;
use std::ffi::c_void;
use std::ops::Range;
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

use scx_magpie::bpf_config::{BpfConfig, Live};
use scx_magpie::bpf_intf::{
    capacities, cpu_ctx, cpu_layout, cpu_state_CPU_USABLE, group, latency_hist, llc_ctx, llc_layout, llc_published,
    machine, magpie_limits_CACHE_LINE, magpie_limits_MAX_CPUS, magpie_limits_MAX_GROUPS, magpie_limits_MAX_LINES,
    magpie_limits_MAX_LLCS, magpie_limits_MAX_NODE_IDS, magpie_limits_SLOTS_PER_LINE, map_line, placed_cpu, sparse_map,
    tunables, wake_cases,
};
use scx_magpie::stats::Shared;
use scx_magpie::topology::Layout;
use scx_magpie::tunables::Tunables;

#[allow(clippy::all, dead_code, unsafe_op_in_unsafe_fn)]
mod bindings {
    use scx_magpie::bpf_intf::{
        cpu_ctx, cpu_layout, group, llc_ctx, llc_layout, llc_published, magpie_stat, pelt, sparse_map,
    };

    include!(concat!(env!("OUT_DIR"), "/bindings.rs"));
}
pub use bindings::*;

pub const MAX_CPUS: usize = magpie_limits_MAX_CPUS as usize;
const MAX_LLCS: usize = magpie_limits_MAX_LLCS as usize;
const MAX_LINES: usize = magpie_limits_MAX_LINES as usize;
pub const CACHE_LINE: usize = magpie_limits_CACHE_LINE as usize;
const SLOTS_PER_LINE: usize = magpie_limits_SLOTS_PER_LINE as usize;

// Symbols of main.bpf.c and bounds of its sections (native.c). Cells, because the program writes.
unsafe extern "C" {
    static mut magpie: sched_ext_ops;
    safe static machine: UnsafeCell<machine>;
    safe static tunables: UnsafeCell<tunables>;
    safe static cpu_layouts: [UnsafeCell<cpu_layout>; MAX_CPUS];
    safe static llc_layouts: [UnsafeCell<llc_layout>; MAX_LLCS];
    safe static slot_cpus: [UnsafeCell<u16>; MAX_LINES * SLOTS_PER_LINE];
    safe static node_llcs: [UnsafeCell<u16>; magpie_limits_MAX_NODE_IDS as usize];
    safe static capacity_order: [UnsafeCell<u16>; MAX_CPUS];
    #[link_name = "capacities"]
    safe static reachable: UnsafeCell<capacities>;
    #[link_name = "wake_cases"]
    safe static cases: [UnsafeCell<wake_cases>; MAX_CPUS];
    safe static pelt_decay: [UnsafeCell<u32>; 32];
    safe static cpu_ctxs: [UnsafeCell<cpu_ctx>; MAX_CPUS];
    safe static llc_publisheds: [UnsafeCell<llc_published>; MAX_LLCS];
    safe static llc_ctxs: [UnsafeCell<llc_ctx>; MAX_LLCS];
    safe static groups: [UnsafeCell<group>; magpie_limits_MAX_GROUPS as usize];
    safe static lost_groups: UnsafeCell<u32>;
    safe static processes: UnsafeCell<u8>;
    safe static group_ids: UnsafeCell<u8>;
    #[link_name = "changes"]
    safe static untold_changes: [UnsafeCell<changes>; MAX_CPUS];
    safe static latency_hists: [UnsafeCell<latency_hist>; MAX_CPUS];
    safe static idle_map: UnsafeCell<sparse_map>;
    safe static overload_map: UnsafeCell<sparse_map>;
    static mut __start_bpf_bss: u8;
    static mut __stop_bpf_bss: u8;
    static mut __start_bpf_data: u8;
    static mut __stop_bpf_data: u8;
    static mut __start_bpf_rodata: u8;
    static mut __stop_bpf_rodata: u8;
    safe static __start_bpf_text: u8;
    safe static __stop_bpf_text: u8;
    fn sim_interrupt(user: bool);
    fn sim_context(syscall: i64, count: u32);
    // Programs for the loader, without an argument.
    pub fn register_loader(ctx: *mut c_void) -> i32;
    pub fn sample_queues(ctx: *mut c_void) -> i32;
    pub fn decay_cpuperfs(ctx: *mut c_void) -> i32;
    pub fn poll_groups(ctx: *mut c_void) -> i32;
    fn place_cpu(placed: *mut placed_cpu) -> i32;
}

static OWNER: Mutex<()> = Mutex::new(());
static PRISTINE_DATA: OnceLock<Vec<u8>> = OnceLock::new();

/// Context of the executing CPU: see `core/context.bpf.h`.
#[derive(Clone, Copy, Debug)]
pub enum Context {
    Syscall,
    /// The system call of a futex.
    Futex,
    HardInterrupt,
    /// At the end of a hard interrupt of user space.
    SoftInterrupt,
    /// At the end of a system call that sent a packet.
    SoftInSyscall,
}

/// Exclusive access to the only program.
pub struct Native {
    _owner: MutexGuard<'static, ()>,
}

impl Native {
    /// Wait until no other simulation of this process holds the program.
    pub fn acquire() -> Self {
        // load() resets everything that a simulation may have left when it panicked.
        Self { _owner: OWNER.lock().unwrap_or_else(PoisonError::into_inner) }
    }

    /// Reset the program to its freshly loaded state, and configure machine and tunables.
    pub fn load(&mut self, config: &BpfConfig) {
        // SAFETY: the linker's bounds of the program's sections; the program does not run.
        unsafe {
            clear_bss();
            // Volatile, because AddressSanitizer's memcpy() refuses the gaps between variables.
            let data = &raw mut __start_bpf_data;
            let len = (&raw const __stop_bpf_data).offset_from_unsigned(data);
            let pristine = PRISTINE_DATA.get_or_init(|| (0..len).map(|i| data.add(i).read_volatile()).collect());
            for (i, byte) in pristine.iter().enumerate() {
                data.add(i).write_volatile(*byte);
            }

            tunables.get().write(config.tunables);
            copy(&cpu_layouts, &config.cpu_layouts);
            copy(&llc_layouts, &config.llc_layouts);
            copy(&slot_cpus, &config.slot_cpus);

            protect_rodata(libc::PROT_READ | libc::PROT_WRITE);
            machine.get().write(config.machine);
            copy(&node_llcs, &config.node_llcs);
            copy(&capacity_order, &config.capacity_order);
            copy(&pelt_decay, &config.pelt_decay);
            protect_rodata(libc::PROT_READ);
        }
    }

    pub fn set(&mut self, layout: &Layout, flags: &Tunables) {
        Live { tunables: &tunables, llc_layouts: &llc_layouts }.set(layout, flags);
    }

    pub fn ops(&self) -> sched_ext_ops {
        // SAFETY: only load() writes it.
        unsafe { magpie }
    }

    pub fn units(&self) -> &'static units {
        // SAFETY: constant.
        unsafe { &bindings::units }
    }

    pub fn cpu_ctx(&self, cpu: usize) -> &cpu_ctx {
        get(&cpu_ctxs[cpu])
    }

    pub fn shared(&self) -> Shared<'static> {
        Shared {
            cpu_ctxs: &cpu_ctxs,
            cpu_layouts: &cpu_layouts,
            llc_publisheds: &llc_publisheds,
            latency_hists: &latency_hists,
            groups: &groups,
            lost_groups: *get(&lost_groups),
            capacities: &reachable,
            wake_cases: (get(&machine).asym != 0).then_some(&cases[..]),
        }
    }

    pub fn group(&self, id: u32) -> &group {
        get(&groups[id as usize])
    }

    /// Return the changes of the group's runnable weight and tasks that CPUs have not flushed to it.
    pub fn untold(&self, id: u32) -> (i64, i64) {
        let slots = untold_changes.iter().flat_map(|of_cpu| get(of_cpu).slots);
        let of_group = slots.filter(|slot| slot >> CHANGE_GROUP_SHIFT == u64::from(id));
        // Signed fields: shift out what is above.
        let weight = |slot: u64| (slot << (64 - CHANGE_WEIGHT_BITS)) as i64 >> (64 - CHANGE_WEIGHT_BITS);
        let tasks = |slot: u64| (slot << (64 - CHANGE_GROUP_SHIFT)) as i64 >> (64 - CHANGE_TASKS_BITS);
        of_group.fold((0, 0), |(sum, nr), slot| (sum + weight(slot), nr + tasks(slot)))
    }

    pub fn group_ids(&self) -> usize {
        (&raw const group_ids).addr()
    }

    pub fn processes(&self) -> usize {
        (&raw const processes).addr()
    }

    /// Return the CPU's slot in the bitmaps; `None` if it is offline or not placed.
    pub fn slot(&self, cpu: usize) -> Option<usize> {
        let layout = get(&cpu_layouts[cpu]);
        (layout.state == cpu_state_CPU_USABLE).then_some(layout.slot as usize)
    }

    pub fn nr_scan(&self, llc: usize) -> u32 {
        get(&llc_publisheds[llc]).nr_scan
    }

    pub fn is_idle_bit(&self, slot: usize) -> bool {
        is_bit(&idle_map, slot)
    }

    pub fn clear_idle_bit(&self, slot: usize) {
        // SAFETY: as get().
        unsafe { (*idle_map.get()).lines[slot / SLOTS_PER_LINE].bits &= !(1 << (slot % SLOTS_PER_LINE)) }
    }

    pub fn add_queued_load(&self, cpu: usize, weight: u64) {
        // SAFETY: as get().
        unsafe { (*cpu_ctxs[cpu].get()).queued_load += weight }
    }

    pub fn is_overload_bit(&self, slot: usize) -> bool {
        is_bit(&overload_map, slot)
    }

    /// Return the lines of an LLC in idle_map and in overload_map.
    pub fn map_lines(&self, llc: usize) -> [&[map_line]; 2] {
        let layout = get(&llc_layouts[llc]);
        let lines = layout.first_line as usize..(layout.first_line + layout.nr_lines) as usize;
        [&idle_map, &overload_map].map(|map| &get(map).lines[lines.clone()])
    }

    /// Set whether the next tick has interrupted user space.
    pub fn interrupt(&self, user: bool) {
        // SAFETY: as get().
        unsafe { sim_interrupt(user) }
    }

    pub fn context(&self, context: Context) {
        let (syscall, count) = match context {
            Context::Syscall => (0, 0),
            Context::Futex => (NR_FUTEX.into(), 0),
            Context::HardInterrupt => (0, IN_HARDIRQ_OR_NMI_7_3),
            Context::SoftInterrupt => (-1, SERVING_SOFTIRQ),
            Context::SoftInSyscall => (0, SERVING_SOFTIRQ),
        };
        // SAFETY: as get().
        unsafe { sim_context(syscall, count) }
    }
}

/// Place a new CPU, as the loader does.
pub fn place(layout: &Layout, cpu: usize) {
    let place = &layout.cpus[&cpu];
    // SAFETY: as get(); the same stores as the loader's.
    unsafe {
        let to = cpu_layouts[cpu].get();
        *to = cpu_layout { state: (*to).state, ..place.into() };
        (*llc_layouts[place.llc].get()).nr_slots = layout.llcs[place.llc].nr_slots as u32;
        *slot_cpus[place.slot].get() = cpu as u16;
        assert_eq!(place_cpu(&mut placed_cpu { cpu: cpu as i32 }), 0);
    }
}

/// Return a variable's value.
fn get<T>(variable: &UnsafeCell<T>) -> &T {
    // SAFETY: one thread runs the program and reads its state.
    unsafe { &*variable.get() }
}

fn is_bit(map: &UnsafeCell<sparse_map>, slot: usize) -> bool {
    get(map).lines[slot / SLOTS_PER_LINE].bits & 1 << (slot % SLOTS_PER_LINE) != 0
}

pub fn text() -> Range<usize> {
    (&raw const __start_bpf_text).addr()..(&raw const __stop_bpf_text).addr()
}

/// Return the name of the variable at an address, with the line of a `cpu_ctx`; `None` for others.
pub fn variable(addr: usize) -> Option<String> {
    let of_cpus = at(&raw const cpu_ctxs);
    if of_cpus.contains(&addr) {
        return Some(format!("cpu_ctx, line {}", (addr - of_cpus.start) % size_of::<cpu_ctx>() / CACHE_LINE));
    }
    let words = |map: Range<usize>| map.end - MAX_LLCS * CACHE_LINE..map.end;
    let named = [
        ("idle_map, words of LLCs", words(at(&raw const idle_map))),
        ("idle_map", at(&raw const idle_map)),
        ("overload_map, words of LLCs", words(at(&raw const overload_map))),
        ("overload_map", at(&raw const overload_map)),
        ("groups", at(&raw const groups)),
        ("changes", at(&raw const untold_changes)),
        ("llc_published", at(&raw const llc_publisheds)),
        ("llc_ctx", at(&raw const llc_ctxs)),
        ("others", (&raw const __start_bpf_bss).addr()..(&raw const __stop_bpf_bss).addr()),
        ("others", (&raw const __start_bpf_data).addr()..(&raw const __stop_bpf_data).addr()),
    ];
    named.iter().find(|(_, range)| range.contains(&addr)).map(|(name, _)| name.to_string())
}

/// Return true if many CPUs read and write the address: the sparse bitmaps and state of cgroups.
pub fn is_shared(addr: usize) -> bool {
    let bitmaps = [at(&raw const idle_map), at(&raw const overload_map)];
    let cgroups = [at(&raw const groups), at(&raw const untold_changes)];
    bitmaps.iter().chain(&cgroups).any(|range| range.contains(&addr))
}

fn at<T>(of: *const T) -> Range<usize> {
    of.addr()..of.addr() + size_of::<T>()
}

/// # Safety
/// Nobody uses `to` meanwhile, and it is writable.
unsafe fn copy<T: Copy>(to: &[UnsafeCell<T>], from: &[T]) {
    assert_eq!(from.len(), to.len());
    for (to, from) in to.iter().zip(from) {
        // SAFETY: guaranteed by the caller.
        unsafe { to.get().write(*from) };
    }
}

/// # Safety
/// Nobody runs the program.
unsafe fn clear_bss() {
    // SAFETY: the linker's bounds of the program's section. Its whole pages are anonymous: they
    // read as zero after the kernel has dropped them.
    unsafe {
        let page = libc::sysconf(libc::_SC_PAGESIZE) as usize;
        let (start, stop) = ((&raw mut __start_bpf_bss) as usize, (&raw mut __stop_bpf_bss) as usize);
        let (first, end) = (start.next_multiple_of(page), stop & !(page - 1));
        let err = libc::madvise(first as *mut _, end - first, libc::MADV_DONTNEED);
        assert_eq!(err, 0, "madvise: {}", std::io::Error::last_os_error());
        for at in (start..first).chain(end..stop) {
            (at as *mut u8).write_volatile(0);
        }
    }
}

/// Set the protection of entire pages. Other data on them is read-only, too.
unsafe fn protect_rodata(prot: i32) {
    // SAFETY: pages of this executable.
    unsafe {
        let page = libc::sysconf(libc::_SC_PAGESIZE) as usize;
        let first = (&raw mut __start_bpf_rodata) as usize & !(page - 1);
        let len = (&raw const __stop_bpf_rodata) as usize - first;
        let err = libc::mprotect(first as *mut _, len, prot);
        assert_eq!(err, 0, "mprotect: {}", std::io::Error::last_os_error());
    }
}

// SPDX-License-Identifier: GPL-2.0-only
//! Kfuncs and helpers that the BPF program calls, as `native/scx/common.bpf.h` declares them.
//!
//! - Callbacks call them. They hold the simulated kernel while they run ([`current`]).
//! - Misuse for which the kernel ejects a scheduler is a violation.

use std::collections::btree_map::Entry;
use std::ffi::{CStr, c_char, c_void};
use std::mem::MaybeUninit;

use crate::cache::Line;
use crate::costs::KFUNC;
use crate::dsq::{Dsq, TaskId, is_throttled_queue, local_on, queue_cpu};
use crate::kernel::call::{current, try_current};
use crate::kernel::timers::Callback;
use crate::kernel::turns::Word;
use crate::kernel::{Event, Kernel, Moment};
use crate::machine::Machine;
use crate::mask::Mask;
use crate::native::{
    CACHE_LINE, PF_IDLE, SCX_DSQ_LOCAL, SCX_ENQ_IMMED_FLAG, SCX_KICK_IDLE, bpf_iter_scx_dsq, cgroup, cpumask,
    is_shared, scx_public_consts_SCX_DSQ_ITER_REV, task_struct,
};
use crate::task::{Insert, Place, Work};
use crate::trace::Op;

/// Rounds of `can_loop` in one callback. The kernel's may_goto allows 8 million.
const MAX_ROUNDS: u32 = 1 << 16;

fn kernel() -> &'static mut Kernel {
    // SAFETY: only callbacks call kfuncs, and each function here drops the reference at its return.
    unsafe { current() }
}

/// Return the kernel, after the time that a kfunc takes.
fn charged() -> &'static mut Kernel {
    let kernel = kernel();
    kernel.cost += KFUNC;
    kernel
}

fn dsq(id: u64) -> Option<&'static Dsq> {
    kernel().dsqs.get(id as usize)?.as_ref()
}

fn id(p: *const task_struct) -> TaskId {
    // SAFETY: the pointer came from the simulated kernel.
    unsafe { (*p).sim_id as TaskId }
}

#[unsafe(no_mangle)]
extern "C" fn scx_bpf_now() -> u64 {
    kernel().rq_clock()
}

#[unsafe(no_mangle)]
extern "C" fn bpf_ktime_get_ns() -> u64 {
    kernel().now
}

#[unsafe(no_mangle)]
extern "C" fn bpf_get_smp_processor_id() -> u32 {
    let kernel = kernel();
    kernel.call.map_or(kernel.cpu, |call| call.cpu) as u32
}

#[unsafe(no_mangle)]
extern "C" fn bpf_get_current_task_btf() -> *mut task_struct {
    let kernel = kernel();
    let cpu = kernel.call.map_or(kernel.cpu, |call| call.cpu);
    kernel.curr_raw(cpu)
}

#[unsafe(no_mangle)]
extern "C" fn bpf_get_current_pid_tgid() -> u64 {
    (crate::task::LOADER_TGID as u64) << 32
}

#[unsafe(no_mangle)]
extern "C" fn scx_bpf_task_cpu(p: *const task_struct) -> i32 {
    kernel().tasks[id(p)].cpu as i32
}

#[unsafe(no_mangle)]
extern "C" fn scx_bpf_task_running(p: *const task_struct) -> bool {
    let kernel = kernel();
    std::ptr::eq(kernel.curr_raw(kernel.tasks[id(p)].cpu), p)
}

#[unsafe(no_mangle)]
extern "C" fn bpf_cpumask_test_cpu(cpu: u32, mask: &cpumask) -> bool {
    charged();
    Mask::of_c(mask).test(cpu as usize)
}

#[unsafe(no_mangle)]
extern "C" fn bpf_cpumask_any_and_distribute(a: &cpumask, b: &cpumask) -> u32 {
    let kernel = charged();
    let Some(cpu) = Mask::of_c(a).and(&Mask::of_c(b)).next_after(kernel.last_any) else { return u32::MAX };
    kernel.last_any = cpu;
    cpu as u32
}

#[unsafe(no_mangle)]
extern "C" fn scx_bpf_get_online_cpumask() -> *const cpumask {
    kernel().online.as_c()
}

#[unsafe(no_mangle)]
extern "C" fn scx_bpf_get_possible_cpumask() -> *const cpumask {
    kernel().possible.as_c()
}

#[unsafe(no_mangle)]
extern "C" fn scx_bpf_put_cpumask(_mask: *const cpumask) {}

#[unsafe(no_mangle)]
extern "C" fn scx_bpf_cpu_curr(cpu: i32) -> *mut task_struct {
    kernel().check_possible(cpu as usize);
    kernel().curr_raw(cpu as usize)
}

#[unsafe(no_mangle)]
extern "C" fn scx_bpf_create_dsq(dsq_id: u64, _node: i32) -> i32 {
    match kernel().dsqs.get_mut(dsq_id as usize) {
        Some(dsq @ None) => {
            *dsq = Some(Default::default());
            0
        }
        Some(_) => -libc::EEXIST,
        None => -libc::EINVAL,
    }
}

#[unsafe(no_mangle)]
extern "C" fn scx_bpf_destroy_dsq(dsq_id: u64) {
    let kernel = kernel();
    match kernel.dsqs.get_mut(dsq_id as usize) {
        Some(dsq @ Some(_)) => {
            if dsq.take().is_some_and(|dsq| !dsq.is_empty()) {
                kernel.violate("lost", format!("DSQ {dsq_id:#x} is destroyed, and has tasks"));
            }
        }
        _ => kernel.violate("no such DSQ", format!("{dsq_id:#x} is destroyed")),
    }
}

fn insert(p: *mut task_struct, dsq_id: u64, slice: u64, vtime: Option<u64>, enq_flags: u64) {
    let kernel = kernel();
    let task = id(p);
    let call = kernel.call.map(|call| (call.op, call.task));
    if !matches!(call, Some((Op::SelectCpu | Op::Enqueue, about)) if about == Some(task)) {
        return kernel.violate(
            "insert",
            format!("task {task} is inserted in {call:?}: only in its own select_cpu(), enqueue()"),
        );
    }
    if kernel.tasks[task].ddsp.is_some() {
        return kernel.violate("two places", format!("task {task} is inserted twice"));
    }
    kernel.tell(Moment::Sent { task, dsq_id });
    kernel.tasks[task].raw_mut().scx.slice = slice.max(1);
    kernel.tasks[task].ddsp = Some(Insert { dsq_id, vtime, enq_flags });
}

#[unsafe(no_mangle)]
extern "C" fn scx_bpf_dsq_insert(p: *mut task_struct, dsq_id: u64, slice: u64, enq_flags: u64) {
    insert(p, dsq_id, slice, None, enq_flags);
}

#[unsafe(no_mangle)]
extern "C" fn scx_bpf_dsq_insert_vtime(p: *mut task_struct, dsq_id: u64, slice: u64, vtime: u64, enq_flags: u64) {
    insert(p, dsq_id, slice, Some(vtime), enq_flags);
}

#[unsafe(no_mangle)]
extern "C" fn scx_bpf_dsq_move_to_local(dsq_id: u64, enq_flags: u64) -> bool {
    let kernel = kernel();
    kernel.accesses(Word::Dsq(dsq_id), true);
    if !matches!(kernel.call, Some(call) if call.op == Op::Dispatch) {
        kernel.violate("move", "a task is moved outside of dispatch()".into());
        return false;
    }
    let moved = kernel.move_to_local(dsq_id as usize, enq_flags);
    if !moved && queue_cpu(dsq_id as usize) != kernel.cpu {
        kernel.tell(Moment::Missed);
    }
    moved
}

#[unsafe(no_mangle)]
extern "C" fn scx_bpf_dsq_nr_queued(dsq_id: u64) -> i32 {
    let kernel = charged();
    if let Some(cpu) = local_on(dsq_id).or((dsq_id == SCX_DSQ_LOCAL).then_some(kernel.cpu)) {
        kernel.check_possible(cpu);
        return kernel.cpus[cpu].local.len() as i32;
    }
    kernel.accesses(Word::Dsq(dsq_id), false);
    dsq(dsq_id).map_or(-libc::ENOENT, |dsq| dsq.len() as i32)
}

#[unsafe(no_mangle)]
extern "C" fn scx_bpf_dsq_peek(dsq_id: u64) -> *mut task_struct {
    let kernel = kernel();
    kernel.accesses(Word::Dsq(dsq_id), false);
    kernel.cost += KFUNC;
    kernel.cost += kernel.cpus[queue_cpu(dsq_id as usize)].line.load(&kernel.machine, kernel.cpu);
    dsq(dsq_id).and_then(|dsq| dsq.get(0)).map_or(std::ptr::null_mut(), |task| kernel.tasks[task].raw)
}

#[unsafe(no_mangle)]
extern "C" fn scx_bpf_kick_cpu(cpu: i32, flags: u64) {
    let kernel = charged();
    if cpu < 0 || cpu as usize >= kernel.cpus.len() {
        return kernel.violate("no such CPU", format!("CPU {cpu} is kicked"));
    }
    if flags & SCX_KICK_IDLE != 0 {
        kernel.tell(Moment::Kicked);
    }
    kernel.kicks.push((cpu as usize, flags));
}

#[unsafe(no_mangle)]
extern "C" fn scx_bpf_task_set_slice(p: *mut task_struct, slice: u64) -> bool {
    // SAFETY: as in id(). The idle task has no simulator id and no slice.
    if unsafe { (*p).flags } & PF_IDLE == 0 {
        kernel().tasks[id(p)].raw_mut().scx.slice = slice;
    }
    true
}

#[unsafe(no_mangle)]
extern "C" fn scx_bpf_reenqueue_local() -> u32 {
    let kernel = kernel();
    match kernel.call {
        Some(call) if call.op == Op::CpuRelease => kernel.reenqueue(call.cpu),
        _ => {
            kernel.violate("reenqueue", "scx_bpf_reenqueue_local() outside of cpu_release()".into());
            0
        }
    }
}

#[unsafe(no_mangle)]
extern "C" fn scx_bpf_reenqueue_local_from_anywhere() -> i32 {
    let kernel = kernel();
    if !kernel.quirks.reenqueues_from_anywhere {
        return -libc::EOPNOTSUPP;
    }
    kernel.cost += KFUNC;
    kernel.push(kernel.now + kernel.cost, Event::Reenqueue(kernel.cpu));
    0
}

/// From 7.1 on, as SCX_ENQ_IMMED.
#[unsafe(no_mangle)]
extern "C" fn __COMPAT_has_generic_reenq() -> bool {
    kernel().quirks.puts_back
}

#[unsafe(no_mangle)]
extern "C" fn scx_bpf_dsq_reenq(dsq_id: u64, _flags: u64) {
    let kernel = kernel();
    kernel.cost += KFUNC;
    kernel.push(kernel.now + kernel.cost, Event::Reenqueue(local_on(dsq_id).expect("a local DSQ")));
}

#[unsafe(no_mangle)]
extern "C" fn sim_enq_immed() -> u64 {
    if kernel().quirks.puts_back { SCX_ENQ_IMMED_FLAG } else { 0 }
}

#[unsafe(no_mangle)]
extern "C" fn bpf_iter_scx_dsq_new(it: &mut MaybeUninit<bpf_iter_scx_dsq>, dsq_id: u64, flags: u64) {
    let seq = dsq(dsq_id).map_or(0, |dsq| dsq.seq);
    it.write(bpf_iter_scx_dsq { dsq_id, flags, seq, ..Default::default() });
}

#[unsafe(no_mangle)]
extern "C" fn bpf_iter_scx_dsq_next(it: &mut bpf_iter_scx_dsq) -> *mut task_struct {
    let kernel = kernel();
    kernel.accesses(Word::Dsq(it.dsq_id), false);
    kernel.cost += KFUNC;
    let Some(dsq) = dsq(it.dsq_id) else { return std::ptr::null_mut() };
    let reverse = it.flags & u64::from(scx_public_consts_SCX_DSQ_ITER_REV) != 0;
    let Some(pos) = dsq.next_before(it.seq, it.pos as usize, reverse) else { return std::ptr::null_mut() };
    it.pos = pos as u32 + 1;
    it.checks += 1;
    let Some(task) = dsq.get(if reverse { dsq.len() - 1 - pos } else { pos }) else { return std::ptr::null_mut() };
    if let Some(call) = kernel.call.as_mut() {
        let checks = if reverse { &mut call.checks_back } else { &mut call.checks };
        *checks = it.checks.max(*checks);
    }
    kernel.tasks[task].raw
}

#[unsafe(no_mangle)]
extern "C" fn scx_bpf_dsq_move(it: &mut bpf_iter_scx_dsq, p: *mut task_struct, dsq_id: u64, enq_flags: u64) -> bool {
    let from = it.dsq_id as usize;
    let kernel = kernel();
    let task = id(p);
    if matches!(kernel.call, Some(call) if call.op == Op::CpuOffline)
        && local_on(dsq_id) == Some(kernel.tasks[task].cpu)
    {
        it.pos -= 1;
        kernel.lock_dsq(from);
        kernel.take_out(task);
        kernel.insert(task, dsq_id, None, 0);
        return true;
    }
    if dsq_id != SCX_DSQ_LOCAL {
        kernel.violate("move", format!("to DSQ {dsq_id:#x}: only moves to the local one are simulated"));
        return false;
    }
    kernel.accesses(Word::Dsq(from as u64), true);
    kernel.lock_dsq(from);
    if let Some(slot) = kernel.native.slot(kernel.cpu).filter(|_| kernel.quirks.claimed_while_stealing) {
        kernel.native.clear_idle_bit(slot);
        return false;
    }
    if kernel.tasks[task].place != Place::Dsq(from) {
        return false;
    }
    let moved = kernel.move_task_to_local(task, enq_flags);
    if !moved {
        kernel.violate("move", format!("task {task} may not run on CPU {}", kernel.cpu));
    }
    moved
}

#[unsafe(no_mangle)]
extern "C" fn scx_bpf_dsq_move_set_vtime(it: &mut bpf_iter_scx_dsq, vtime: u64) {
    it.vtime = vtime;
}

#[unsafe(no_mangle)]
extern "C" fn scx_bpf_dsq_move_vtime(it: &mut bpf_iter_scx_dsq, p: *mut task_struct, dsq_id: u64, _flags: u64) -> bool {
    let kernel = kernel();
    let task = id(p);
    let from = it.dsq_id as usize;
    if !matches!(kernel.call, Some(call) if call.op == Op::Dispatch) || kernel.tasks[task].cpu != kernel.cpu {
        kernel.violate("move", format!("task {task} is moved between queues, and its runqueue is not locked"));
        return false;
    }
    if kernel.tasks[task].place != Place::Dsq(from) {
        return false;
    }
    kernel.lock_dsq(from);
    kernel.take_out(task);
    if is_throttled_queue(from) {
        kernel.tasks[task].allowed_at = kernel.now;
    }
    it.pos -= 1;
    kernel.tell(Moment::Sent { task, dsq_id });
    kernel.insert(task, dsq_id, Some(it.vtime), 0);
    true
}

#[unsafe(no_mangle)]
extern "C" fn bpf_task_work_schedule_resume(
    p: *mut task_struct,
    _work: *mut c_void,
    _map: *const c_void,
    callback: Work,
) -> i32 {
    let kernel = charged();
    if kernel.works_fail {
        return -libc::ENOMEM;
    }
    kernel.tasks[id(p)].work = Some(callback);
    0
}

#[unsafe(no_mangle)]
unsafe extern "C" fn sim_task_storage(map: *const c_void, p: *mut task_struct, size: u64, create: bool) -> *mut c_void {
    let kernel = charged();
    let storage = &mut kernel.tasks[id(p)].storage;
    if let Some((_, value)) = storage.iter_mut().find(|(of, _)| *of == map) {
        return value.as_mut_ptr().cast();
    }
    if !create {
        return std::ptr::null_mut();
    }
    storage.push((map, vec![0; (size as usize).div_ceil(8)].into()));
    storage.last_mut().map_or(std::ptr::null_mut(), |(_, value)| value.as_mut_ptr().cast())
}

#[unsafe(no_mangle)]
extern "C" fn sim_array(map: *const c_void, key: u32, size: u64, max_entries: u64) -> *mut c_void {
    if u64::from(key) >= max_entries {
        return std::ptr::null_mut();
    }
    let value = kernel().arrays.entry((map as usize, key.into()));
    value.or_insert_with(|| vec![0; (size as usize).div_ceil(8)].into()).as_mut_ptr().cast()
}

#[unsafe(no_mangle)]
extern "C" fn sim_hash(map: *const c_void, key: u64, _size: u64) -> *mut c_void {
    let kernel = charged();
    kernel.hashes.get_mut(&(map as usize, key)).map_or(std::ptr::null_mut(), |value| value.as_mut_ptr().cast())
}

#[unsafe(no_mangle)]
unsafe extern "C" fn sim_hash_insert(map: *const c_void, key: u64, value: *const c_void, size: u64) -> i32 {
    let kernel = charged();
    if kernel.hashes_full {
        return -libc::ENOMEM;
    }
    // SAFETY: on the program's stack.
    let value = unsafe { std::slice::from_raw_parts(value.cast::<u64>(), size as usize / 8) };
    match kernel.hashes.entry((map as usize, key)) {
        Entry::Occupied(_) => -libc::EEXIST,
        Entry::Vacant(entry) => {
            entry.insert(value.into());
            0
        }
    }
}

#[unsafe(no_mangle)]
extern "C" fn sim_hash_delete(map: *const c_void, key: u64) -> i32 {
    let kernel = charged();
    kernel.hashes.remove(&(map as usize, key)).map_or(-libc::ENOENT, |_| 0)
}

#[unsafe(no_mangle)]
extern "C" fn sim_timer_init(timer: *mut c_void, map: *mut c_void) -> i32 {
    kernel().init_timer(timer, map)
}

#[unsafe(no_mangle)]
extern "C" fn sim_timer_set_callback(timer: *mut c_void, callback: Callback) -> i32 {
    kernel().timer_of(timer).map_or(-libc::EINVAL, |timer| {
        timer.callback = Some(callback);
        0
    })
}

#[unsafe(no_mangle)]
extern "C" fn bpf_timer_start(timer: *mut c_void, delay: u64, _flags: u64) -> i32 {
    let kernel = charged();
    kernel.start_timer(timer, delay)
}

#[unsafe(no_mangle)]
extern "C" fn bpf_timer_cancel(timer: *mut c_void) -> i32 {
    kernel().timer_of(timer).map_or(-libc::EINVAL, |timer| timer.due.take().is_some().into())
}

#[unsafe(no_mangle)]
extern "C" fn bpf_cgroup_from_id(id: u64) -> *mut cgroup {
    let found = kernel().cgroups.iter_mut().find(|cgroup| cgroup.alive && cgroup.kernel_id() == id);
    found.map_or(std::ptr::null_mut(), |cgroup| &raw mut *cgroup.raw)
}

#[unsafe(no_mangle)]
extern "C" fn bpf_cgroup_release(_cgrp: *mut cgroup) {}

#[unsafe(no_mangle)]
extern "C" fn sim_can_loop() -> bool {
    let kernel = kernel();
    let Some(call) = kernel.call.as_mut() else { return true };
    call.rounds += 1;
    if call.rounds > MAX_ROUNDS {
        let op = call.op;
        kernel.violate("budget", format!("a loop of {op:?} does not end"));
        return false;
    }
    true
}

/// Functions that instrumented code calls before each load and store, and at each function's entry.
#[cfg(feature = "lines")]
mod accesses {
    use super::{c_void, tell_lines};

    macro_rules! accesses {
        ($($name:ident $store:literal),*) => {
            $(#[unsafe(no_mangle)]
            extern "C" fn $name(addr: *const c_void) {
                tell_lines(addr, $store);
            })*
        };
    }
    accesses!(
        __sanitizer_cov_load1 false, __sanitizer_cov_load2 false, __sanitizer_cov_load4 false,
        __sanitizer_cov_load8 false, __sanitizer_cov_load16 false,
        __sanitizer_cov_store1 true, __sanitizer_cov_store2 true, __sanitizer_cov_store4 true,
        __sanitizer_cov_store8 true, __sanitizer_cov_store16 true
    );

    #[unsafe(no_mangle)]
    extern "C" fn __sanitizer_cov_trace_pc() {}
}

fn tell_lines(addr: *const c_void, store: bool) {
    // SAFETY: as kernel(); code outside of callbacks does not count.
    let Some(kernel) = (unsafe { try_current() }) else { return };
    if let Some(probe) = &kernel.probe {
        probe.borrow_mut().accessed(&kernel.machine, kernel.cpu, addr as usize, store);
    }
}

#[unsafe(no_mangle)]
extern "C" fn sim_load(addr: *const c_void) {
    kernel().accesses_variable(addr as usize, false);
    access(addr, Line::load);
}

/// Return whether the memory is used by many CPUs. If it is, add the cost of the access.
fn access(addr: *const c_void, access: fn(&mut Line, &Machine, usize) -> u64) -> bool {
    let kernel = kernel();
    if !is_shared(addr as usize) {
        return false;
    }
    let line = kernel.shared_lines.entry(addr as usize / CACHE_LINE).or_default();
    let cost = access(line, &kernel.machine, kernel.cpu);
    kernel.lines_moved += u64::from(cost > 0);
    kernel.cost += cost;
    true
}

#[unsafe(no_mangle)]
extern "C" fn sim_store(addr: *const c_void) {
    kernel().accesses_variable(addr as usize, true);
    // The compiler does not instrument atomics.
    tell_lines(addr, true);
    if access(addr, Line::store) {
        let kernel = kernel();
        kernel.cost += KFUNC;
        if let Some(cpu) = kernel.quirks.queued_at_store.take() {
            kernel.native.add_queued_load(cpu, 1);
        }
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn sim_report(error: bool, text: *const c_char) {
    // SAFETY: a string on the caller's stack.
    let text = unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned();
    if error {
        kernel().violate("scx_bpf_error", text);
    }
}

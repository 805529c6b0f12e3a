// SPDX-License-Identifier: GPL-2.0-only
//! A scenario in the kernel that runs: each task is a thread, a forked one a process, and all callbacks of the attached
//! scheduler are traced.
//!
//! ```text
//! director (CPU 0)   makes the tasks, says when they start, does what is done from outside, waits until all have ended
//! tasks (CPUs 1-3)   sleep until their start, do their steps, end
//! rt (CPUs 1-3)      SCHED_FIFO: sleeps on an eventfd that says for how many ns it is to take its CPU
//! ```
//!
//! The first sleep and all before are left out. A run in which a task of no concern takes a CPU from a scripted one, or
//! the other way round, is no good.

use std::cell::RefCell;
use std::collections::HashMap;
use std::ffi::CStr;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicI32, AtomicU64, Ordering};
use std::time::Duration;
use std::{fs, io, mem, ptr, thread};

use anyhow::{Context, Result, anyhow, ensure};
use libbpf_rs::query::ProgInfoIter;
use libbpf_rs::{Link, MapCore, Object, ObjectBuilder, Program, RingBuffer, RingBufferBuilder};
use magpie_sim::kernel::Quirks;
use magpie_sim::time::{MSEC, SEC};
use magpie_sim::trace::Op;

use crate::order::{Event, Order, Who};
use crate::script::{Action, START_GAP, Scenario, Step, TaskIndex};

const BPF_OBJECT: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/trace.bpf.o"));

/// Callbacks of the scheduler that are traced. The kernel keeps this much of a program's name.
const TRACED: [Op; 8] =
    [Op::SelectCpu, Op::Enqueue, Op::Dispatch, Op::Running, Op::Stopping, Op::Yield, Op::UpdateIdle, Op::CpuRelease];
const NAME_LEN: usize = 15;

const MAX_TASKS: usize = 16;
/// From telling the tasks when they start to that: they are asleep by then, however slow the machine is.
const LEAD: u64 = 40 * MSEC;
/// A scenario that takes longer hangs.
const DEADLINE: u64 = 10 * SEC;
const DIRECTOR_CPU: usize = 0;
const NR_CPUS: usize = 4;

/// `struct callback` of conformance/trace.bpf.c.
#[derive(Clone, Copy)]
#[repr(C)]
struct Callback {
    at: u64,
    arg: u64,
    cpu: u32,
    pid: i32,
    migration_disabled: u64,
    name: [u8; 16],
}

/// What director and tasks share.
#[derive(Default)]
struct Shared {
    start: AtomicU64,
    pids: [AtomicI32; MAX_TASKS],
}

pub struct Stage {
    callbacks: Rc<RefCell<Vec<Callback>>>,
    ring: RingBuffer<'static>,
    // Held for the tracing to go on.
    _links: Vec<Link>,
    _object: Object,
    /// Of the kernel that runs. Known after a scenario.
    pub quirks: Quirks,
    /// Of the CPUs' SCHED_FIFO tasks.
    rt: Vec<Arc<OwnedFd>>,
}

impl Stage {
    pub fn new() -> Result<Self> {
        let (object, links) = trace()?;
        let callbacks = Rc::new(RefCell::new(Vec::new()));
        let sink = callbacks.clone();
        let map = object.maps().find(|map| map.name() == "callbacks").context("no map of callbacks")?;
        let mut builder = RingBufferBuilder::new();
        builder.add(&map, move |bytes: &[u8]| {
            assert!(bytes.len() >= size_of::<Callback>());
            // SAFETY: as long as that, and made by the BPF program as one; any bits are valid.
            sink.borrow_mut().push(unsafe { ptr::read_unaligned(bytes.as_ptr().cast()) });
            0
        })?;
        let ring = builder.build()?;
        send_all_to(DIRECTOR_CPU)?;
        let rt = (0..NR_CPUS).map(start_rt).collect::<Result<_>>()?;
        let quirks = Quirks {
            reenqueues_from_anywhere: links.len() < TRACED.len(),
            puts_back: knows("scx_bpf_dsq_reenq")?,
            ..Quirks::default()
        };
        Ok(Self { callbacks, ring, _links: links, _object: object, quirks, rt })
    }

    /// `None` if the run was disturbed.
    pub fn play(&mut self, scenario: &Scenario) -> Result<Option<Order>> {
        ensure!(scenario.tasks.len() <= MAX_TASKS, "too many tasks");
        let channels = (scenario.channels.iter())
            .map(|channel| if channel.pipe { Channel::pipe() } else { Channel::eventfd() })
            .collect::<Result<Vec<_>>>()?;
        let go = Channel::eventfd()?;
        let play = Play { scenario, shared: Shared::default(), channels, rt: &self.rt };
        let mut late = false;
        let start = thread::scope(|scope| -> Result<u64> {
            let mut tasks = Vec::new();
            for (index, task) in scenario.tasks.iter().enumerate().filter(|(_, task)| !task.is_child()) {
                let (play, go) = (&play, &go);
                tasks.push(scope.spawn(move || -> Result<()> {
                    play.shared.pids[index].store(own_tid(), Ordering::Release);
                    go.recv()?;
                    // It sleeps on the first, as in the simulator.
                    set_affinity(0, &task.cpus[..1])?;
                    set_affinity(0, &task.cpus)?;
                    sleep_until(play.shared.start.load(Ordering::Acquire) + index as u64 * START_GAP);
                    play.task(index)
                }));
            }
            let start = now() + LEAD;
            play.shared.start.store(start, Ordering::Release);
            tasks.iter().try_for_each(|_| go.send())?;
            for (at, action) in &scenario.actions {
                sleep_until(start + at);
                match play.act(action) {
                    Err(err) if is_gone(&err) => late = true,
                    done => done?,
                }
            }
            while !tasks.iter().all(|task| task.is_finished()) {
                if now() > start + DEADLINE {
                    // Threads that hang cannot be waited for.
                    eprintln!("scenario {} does not end", scenario.name);
                    std::process::exit(1);
                }
                thread::sleep(Duration::from_millis(5));
            }
            for task in tasks {
                task.join().map_err(|_| anyhow!("a task panicked"))??;
            }
            Ok(start)
        })?;

        self.ring.consume()?;
        let callbacks = mem::take(&mut *self.callbacks.borrow_mut());
        self.quirks.prolog_disables_migration = callbacks.iter().all(|callback| callback.migration_disabled > 0);
        if late {
            eprintln!("  ({}: disturbed: the director came late)", scenario.name);
            return Ok(None);
        }
        Ok(judge(&play, start, &callbacks))
    }
}

/// What the trace says of the scenario; `None` if a CPU went from a scripted task to one of no concern, or back.
fn judge(play: &Play<'_>, start: u64, callbacks: &[Callback]) -> Option<Order> {
    let tasks: HashMap<i32, TaskIndex> = (play.shared.pids.iter().enumerate())
        .map(|(index, pid)| (pid.load(Ordering::Acquire), index))
        .filter(|&(pid, _)| pid != 0)
        .collect();
    let events: Vec<_> = (callbacks.iter())
        .filter(|callback| callback.at >= start)
        .map(|callback| {
            let who = match callback.pid {
                pid if pid <= 0 => Who::None,
                pid => tasks.get(&pid).map_or(Who::Other(pid), |&index| Who::Task(index)),
            };
            Event { at: callback.at, cpu: callback.cpu as usize, op: op(callback), who, arg: callback.arg }
        })
        .collect();
    let stranger = (DIRECTOR_CPU + 1..NR_CPUS).find_map(|cpu| {
        let turns =
            |event: &&Event| event.cpu == cpu && matches!(event.op, Op::Running | Op::Stopping | Op::UpdateIdle);
        let turns: Vec<_> = events.iter().filter(turns).map(|event| event.who).collect();
        turns.windows(2).find_map(|pair| match *pair {
            [Who::Task(_), Who::Other(pid)] | [Who::Other(pid), Who::Task(_)] => Some(pid),
            _ => None,
        })
    });
    if let Some(pid) = stranger {
        let name = fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
        eprintln!("  ({}: disturbed by {} {pid})", play.scenario.name, name.trim());
        return None;
    }
    Some(Order::new(play.scenario, &events))
}

fn op(callback: &Callback) -> Op {
    let name = CStr::from_bytes_until_nul(&callback.name).unwrap_or_default();
    *TRACED.iter().find(|op| op.name().as_bytes() == name.to_bytes()).expect("the BPF programs trace these")
}

/// Has the kernel a function of that name?
fn knows(name: &str) -> Result<bool> {
    let symbols = fs::read_to_string("/proc/kallsyms")?;
    Ok(symbols.lines().any(|line| line.split_whitespace().nth(2) == Some(name)))
}

/// Attaches a program to each callback of the scheduler that runs.
fn trace() -> Result<(Object, Vec<Link>)> {
    let running: HashMap<_, _> =
        ProgInfoIter::default().map(|info| (info.name.to_string_lossy().into_owned(), info.id)).collect();
    let mut open = ObjectBuilder::default().open_memory(BPF_OBJECT)?;
    let mut targets = Vec::new();
    for mut prog in open.progs_mut() {
        let name = prog.name().to_string_lossy().into_owned();
        let Some(callback) = name.strip_prefix("on_") else {
            // What scx_cargo links in.
            prog.set_autoload(false);
            continue;
        };
        let target = format!("magpie_{callback}");
        let id = running.get(&target[..target.len().min(NAME_LEN)]);
        if id.is_none() && callback == Op::CpuRelease.name() {
            // From 6.19 on it is left out.
            prog.set_autoload(false);
            continue;
        }
        let id = id.with_context(|| format!("no BPF program {target}: scx_magpie is not attached"))?;
        let fd = Program::fd_from_id(*id)?;
        prog.set_attach_target(fd.as_raw_fd(), Some(target))?;
        targets.push(fd);
    }
    let object = open.load().context("tracing the scheduler's programs")?;
    let mut links = Vec::new();
    for prog in object.progs_mut().filter(|prog| prog.autoload()) {
        links.push(prog.attach()?);
    }
    Ok((object, links))
}

/// A scenario being played, as its tasks know it.
struct Play<'a> {
    scenario: &'a Scenario,
    shared: Shared,
    channels: Vec<Channel>,
    rt: &'a [Arc<OwnedFd>],
}

impl Play<'_> {
    fn task(&self, index: TaskIndex) -> Result<()> {
        let mut children = Vec::new();
        for step in &self.scenario.tasks[index].steps {
            match step {
                Step::Run(ns) => run(*ns),
                Step::Sleep(ns) => sleep_until(now() + ns),
                Step::Send(channel) => self.channels[*channel].send()?,
                Step::Recv(channel) => self.channels[*channel].recv()?,
                Step::Yield => {
                    // SAFETY: no arguments.
                    unsafe { libc::sched_yield() };
                }
                Step::Fork(child) => {
                    let pid = fork(|| self.task(*child))?;
                    self.shared.pids[*child].store(pid, Ordering::Release);
                    children.push(pid);
                }
                Step::Wait => {
                    for child in children.drain(..) {
                        // SAFETY: no status is asked for.
                        check(unsafe { libc::waitpid(child, ptr::null_mut(), 0) })?;
                    }
                }
                Step::Do(action) => self.act(action)?,
            }
        }
        Ok(())
    }

    fn act(&self, action: &Action) -> Result<()> {
        let pid = |task: TaskIndex| self.shared.pids[task].load(Ordering::Acquire);
        match action {
            Action::Affinity(task, cpus) => set_affinity(pid(*task), cpus),
            Action::Nice(task, nice) => {
                // SAFETY: plain values.
                check(unsafe { libc::setpriority(libc::PRIO_PROCESS, pid(*task) as u32, *nice) }).map(drop)
            }
            Action::Rt(cpu, ns) => write(&*self.rt[*cpu], *ns),
        }
    }
}

/// By which tasks wake each other.
enum Channel {
    Eventfd(OwnedFd),
    Pipe { reader: OwnedFd, writer: OwnedFd },
}

impl Channel {
    fn eventfd() -> Result<Self> {
        // SAFETY: plain values; the descriptor is new.
        let fd = check(unsafe { libc::eventfd(0, libc::EFD_SEMAPHORE | libc::EFD_CLOEXEC) })?;
        Ok(Self::Eventfd(own(fd)))
    }

    fn pipe() -> Result<Self> {
        let mut fds = [0; 2];
        // SAFETY: room for two.
        check(unsafe { libc::pipe2(fds.as_mut_ptr(), libc::O_CLOEXEC) })?;
        Ok(Self::Pipe { reader: own(fds[0]), writer: own(fds[1]) })
    }

    fn send(&self) -> Result<()> {
        match self {
            Self::Eventfd(fd) => write(fd, 1),
            Self::Pipe { writer, .. } => write(writer, 1),
        }
    }

    fn recv(&self) -> Result<()> {
        match self {
            Self::Eventfd(fd) | Self::Pipe { reader: fd, .. } => read(fd).map(drop),
        }
    }
}

fn own(fd: i32) -> OwnedFd {
    use std::os::fd::FromRawFd;
    // SAFETY: just opened, by nobody else.
    unsafe { OwnedFd::from_raw_fd(fd) }
}

fn write(fd: impl AsFd, value: u64) -> Result<()> {
    // SAFETY: 8 bytes of ours.
    let size = unsafe { libc::write(fd.as_fd().as_raw_fd(), (&raw const value).cast(), 8) };
    ensure!(size == 8, "write: {}", io::Error::last_os_error());
    Ok(())
}

fn read(fd: impl AsFd) -> Result<u64> {
    let mut value = 0u64;
    // SAFETY: as above.
    let size = unsafe { libc::read(fd.as_fd().as_raw_fd(), (&raw mut value).cast(), 8) };
    ensure!(size == 8, "read: {}", io::Error::last_os_error());
    Ok(value)
}

fn check(result: i32) -> Result<i32> {
    if result < 0 { Err(anyhow!(io::Error::last_os_error())) } else { Ok(result) }
}

/// There is no such task any more.
fn is_gone(err: &anyhow::Error) -> bool {
    err.downcast_ref::<io::Error>().is_some_and(|err| err.raw_os_error() == Some(libc::ESRCH))
}

fn set_affinity(pid: i32, cpus: &[usize]) -> Result<()> {
    // SAFETY: a set of zeros is an empty one; all of them are below its size.
    unsafe {
        let mut set: libc::cpu_set_t = mem::zeroed();
        cpus.iter().for_each(|&cpu| libc::CPU_SET(cpu, &mut set));
        check(libc::sched_setaffinity(pid, size_of_val(&set), &set)).map(drop)
    }
}

/// Every thread that may be sent: kernel threads bound to a CPU may not.
fn send_all_to(cpu: usize) -> Result<()> {
    set_affinity(0, &[cpu])?;
    for process in fs::read_dir("/proc")?.flatten() {
        for thread in fs::read_dir(process.path().join("task")).into_iter().flatten().flatten() {
            if let Ok(tid) = thread.file_name().to_string_lossy().parse() {
                _ = set_affinity(tid, &[cpu]);
            }
        }
    }
    Ok(())
}

fn clock(id: libc::clockid_t) -> u64 {
    // SAFETY: writes a timespec.
    let time = unsafe {
        let mut time: libc::timespec = mem::zeroed();
        libc::clock_gettime(id, &mut time);
        time
    };
    time.tv_sec as u64 * SEC + time.tv_nsec as u64
}

fn now() -> u64 {
    clock(libc::CLOCK_MONOTONIC)
}

fn sleep_until(at: u64) {
    let time = libc::timespec { tv_sec: (at / SEC) as i64, tv_nsec: (at % SEC) as i64 };
    // SAFETY: reads a timespec.
    unsafe { libc::clock_nanosleep(libc::CLOCK_MONOTONIC, libc::TIMER_ABSTIME, &time, ptr::null_mut()) };
}

/// Busy for so many ns of CPU time.
fn run(ns: u64) {
    let until = clock(libc::CLOCK_THREAD_CPUTIME_ID) + ns;
    while clock(libc::CLOCK_THREAD_CPUTIME_ID) < until {}
}

fn own_tid() -> i32 {
    // SAFETY: no arguments.
    unsafe { libc::gettid() }
}

/// A process that does `what`, which must not need what other threads may hold, and ends.
fn fork(what: impl FnOnce() -> Result<()>) -> Result<i32> {
    // SAFETY: the child has one thread, and does not return.
    match check(unsafe { libc::fork() })? {
        0 => {
            let failed = what().is_err();
            // SAFETY: nothing of the parent's is to be run or flushed.
            unsafe { libc::_exit(failed.into()) }
        }
        pid => Ok(pid),
    }
}

/// The descriptor by which it is told to run, and for how long.
fn start_rt(cpu: usize) -> Result<Arc<OwnedFd>> {
    // SAFETY: plain values; the descriptor is new.
    let fd = Arc::new(own(check(unsafe { libc::eventfd(0, libc::EFD_CLOEXEC) })?));
    let orders = fd.clone();
    thread::spawn(move || -> Result<()> {
        set_affinity(0, &[cpu])?;
        let param = libc::sched_param { sched_priority: 50 };
        // SAFETY: reads param.
        check(unsafe { libc::sched_setscheduler(0, libc::SCHED_FIFO, &param) })?;
        loop {
            run(read(&*orders)?);
        }
    });
    Ok(fd)
}

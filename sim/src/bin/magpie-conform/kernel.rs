// SPDX-License-Identifier: GPL-2.0-only
//! Play a scenario in the running kernel: each task is a thread (a forked task a process), and
//! callbacks of the attached scheduler are traced.
//!
//! ```text
//! director (CPU 0)   creates the tasks, sets their start, carries out actions, waits until all have ended
//! tasks (CPUs 1-3)   sleep until their start, execute their steps, end
//! rt (CPUs 1-3)      SCHED_FIFO: reads from an eventfd for how many ns to take its CPU
//! ```
//!
//! Everything up to the first sleep is omitted. A run in which an unrelated task preempts a
//! scripted task, or vice versa, is discarded.

use std::cell::RefCell;
use std::collections::HashMap;
use std::ffi::CStr;
use std::io::{PipeReader, PipeWriter, Read, Write};
use std::iter::once;
use std::os::fd::AsRawFd;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicI32, AtomicU64, Ordering};
use std::time::Duration;
use std::{fs, mem, thread};

use anyhow::{Context, Result, anyhow, ensure};
use bytemuck::{Pod, Zeroable};
use libbpf_rs::query::ProgInfoIter;
use libbpf_rs::{Link, MapCore, Object, ObjectBuilder, Program, RingBuffer, RingBufferBuilder};
use magpie_sim::kernel::Quirks;
use magpie_sim::program::{Dist, Step};
use magpie_sim::time::{MSEC, SEC};
use magpie_sim::trace::Op;
use nix::errno::Errno;
use nix::sched::{CpuSet, sched_setaffinity};
use nix::sys::eventfd::{EfdFlags, EventFd};
use nix::sys::time::TimeSpec;
use nix::sys::wait::waitpid;
use nix::time::{ClockId, ClockNanosleepFlags, clock_nanosleep};
use nix::unistd::{ForkResult, Pid, gettid};
use scx_magpie::publisher::{clock, monotonic};

use crate::order::{Event, Order, Who};
use crate::script::{START_GAP, Scenario, TaskIndex};

const BPF_OBJECT: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/trace.bpf.o"));

/// Callbacks of the scheduler to trace. The kernel keeps NAME_LEN characters of a program's name.
const TRACED: [Op; 8] =
    [Op::SelectCpu, Op::Enqueue, Op::Dispatch, Op::Running, Op::Stopping, Op::Yield, Op::UpdateIdle, Op::CpuRelease];
const NAME_LEN: usize = 15;

const MAX_TASKS: usize = 16;
/// Time between setting the start and the start: all tasks are asleep by then, even when emulated.
const LEAD: u64 = 40 * MSEC;
/// A scenario that takes longer than this hangs.
const DEADLINE: u64 = 10 * SEC;
const DIRECTOR_CPU: usize = 0;
const NR_CPUS: usize = 4;

/// `struct callback` of conformance/trace.bpf.c.
#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
struct Callback {
    at: u64,
    arg: u64,
    cpu: u32,
    pid: i32,
    migration_disabled: u64,
    name: [u8; 16],
}

#[derive(Default)]
struct Shared {
    start: AtomicU64,
    pids: [AtomicI32; MAX_TASKS],
}

pub struct Stage {
    callbacks: Rc<RefCell<Vec<Callback>>>,
    ring: RingBuffer<'static>,
    // Keeps tracing active.
    _links: Vec<Link>,
    _object: Object,
    /// Quirks of the running kernel, known after a scenario.
    pub quirks: Quirks,
    /// The eventfds of the SCHED_FIFO tasks, by CPU.
    rt: Vec<Arc<EventFd>>,
}

impl Stage {
    pub fn new() -> Result<Self> {
        let (object, links) = trace()?;
        let callbacks = Rc::new(RefCell::new(Vec::new()));
        let sink = callbacks.clone();
        let map = object.maps().find(|map| map.name() == "callbacks").context("no map of callbacks")?;
        let mut builder = RingBufferBuilder::new();
        builder.add(&map, move |bytes: &[u8]| {
            sink.borrow_mut().push(bytemuck::pod_read_unaligned(&bytes[..size_of::<Callback>()]));
            0
        })?;
        let ring = builder.build()?;
        send_all_to(DIRECTOR_CPU)?;
        let rt = (0..NR_CPUS).map(start_rt).collect::<Result<_>>()?;
        let quirks = Quirks {
            reenqueues_from_anywhere: links.len() < TRACED.len(),
            binds_as_a_change: links.len() < TRACED.len(),
            puts_back: knows("scx_bpf_dsq_reenq")?,
            ..Quirks::default()
        };
        Ok(Self { callbacks, ring, _links: links, _object: object, quirks, rt })
    }

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
                    play.shared.pids[index].store(gettid().as_raw(), Ordering::Release);
                    go.recv()?;
                    // The task sleeps on its first CPU, as in the simulator.
                    set_affinity(0, task.cpus.iter().take(1))?;
                    set_affinity(0, task.cpus.iter())?;
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
                    // Threads that hang cannot be joined.
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

/// Extract the order; `None` if an unrelated task preempted a scripted one, or vice versa.
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

/// Return true if the kernel has a function with this name.
fn knows(name: &str) -> Result<bool> {
    let symbols = fs::read_to_string("/proc/kallsyms")?;
    Ok(symbols.lines().any(|line| line.split_whitespace().nth(2) == Some(name)))
}

/// Attach a program to each callback of the running scheduler.
fn trace() -> Result<(Object, Vec<Link>)> {
    let running: HashMap<_, _> =
        ProgInfoIter::default().map(|info| (info.name.to_string_lossy().into_owned(), info.id)).collect();
    let mut open = ObjectBuilder::default().open_memory(BPF_OBJECT)?;
    let mut targets = Vec::new();
    for mut prog in open.progs_mut() {
        let name = prog.name().to_string_lossy().into_owned();
        let Some(callback) = name.strip_prefix("on_") else {
            // A program that scx_cargo links in.
            prog.set_autoload(false);
            continue;
        };
        let target = format!("magpie_{callback}");
        let id = running.get(&target[..target.len().min(NAME_LEN)]);
        if id.is_none() && callback == Op::CpuRelease.name() {
            // From 6.19 on the scheduler lacks this callback.
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

struct Play<'a> {
    scenario: &'a Scenario,
    shared: Shared,
    channels: Vec<Channel>,
    rt: &'a [Arc<EventFd>],
}

impl Play<'_> {
    fn task(&self, index: TaskIndex) -> Result<()> {
        let mut children = Vec::new();
        for step in &self.scenario.tasks[index].steps {
            match step {
                Step::Run(Dist::Fixed(ns)) => run(*ns),
                Step::Sleep(Dist::Fixed(ns)) => sleep_until(now() + ns),
                Step::Send(channel) => self.channels[*channel].send()?,
                Step::Recv(channel) => self.channels[*channel].recv()?,
                Step::Yield => thread::yield_now(),
                Step::Fork(child) => {
                    let pid = fork(|| self.task(*child))?;
                    self.shared.pids[*child].store(pid.as_raw(), Ordering::Release);
                    children.push(pid);
                }
                Step::Wait => {
                    for child in children.drain(..) {
                        waitpid(child, None)?;
                    }
                }
                action => self.act(action)?,
            }
        }
        Ok(())
    }

    fn act(&self, action: &Step) -> Result<()> {
        let pid = |task: TaskIndex| self.shared.pids[task].load(Ordering::Acquire);
        match action {
            Step::Affinity(Some(task), cpus) => set_affinity(pid(*task), cpus.iter())?,
            Step::Nice(Some(task), nice) => {
                // SAFETY: plain values.
                Errno::result(unsafe { libc::setpriority(libc::PRIO_PROCESS, pid(*task) as u32, *nice) }).map(drop)?;
            }
            Step::HigherClass(cpu, ns) => self.rt[*cpu].write(*ns).map(drop)?,
            _ => unreachable!("the script has no such step"),
        }
        Ok(())
    }
}

enum Channel {
    Eventfd(EventFd),
    Pipe(PipeReader, PipeWriter),
}

impl Channel {
    fn eventfd() -> Result<Self> {
        Ok(Self::Eventfd(EventFd::from_flags(EfdFlags::EFD_SEMAPHORE | EfdFlags::EFD_CLOEXEC)?))
    }

    fn pipe() -> Result<Self> {
        let (reader, writer) = std::io::pipe()?;
        Ok(Self::Pipe(reader, writer))
    }

    fn send(&self) -> Result<()> {
        match self {
            Self::Eventfd(fd) => fd.write(1).map(drop)?,
            Self::Pipe(_, writer) => (&*writer).write_all(&[0; 8])?,
        }
        Ok(())
    }

    fn recv(&self) -> Result<()> {
        match self {
            Self::Eventfd(fd) => fd.read().map(drop)?,
            Self::Pipe(reader, _) => (&*reader).read_exact(&mut [0; 8])?,
        }
        Ok(())
    }
}

/// Return true if the error says that the task has exited.
fn is_gone(err: &anyhow::Error) -> bool {
    err.downcast_ref() == Some(&Errno::ESRCH)
}

fn set_affinity(pid: i32, mut cpus: impl Iterator<Item = usize>) -> Result<()> {
    let mut set = CpuSet::new();
    cpus.try_for_each(|cpu| set.set(cpu))?;
    Ok(sched_setaffinity(Pid::from_raw(pid), &set)?)
}

/// Confine all threads to a CPU, except kernel threads that are bound to another.
fn send_all_to(cpu: usize) -> Result<()> {
    set_affinity(0, once(cpu))?;
    for process in fs::read_dir("/proc")?.flatten() {
        for thread in fs::read_dir(process.path().join("task")).into_iter().flatten().flatten() {
            if let Ok(tid) = thread.file_name().to_string_lossy().parse() {
                _ = set_affinity(tid, once(cpu));
            }
        }
    }
    Ok(())
}

fn now() -> u64 {
    monotonic().as_nanos() as u64
}

fn sleep_until(at: u64) {
    let at = TimeSpec::from_duration(Duration::from_nanos(at));
    // Only a signal would end the sleep early, and none is sent.
    _ = clock_nanosleep(ClockId::CLOCK_MONOTONIC, ClockNanosleepFlags::TIMER_ABSTIME, &at);
}

/// Spin for this many ns of CPU time.
fn run(ns: u64) {
    let cpu_time = || clock(ClockId::CLOCK_THREAD_CPUTIME_ID);
    let until = cpu_time() + Duration::from_nanos(ns);
    while cpu_time() < until {}
}

/// Fork a process that runs `what` and exits. `what` must not use locks of other threads.
fn fork(what: impl FnOnce() -> Result<()>) -> Result<Pid> {
    // SAFETY: the child has one thread, and does not return.
    match unsafe { nix::unistd::fork() }? {
        ForkResult::Child => {
            let failed = what().is_err();
            // SAFETY: exits without the parent's handlers and buffers.
            unsafe { libc::_exit(failed.into()) }
        }
        ForkResult::Parent { child } => Ok(child),
    }
}

/// Start a CPU's SCHED_FIFO task. Return the eventfd to which run times are written.
fn start_rt(cpu: usize) -> Result<Arc<EventFd>> {
    let fd = Arc::new(EventFd::from_flags(EfdFlags::EFD_CLOEXEC)?);
    let orders = fd.clone();
    thread::spawn(move || -> Result<()> {
        set_affinity(0, once(cpu))?;
        let param = libc::sched_param { sched_priority: 50 };
        // SAFETY: reads param.
        Errno::result(unsafe { libc::sched_setscheduler(0, libc::SCHED_FIFO, &param) })?;
        loop {
            run(orders.read()?);
        }
    });
    Ok(fd)
}

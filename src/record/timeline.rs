// SPDX-License-Identifier: GPL-2.0-only
//! Tell from the events of `bpf/record.bpf.c` what the scheduler did: where it placed a task that
//! woke up, which CPU stole it, when it was preempted or throttled.
//!
//! | event on a track | told from |
//! |---|---|
//! | of the task: `wakeup: ...` | the DSQ of the task at sched_wakeup, and whether its CPU is idle |
//! | of the task: `throttled by cpu.max` | the DSQ of a task that a switch stopped, until it leaves |
//! | of the task: `stolen`; of the CPU: `steal` | sched_migrate_task, executed by the CPU that takes |
//! | of the task: `moved` | the same, executed by another CPU |
//! | of the CPU: `preemption` | a task that woke up while a runnable one ran runs in its place |

use std::collections::HashMap;
use std::io::{self, Write};

use super::writer::{Task, Track, Value, Writer};
use crate::bpf_intf::{
    record_event, record_kind_RECORD_MIGRATE as MIGRATE, record_kind_RECORD_NEW as NEW,
    record_kind_RECORD_SWITCH as SWITCH, record_kind_RECORD_UNTHROTTLED as UNTHROTTLED,
    record_kind_RECORD_WAKEUP as WAKEUP, record_kind_RECORD_WAKING as WAKING,
    record_queue_RECORD_LOCAL_QUEUE as LOCAL_QUEUE, record_queue_RECORD_NO_QUEUE as NO_QUEUE,
    record_queue_RECORD_THROTTLED_QUEUE as THROTTLED_QUEUE, record_states_RECORD_PREEMPTED as PREEMPTED,
};

/// Bits of task_struct.__state and exit_state (include/linux/sched.h).
const TASK_UNINTERRUPTIBLE: u32 = 0x2;
const TASK_DEAD: u32 = 0x80;
const TASK_NOLOAD: u32 = 0x400;
const TASK_RTLOCK_WAIT: u32 = 0x1000;
const TASK_FROZEN: u32 = 0x8000;
/// The bits that a tracepoint reports.
const TASK_REPORT: u32 = 0x7f;

/// The tracepoint's values for an idle kernel thread, and for a preempted task.
const REPORT_IDLE: u32 = 0x80;
const REPORT_PREEMPTED: u32 = 0x100;

/// Names of events.
pub mod name {
    pub const IDLE_PREVIOUS: &str = "wakeup: previous CPU, idle";
    pub const IDLE_WAKER: &str = "wakeup: waking CPU, idle";
    pub const IDLE_OTHER: &str = "wakeup: another idle CPU";
    pub const HANDOFF: &str = "wakeup: waker's CPU, handed off";
    pub const NEXT: &str = "wakeup: next on a busy CPU";
    pub const QUEUED: &str = "wakeup: queued";
    pub const THROTTLED: &str = "throttled by cpu.max";
    pub const STEAL: &str = "steal";
    pub const STOLEN: &str = "stolen";
    pub const MOVED: &str = "moved";
    pub const PREEMPTION: &str = "preemption";
}

#[derive(Default)]
struct CpuState {
    current: Task,
    since: u64,
}

#[derive(Default)]
struct TaskState {
    /// When it began to wait for a CPU; `None`: it runs, sleeps, or that is not known.
    waits_since: Option<u64>,
    woke_at: u64,
    /// The CPU on which it ran before it woke up, and the CPU that woke it.
    previous: i32,
    waker: usize,
    is_throttled: bool,
}

pub struct Timeline<W: Write> {
    pub writer: Writer<W>,
    cpus: HashMap<usize, CpuState>,
    /// By PID.
    tasks: HashMap<i32, TaskState>,
    /// Returns the path of a cgroup by the kernel's id.
    cgroup_name: Box<dyn FnMut(u64) -> String>,
}

impl<W: Write> Timeline<W> {
    pub fn new(writer: Writer<W>, cgroup_name: impl FnMut(u64) -> String + 'static) -> Self {
        Self { writer, cpus: HashMap::new(), tasks: HashMap::new(), cgroup_name: Box::new(cgroup_name) }
    }

    /// Take an event that `cpu` executed. Events of one CPU come in order.
    pub fn take(&mut self, cpu: usize, event: &record_event) -> io::Result<()> {
        match u32::from(event.kind) {
            SWITCH => self.switch(cpu, event),
            WAKING => {
                let state = self.tasks.entry(event.pid).or_default();
                (state.woke_at, state.previous, state.waker) = (event.at, event.cpu, cpu);
                state.waits_since = Some(event.at);
                self.writer.waking(cpu, event.at, &task(event), event.cpu as usize)
            }
            WAKEUP => self.placed(cpu, event),
            NEW => {
                let state = self.tasks.entry(event.pid).or_default();
                *state =
                    TaskState { waits_since: Some(event.at), woke_at: event.at, previous: -1, ..TaskState::default() };
                state.waker = cpu;
                self.writer.new_task(cpu, event.at, &task(event), event.cpu as usize)?;
                self.placed(cpu, event)
            }
            MIGRATE => self.migrate(cpu, event),
            UNTHROTTLED => self.end_throttling(event.pid, event.at),
            _ => Ok(()),
        }
    }

    fn switch(&mut self, cpu: usize, event: &record_event) -> io::Result<()> {
        let (at, next, prev) = (event.at, task(event), event.other);
        self.writer.switch(cpu, at, reported_state(event.state), &next)?;
        let is_runnable = event.state == 0 || event.state & PREEMPTED != 0;
        let is_throttled = u32::from(event.queue) == THROTTLED_QUEUE;
        if prev != 0 {
            let state = self.tasks.entry(prev).or_default();
            state.waits_since = is_runnable.then_some(at);
            let begins = is_throttled && !std::mem::replace(&mut state.is_throttled, is_throttled);
            if begins {
                let cgroup = (self.cgroup_name)(event.cgroup);
                self.writer.begin(Track::Task(prev), at, name::THROTTLED, &[("cgroup", Value::Text(&cgroup))])?;
            }
        }
        let state = self.tasks.entry(next.pid).or_default();
        let woke_at = state.woke_at;
        state.waits_since = None;
        self.end_throttling(next.pid, at)?;
        let before = self.cpus.entry(cpu).or_default();
        // Both are known, and the one that ran is not the idle task.
        if is_runnable
            && !is_throttled
            && prev != 0
            && next.pid != 0
            && before.current.pid == prev
            && woke_at > before.since
        {
            let values = [
                ("task", Value::Text(&label(&before.current))),
                ("by", Value::Text(&label(&next))),
                ("ran_us", Value::Int(micros(before.since, at))),
            ];
            self.writer.instant(Track::Cpu(cpu), at, name::PREEMPTION, &values)?;
        }
        *before = CpuState { current: next, since: at };
        if event.state & TASK_DEAD != 0 {
            self.tasks.remove(&prev);
        }
        Ok(())
    }

    /// Show where a task that wakes up was placed, if the scheduler is scx_magpie.
    fn placed(&mut self, executes: usize, event: &record_event) -> io::Result<()> {
        if u32::from(event.queue) == NO_QUEUE {
            return Ok(());
        }
        let state = self.tasks.entry(event.pid).or_default();
        // The recording began between its waking and its wakeup.
        if state.woke_at == 0 {
            (state.previous, state.waker) = (-1, executes);
        }
        let is_idle = self.cpus.get(&(event.cpu as usize)).is_some_and(|cpu| cpu.current.pid == 0);
        let by_waker = event.cpu as usize == state.waker;
        let name = match u32::from(event.queue) {
            LOCAL_QUEUE if is_idle && event.cpu == state.previous => name::IDLE_PREVIOUS,
            LOCAL_QUEUE if is_idle && by_waker => name::IDLE_WAKER,
            LOCAL_QUEUE if is_idle => name::IDLE_OTHER,
            LOCAL_QUEUE if by_waker => name::HANDOFF,
            LOCAL_QUEUE => name::NEXT,
            _ => name::QUEUED,
        };
        let values = [
            ("cpu", Value::Int(event.cpu.into())),
            ("previous_cpu", Value::Int(state.previous.into())),
            ("waking_cpu", Value::Int(state.waker as i64)),
        ];
        self.writer.instant(Track::Task(event.pid), event.at, name, &values)
    }

    fn migrate(&mut self, executes: usize, event: &record_event) -> io::Result<()> {
        let (at, from, to) = (event.at, event.other, event.cpu);
        let waits_since = self.tasks.get(&event.pid).and_then(|state| state.waits_since);
        let ends = [("from_cpu", Value::Int(from.into())), ("to_cpu", Value::Int(to.into()))];
        if executes as i32 != to {
            return self.writer.instant(Track::Task(event.pid), at, name::MOVED, &ends);
        }
        self.writer.instant(Track::Task(event.pid), at, name::STOLEN, &ends)?;
        let task = label(&task(event));
        let mut values = vec![
            ("task", Value::Text(&task)),
            ("from_cpu", Value::Int(from.into())),
            ("was_busy", Value::Int(event.state.into())),
        ];
        if let Some(since) = waits_since {
            values.push(("waited_us", Value::Int(micros(since, at))));
        }
        self.writer.instant(Track::Cpu(executes), at, name::STEAL, &values)
    }

    fn end_throttling(&mut self, pid: i32, at: u64) -> io::Result<()> {
        let was_throttled = self.tasks.get_mut(&pid).is_some_and(|state| std::mem::take(&mut state.is_throttled));
        if was_throttled { self.writer.end(Track::Task(pid), at) } else { Ok(()) }
    }
}

fn micros(from: u64, to: u64) -> i64 {
    (to.saturating_sub(from) / 1000) as i64
}

fn label(task: &Task) -> String {
    format!("{} {}", task.comm, task.pid)
}

fn task(event: &record_event) -> Task {
    let comm: Vec<u8> = event.comm.iter().map(|&byte| byte as u8).take_while(|&byte| byte != 0).collect();
    let (pid, tgid, prio) = (event.pid, event.tgid, event.prio.into());
    Task { pid, tgid, prio, comm: String::from_utf8_lossy(&comm).into_owned() }
}

/// Return the state of a task that stops to run as the tracepoint sched_switch reports it.
fn reported_state(state: u32) -> u32 {
    if state & PREEMPTED != 0 {
        return REPORT_PREEMPTED;
    }
    if state & (TASK_UNINTERRUPTIBLE | TASK_NOLOAD) == TASK_UNINTERRUPTIBLE | TASK_NOLOAD {
        return REPORT_IDLE;
    }
    if state & (TASK_RTLOCK_WAIT | TASK_FROZEN) != 0 {
        return TASK_UNINTERRUPTIBLE;
    }
    match state & TASK_REPORT {
        0 => 0,
        reported => 1 << reported.ilog2(),
    }
}

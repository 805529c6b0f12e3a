// SPDX-License-Identifier: GPL-2.0-only
//! Write a trace in Perfetto's own format: context switches and wakeups as the kernel's ftrace has
//! them, from which Perfetto makes a track for each CPU and the states of each thread, and events of
//! the scheduler on tracks alongside. Fields are numbered as in Perfetto's `perfetto_trace.proto`.
//!
//! ```text
//! switch(), waking() --> columns of a CPU --bundle()--> FtraceEventBundle.compact_sched
//! instant(), begin(), end() --------------------------> TrackEvent, names interned
//! ```
//!
//! A trace is a sequence of packets: a file that ends early can be opened, too.

use std::collections::{BTreeMap, HashMap};
use std::io::{self, Write};

use super::proto::Message;

/// The only sequence of packets, on which names are interned.
const SEQUENCE: u32 = 1;

/// Context switches and wakeups of a CPU that make a bundle.
const BUNDLE: usize = 512;

/// Track of the scheduler, with a track for each CPU below it.
const SCHEDULER_TRACK: u64 = 1;

/// `TrackEvent.Type`
const BEGIN: u32 = 1;
const END: u32 = 2;
const INSTANT: u32 = 3;

#[derive(Clone, Debug, Default, PartialEq)]
pub struct Task {
    pub pid: i32,
    pub tgid: i32,
    /// The kernel's: 120 is nice 0.
    pub prio: i32,
    pub comm: String,
}

/// What a trace says about its machine.
pub struct Machine<'a> {
    pub release: &'a str,
    pub version: &'a str,
    pub arch: &'a str,
    /// CPUs by id, each with the name of its track.
    pub cpus: BTreeMap<usize, String>,
}

/// Where an event of the scheduler is shown.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Track {
    Cpu(usize),
    /// The PID of a task.
    Task(i32),
}

/// A value that an event has in addition to its name.
pub enum Value<'a> {
    Int(i64),
    Text(&'a str),
}

/// Switches and wakeups on a CPU that have not been written: a column for each field.
#[derive(Default)]
struct Cpu {
    comms: Vec<String>,
    switched: Times,
    prev_states: Vec<u64>,
    next_pids: Vec<u64>,
    next_prios: Vec<u64>,
    next_comms: Vec<u64>,
    woke: Times,
    wakee_pids: Vec<u64>,
    wakee_cpus: Vec<u64>,
    wakee_prios: Vec<u64>,
    wakee_comms: Vec<u64>,
    /// Encoded `FtraceEvent`s.
    others: Vec<Message>,
    current: i32,
    has_lost: bool,
}

/// Times as differences, the first one to 0.
#[derive(Default)]
struct Times {
    last: u64,
    deltas: Vec<u64>,
}

impl Times {
    /// Events of a CPU are in order, except that an interrupt may have come between time and event.
    fn push(&mut self, at: u64) {
        self.deltas.push(at.saturating_sub(self.last));
        self.last = self.last.max(at);
    }
}

impl Cpu {
    fn len(&self) -> usize {
        self.switched.deltas.len() + self.woke.deltas.len() + self.others.len()
    }

    /// Return the index of a name in this bundle.
    fn comm(&mut self, comm: &str) -> u64 {
        let known = self.comms.iter().position(|known| known == comm);
        known.unwrap_or_else(|| {
            self.comms.push(comm.into());
            self.comms.len() - 1
        }) as u64
    }

    fn bundle(self, id: usize) -> Message {
        let mut compact = Message::new();
        for comm in &self.comms {
            compact = compact.text(5, comm);
        }
        let compact = compact
            .packed(1, self.switched.deltas)
            .packed(2, self.prev_states)
            .packed(3, self.next_pids)
            .packed(4, self.next_prios)
            .packed(6, self.next_comms)
            .packed(12, self.woke.deltas.iter().map(|_| 0))
            .packed(7, self.woke.deltas)
            .packed(8, self.wakee_pids)
            .packed(9, self.wakee_cpus)
            .packed(10, self.wakee_prios)
            .packed(11, self.wakee_comms);
        let mut bundle = Message::new().uint(1, id as u64).message(4, &compact);
        for other in &self.others {
            bundle = bundle.message(2, other);
        }
        if self.has_lost { bundle.uint(3, true) } else { bundle }
    }
}

pub struct Writer<W: Write> {
    out: W,
    written: u64,
    last: u64,
    cpus: BTreeMap<usize, Cpu>,
    /// Names of events and of their values: the first has the number 1.
    events: Vec<&'static str>,
    values: Vec<&'static str>,
    /// Tasks by PID, with process and name.
    tasks: HashMap<i32, (i32, String)>,
    /// Tracks of tasks.
    tracks: HashMap<i32, u64>,
    next_track: u64,
}

impl<W: Write> Writer<W> {
    pub fn new(out: W, machine: &Machine<'_>) -> io::Result<Self> {
        let mut writer = Self {
            out,
            written: 0,
            last: 0,
            cpus: BTreeMap::new(),
            events: Vec::new(),
            values: Vec::new(),
            tasks: HashMap::new(),
            tracks: HashMap::new(),
            next_track: SCHEDULER_TRACK + 1,
        };
        let utsname = Message::new().text(1, "Linux").text(2, machine.version).text(3, machine.release);
        let system = Message::new().message(1, &utsname.text(4, machine.arch));
        // SEQ_INCREMENTAL_STATE_CLEARED: no names are interned yet.
        writer.packet(Message::new().message(45, &system).uint(13, 1u32).uint(87, true))?;
        // EXPLICIT order, the default would be by name: CPU 10 before CPU 2.
        let parent = Message::new().uint(1, SCHEDULER_TRACK).text(2, "scx_magpie").uint(11, 3u32);
        writer.packet(Message::new().message(60, &parent))?;
        for (&id, name) in &machine.cpus {
            let track = Message::new().uint(1, cpu_track(id)).uint(5, SCHEDULER_TRACK).text(2, name);
            writer.packet(Message::new().message(60, &track.int(12, id as i64)))?;
            writer.next_track = cpu_track(id) + 1;
        }
        Ok(writer)
    }

    /// Return the bytes written so far, without the last events.
    pub fn written(&self) -> u64 {
        self.written
    }

    /// Write a packet with one field of `Trace`.
    fn packet(&mut self, packet: Message) -> io::Result<()> {
        let packet = Message::new().message(1, &packet.uint(10, SEQUENCE));
        self.written += packet.as_bytes().len() as u64;
        self.out.write_all(packet.as_bytes())
    }

    /// Let the next bundle of the CPU say that events before it were lost.
    pub fn lost(&mut self, cpu: usize) {
        self.cpus.entry(cpu).or_default().has_lost = true;
    }

    /// A CPU ran another task before, whose state is `prev_state` of the kernel's tracepoint.
    pub fn switch(&mut self, cpu: usize, at: u64, prev_state: u32, next: &Task) -> io::Result<()> {
        self.learn(at, next);
        let columns = self.cpus.entry(cpu).or_default();
        let comm = columns.comm(&next.comm);
        columns.switched.push(at);
        columns.prev_states.push(u64::from(prev_state));
        columns.next_pids.push(next.pid as u64);
        columns.next_prios.push(next.prio as u64);
        columns.next_comms.push(comm);
        columns.current = next.pid;
        self.write_full(cpu)
    }

    /// The task that `cpu` runs wakes another one, which ran on the CPU `target`.
    pub fn waking(&mut self, cpu: usize, at: u64, wakee: &Task, target: usize) -> io::Result<()> {
        self.learn(at, wakee);
        let columns = self.cpus.entry(cpu).or_default();
        let comm = columns.comm(&wakee.comm);
        columns.woke.push(at);
        columns.wakee_pids.push(wakee.pid as u64);
        columns.wakee_cpus.push(target as u64);
        columns.wakee_prios.push(wakee.prio as u64);
        columns.wakee_comms.push(comm);
        self.write_full(cpu)
    }

    /// The task that `cpu` runs has started another one.
    pub fn new_task(&mut self, cpu: usize, at: u64, child: &Task, target: usize) -> io::Result<()> {
        self.learn(at, child);
        let columns = self.cpus.entry(cpu).or_default();
        let new = Message::new().text(1, &child.comm).int(2, child.pid).int(3, child.prio).int(4, 1);
        let new = new.int(5, target as i64);
        let event = Message::new().uint(1, at).uint(2, columns.current as u64).message(114, &new);
        columns.others.push(event);
        self.write_full(cpu)
    }

    fn learn(&mut self, at: u64, task: &Task) {
        self.last = self.last.max(at);
        if task.pid != 0 {
            let known = self.tasks.entry(task.pid).or_default();
            if known.0 != task.tgid || known.1 != task.comm {
                *known = (task.tgid, task.comm.clone());
            }
        }
    }

    fn write_full(&mut self, cpu: usize) -> io::Result<()> {
        match self.cpus.get(&cpu) {
            Some(columns) if columns.len() >= BUNDLE => self.write_bundle(cpu),
            _ => Ok(()),
        }
    }

    fn write_bundle(&mut self, cpu: usize) -> io::Result<()> {
        let Some(columns) = self.cpus.get_mut(&cpu).filter(|columns| columns.len() > 0) else { return Ok(()) };
        let current = columns.current;
        let columns = std::mem::replace(columns, Cpu { current, ..Cpu::default() });
        self.packet(Message::new().message(1, &columns.bundle(cpu)))
    }

    /// Show an event without a length.
    pub fn instant(
        &mut self,
        track: Track,
        at: u64,
        name: &'static str,
        values: &[(&'static str, Value<'_>)],
    ) -> io::Result<()> {
        self.event(track, at, INSTANT, Some(name), values)
    }

    /// Begin a slice, which the next `end()` on the track ends.
    pub fn begin(
        &mut self,
        track: Track,
        at: u64,
        name: &'static str,
        values: &[(&'static str, Value<'_>)],
    ) -> io::Result<()> {
        self.event(track, at, BEGIN, Some(name), values)
    }

    pub fn end(&mut self, track: Track, at: u64) -> io::Result<()> {
        self.event(track, at, END, None, &[])
    }

    fn event(
        &mut self,
        track: Track,
        at: u64,
        kind: u32,
        name: Option<&'static str>,
        values: &[(&'static str, Value<'_>)],
    ) -> io::Result<()> {
        self.last = self.last.max(at);
        let mut event = Message::new().uint(9, kind).uint(11, self.track(track)?);
        let mut interned = Message::default();
        if let Some(name) = name {
            event = event.uint(10, number(&mut self.events, name, &mut interned, 2));
        }
        for (name, value) in values {
            let annotation = Message::new().uint(1, number(&mut self.values, name, &mut interned, 3));
            let annotation = match value {
                Value::Int(value) => annotation.int(4, *value),
                Value::Text(text) => annotation.text(6, text),
            };
            event = event.message(4, &annotation);
        }
        // SEQ_NEEDS_INCREMENTAL_STATE: it uses names of earlier packets.
        let packet = Message::new().uint(8, at).uint(13, 2u32).message(11, &event);
        let has_new = !interned.as_bytes().is_empty();
        self.packet(if has_new { packet.message(12, &interned) } else { packet })
    }

    /// Return the number of a track. The track of a task is described when it is first used.
    fn track(&mut self, track: Track) -> io::Result<u64> {
        let pid = match track {
            Track::Cpu(cpu) => return Ok(cpu_track(cpu)),
            Track::Task(pid) => pid,
        };
        if let Some(&track) = self.tracks.get(&pid) {
            return Ok(track);
        }
        let track = self.next_track;
        self.next_track += 1;
        self.tracks.insert(pid, track);
        let (tgid, comm) = self.tasks.get(&pid).cloned().unwrap_or((pid, String::new()));
        let thread = Message::new().int(1, tgid).int(2, pid).text(5, &comm);
        self.packet(Message::new().message(60, &Message::new().uint(1, track).message(4, &thread)))?;
        Ok(track)
    }

    /// Write the last events, and which threads belong to which process: `process_name` returns the
    /// names of processes of which no event has told. Return the bytes written.
    pub fn finish(mut self, process_name: impl Fn(i32) -> Option<String>) -> io::Result<u64> {
        for cpu in self.cpus.keys().copied().collect::<Vec<_>>() {
            self.write_bundle(cpu)?;
        }
        let mut processes: BTreeMap<i32, Vec<(i32, &str)>> = BTreeMap::new();
        for (&pid, (tgid, comm)) in &self.tasks {
            processes.entry(*tgid).or_default().push((pid, comm));
        }
        let mut tree = Message::new();
        for (&tgid, threads) in &processes {
            let leader = self.tasks.get(&tgid).map(|(_, comm)| comm.clone()).or_else(|| process_name(tgid));
            let process = Message::new().int(1, tgid).text(3, &leader.unwrap_or_default()).uint(9, true);
            tree = tree.message(1, &process);
            for &(pid, comm) in threads {
                tree = tree.message(2, &Message::new().int(1, pid).int(3, tgid).text(2, comm));
            }
        }
        self.packet(Message::new().uint(8, self.last).message(2, &tree))?;
        self.out.flush()?;
        Ok(self.written)
    }
}

fn cpu_track(cpu: usize) -> u64 {
    SCHEDULER_TRACK + 1 + cpu as u64
}

/// Return the number of a name, which is added to `interned` as this field if it is new.
fn number(known: &mut Vec<&'static str>, name: &'static str, interned: &mut Message, field: u32) -> u64 {
    if let Some(index) = known.iter().position(|known| *known == name) {
        return index as u64 + 1;
    }
    known.push(name);
    let number = known.len() as u64;
    *interned = std::mem::take(interned).message(field, &Message::new().uint(1, number).text(2, name));
    number
}

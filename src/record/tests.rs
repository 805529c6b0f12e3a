// SPDX-License-Identifier: GPL-2.0-only
//! What the trace says about events. Perfetto's own definition reads it in `tests/perfetto.rs`.

use super::timeline::{Timeline, name};
use super::writer::{Machine, Task, Track, Value, Writer};
use crate::bpf_intf::*;
use bytemuck::Zeroable;

/// A field of a message: its number, and a number or bytes.
#[derive(Clone, Debug, PartialEq)]
enum Field {
    Number(u64),
    Bytes(Vec<u8>),
}

/// Decode a message; panics if it is none.
fn fields(mut bytes: &[u8]) -> Vec<(u64, Field)> {
    let mut fields = Vec::new();
    while !bytes.is_empty() {
        let tag = varint(&mut bytes);
        let value = varint(&mut bytes);
        let field = match tag & 7 {
            0 => Field::Number(value),
            2 => {
                let (text, rest) = bytes.split_at(value as usize);
                bytes = rest;
                Field::Bytes(text.to_vec())
            }
            wire_type => panic!("wire type {wire_type}"),
        };
        fields.push((tag >> 3, field));
    }
    fields
}

fn varint(bytes: &mut &[u8]) -> u64 {
    let (mut value, mut shift) = (0, 0);
    loop {
        let (&byte, rest) = bytes.split_first().expect("an integer is cut off");
        *bytes = rest;
        value |= u64::from(byte & 0x7f) << shift;
        shift += 7;
        if byte < 0x80 {
            return value;
        }
    }
}

fn numbers(mut bytes: &[u8]) -> Vec<u64> {
    let mut numbers = Vec::new();
    while !bytes.is_empty() {
        numbers.push(varint(&mut bytes));
    }
    numbers
}

/// Return the messages of a field.
fn messages(message: &[u8], field: u64) -> Vec<Vec<u8>> {
    let found = fields(message).into_iter().filter_map(|(number, value)| match value {
        Field::Bytes(bytes) if number == field => Some(bytes),
        _ => None,
    });
    found.collect()
}

fn number(message: &[u8], field: u64) -> Option<u64> {
    fields(message).into_iter().find_map(|(number, value)| match value {
        Field::Number(value) if number == field => Some(value),
        _ => None,
    })
}

fn machine() -> Machine<'static> {
    let cpus = (0..4).map(|cpu| (cpu, format!("CPU {cpu}"))).collect();
    Machine { release: "6.18", version: "#1", arch: "x86_64", cpus }
}

/// Return the trace of these events, each with the CPU that executes it.
fn trace(events: &[(usize, record_event)]) -> Vec<u8> {
    let mut bytes = Vec::new();
    let writer = Writer::new(&mut bytes, &machine()).unwrap();
    let mut timeline = Timeline::new(writer, |id| format!("group {id}"));
    for (cpu, event) in events {
        timeline.take(*cpu, event).unwrap();
    }
    timeline.writer.finish(|_| None).unwrap();
    bytes
}

/// Return the scheduler's events: time and name, `end` for the end of a slice.
fn shown(events: &[(usize, record_event)]) -> Vec<(u64, String)> {
    let mut names = Vec::new();
    let mut shown = Vec::new();
    for packet in messages(&trace(events), 1) {
        for entry in messages(&packet, 12).iter().flat_map(|interned| messages(interned, 2)) {
            names.push((number(&entry, 1).unwrap(), String::from_utf8(messages(&entry, 2)[0].clone()).unwrap()));
        }
        for event in messages(&packet, 11) {
            let iid = number(&event, 10);
            let name = iid.map_or("end".into(), |iid| names.iter().find(|(known, _)| *known == iid).unwrap().1.clone());
            shown.push((number(&packet, 8).unwrap(), name));
        }
    }
    shown
}

fn event(kind: record_kind, at: u64, pid: i32, cpu: i32) -> record_event {
    let mut event = record_event { at, pid, tgid: pid, cpu, prio: 120, kind: kind as u8, ..Zeroable::zeroed() };
    let comm = if pid == 0 { "swapper".into() } else { format!("task-{pid}") };
    event.comm.iter_mut().zip(comm.bytes()).for_each(|(to, from)| *to = from as _);
    event
}

fn switch(at: u64, prev: i32, state: u32, next: i32) -> record_event {
    record_event { other: prev, state, ..event(record_kind_RECORD_SWITCH, at, next, 0) }
}

fn wakeup(at: u64, pid: i32, cpu: i32, queue: record_queue) -> record_event {
    record_event { queue: queue as u8, ..event(record_kind_RECORD_WAKEUP, at, pid, cpu) }
}

const SLEEPS: u32 = 1;

#[test]
fn a_wakeup_says_where_the_task_was_placed() {
    let (local, queue) = (record_queue_RECORD_LOCAL_QUEUE, record_queue_RECORD_QUEUE);
    // Task 7 ran on CPU 1, and CPU 0 wakes it. CPUs 1 and 2 are idle, CPUs 0 and 3 are busy.
    let wakes = |cpu, queue| {
        let begin = [
            (0, switch(1, 0, 0, 5)),
            (1, switch(2, 7, SLEEPS, 0)),
            (2, switch(3, 6, SLEEPS, 0)),
            (3, switch(4, 0, 0, 8)),
        ];
        let wake = [(0, event(record_kind_RECORD_WAKING, 10, 7, 1)), (0, wakeup(11, 7, cpu, queue))];
        let shown = shown(&[&begin[..], &wake].concat());
        shown.into_iter().map(|(at, name)| (at == 11, name)).collect::<Vec<_>>()
    };
    for (cpu, queue, name) in [
        (1, local, name::IDLE_PREVIOUS),
        (2, local, name::IDLE_OTHER),
        (0, local, name::HANDOFF),
        (3, local, name::NEXT),
        (3, queue, name::QUEUED),
        (0, queue, name::QUEUED),
    ] {
        assert_eq!(wakes(cpu, queue), [(true, name.to_string())], "CPU {cpu}, {queue}");
    }
    // Another scheduler.
    assert_eq!(wakes(1, record_queue_RECORD_NO_QUEUE), []);
    // An interrupt wakes it while its CPU is idle.
    let begin = [(2, switch(1, 9, SLEEPS, 0)), (1, switch(2, 7, SLEEPS, 0))];
    let wake = [(2, event(record_kind_RECORD_WAKING, 10, 7, 1)), (2, wakeup(11, 7, 2, local))];
    assert_eq!(shown(&[begin, wake].concat()), [(11, name::IDLE_WAKER.to_string())]);
}

#[test]
fn a_task_is_stolen_by_the_cpu_that_takes_it() {
    let migrate = |at, pid, from, to| record_event { other: from, ..event(record_kind_RECORD_MIGRATE, at, pid, to) };
    let shown = shown(&[(3, migrate(5, 7, 0, 3)), (0, migrate(6, 7, 3, 1))]);
    assert_eq!(shown, [(5, name::STOLEN.into()), (5, name::STEAL.into()), (6, name::MOVED.into())]);
}

#[test]
fn throttling_begins_and_ends_once() {
    let throttled = |at| record_event {
        queue: record_queue_RECORD_THROTTLED_QUEUE as u8,
        cgroup: 42,
        ..switch(at, 7, record_states_RECORD_PREEMPTED, 0)
    };
    let unthrottled = |at| (1, event(record_kind_RECORD_UNTHROTTLED, at, 7, 1));
    let slice = |from, to| vec![(from, name::THROTTLED.to_string()), (to, "end".to_string())];
    assert_eq!(shown(&[(1, throttled(5)), unthrottled(8), (1, switch(9, 0, 0, 7))]), slice(5, 8));
    // Nothing reported that it left the queue: it runs.
    assert_eq!(shown(&[(1, throttled(5)), (2, switch(9, 0, 0, 7))]), slice(5, 9));
    // Two CPUs report it.
    assert_eq!(shown(&[(1, throttled(5)), unthrottled(8), unthrottled(10)]), slice(5, 8));
    // It is sent back, and throttled again.
    let again = [(1, throttled(5)), (1, switch(7, 0, 0, 7)), (1, throttled(8)), unthrottled(9)];
    assert_eq!(shown(&again), [slice(5, 7), slice(8, 9)].concat());
}

#[test]
fn a_preemption_is_by_a_task_that_woke_up_meanwhile() {
    let preempted = record_states_RECORD_PREEMPTED;
    let wakes = |at| (1, event(record_kind_RECORD_WAKING, at, 8, 0));
    let preemption = |at| vec![(at, name::PREEMPTION.to_string())];
    let runs = (0, switch(10, 0, 0, 7));
    assert_eq!(shown(&[runs, wakes(15), (0, switch(20, 7, preempted, 8))]), preemption(20));
    assert_eq!(shown(&[runs, wakes(15), (0, switch(20, 7, 0, 8))]), preemption(20));
    // It waited before.
    assert_eq!(shown(&[wakes(5), runs, (0, switch(20, 7, preempted, 8))]), []);
    // The other task sleeps.
    assert_eq!(shown(&[runs, wakes(15), (0, switch(20, 7, SLEEPS, 8))]), []);
}

/// Return the columns of the only bundle with switches: times, states, PIDs; and of wakeups, times.
fn columns(trace: &[u8]) -> [Vec<u64>; 4] {
    let bundles = messages(trace, 1).iter().flat_map(|packet| messages(packet, 1)).collect::<Vec<_>>();
    assert_eq!(bundles.len(), 1);
    let compact = &messages(&bundles[0], 4)[0];
    [1, 2, 3, 7].map(|column| numbers(&messages(compact, column)[0]))
}

#[test]
fn switches_are_columns_of_their_cpu() {
    let preempted = record_states_RECORD_PREEMPTED;
    let events = [
        (0, switch(1000, 0, 0, 7)),
        (0, event(record_kind_RECORD_WAKING, 1200, 8, 0)),
        (0, switch(1500, 7, preempted, 8)),
        // TASK_IDLE, and a task that exits.
        (0, switch(1700, 8, 0x402, 9)),
        (0, switch(1800, 9, 0x80 | 0x10, 0)),
        (0, event(record_kind_RECORD_WAKING, 1900, 8, 0)),
    ];
    let [times, states, pids, wakings] = columns(&trace(&events));
    assert_eq!(times, [1000, 500, 200, 100]);
    assert_eq!(states, [0, 0x100, 0x80, 0x10]);
    assert_eq!(pids, [7, 8, 9, 0]);
    assert_eq!(wakings, [1200, 700]);
}

#[test]
fn a_bundle_has_a_bounded_number_of_events() {
    let events: Vec<_> = (0..10_000).map(|at| (at as usize % 2, switch(at, 7, 0, 8))).collect();
    let trace = trace(&events);
    let bundles: Vec<_> = messages(&trace, 1).iter().flat_map(|packet| messages(packet, 1)).collect();
    let sizes = bundles.iter().map(|bundle| numbers(&messages(&messages(bundle, 4)[0], 1)[0]).len());
    assert!(bundles.len() > 10 && sizes.clone().all(|size| size <= 512), "{:?}", sizes.collect::<Vec<_>>());
    assert_eq!(sizes.sum::<usize>(), 10_000);
    // 10 bytes a switch: the columns are what keeps a trace small.
    assert!(trace.len() < 100_000, "{}", trace.len());
}

#[test]
fn the_next_bundle_tells_of_lost_events() {
    let mut bytes = Vec::new();
    let mut writer = Writer::new(&mut bytes, &machine()).unwrap();
    let task = Task { pid: 7, tgid: 7, prio: 120, comm: "x".into() };
    writer.switch(0, 1, 0, &task).unwrap();
    writer.switch(1, 2, 0, &task).unwrap();
    writer.lost(1);
    writer.instant(Track::Cpu(1), 3, name::STEAL, &[("from_cpu", Value::Int(0))]).unwrap();
    writer.finish(|_| None).unwrap();
    let bundles = messages(&bytes, 1).iter().flat_map(|packet| messages(packet, 1)).collect::<Vec<_>>();
    assert_eq!(bundles.iter().map(|bundle| number(bundle, 3)).collect::<Vec<_>>(), [None, Some(1)]);
}

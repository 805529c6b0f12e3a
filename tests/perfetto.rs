// SPDX-License-Identifier: GPL-2.0-only
//! The trace of `scx_magpie record` as Perfetto's own definition of the format reads it, by
//! `trace_reader.py`. Without PyPI's `perfetto`, which tools/setup fetches, the test is left out,
//! which is said (`cargo test -- --nocapture`).

use std::path::Path;
use std::process::Command;

use scx_magpie::record::timeline::name;
use scx_magpie::record::writer::{Machine, Task, Track, Value, Writer};
use serde_json::{Value as Json, json};

/// Return what the reader prints; `None`: Perfetto's definition is not here.
fn read(trace: &[u8]) -> Option<Json> {
    let reader = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/trace_reader.py");
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), trace).unwrap();
    let output = Command::new("python3").arg(reader).arg(file.path()).output().unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    if errors.contains("ModuleNotFoundError") {
        println!("left out, for it is not here: PyPI's perfetto (tools/setup test fetches it)");
        return None;
    }
    assert!(output.status.success(), "{errors}");
    Some(serde_json::from_slice(&output.stdout).unwrap())
}

#[test]
fn perfetto_knows_all_fields() {
    let mut trace = Vec::new();
    let cpus = [0, 1, 10].map(|cpu| (cpu, format!("CPU {cpu} (LLC 0)"))).into();
    let machine = Machine { release: "6.18.1", version: "#1 SMP", arch: "x86_64", cpus };
    let mut writer = Writer::new(&mut trace, &machine).unwrap();
    let task = |pid, tgid, comm: &str| Task { pid, tgid, prio: 120, comm: comm.into() };
    let (idle, thread, child) = (task(0, 0, "swapper/1"), task(7, 6, "worker"), task(8, 8, "child"));
    writer.switch(1, 1_000_000, 0, &thread).unwrap();
    writer.waking(1, 1_000_500, &child, 10).unwrap();
    writer.new_task(1, 1_000_600, &child, 0).unwrap();
    let values = [("task", Value::Text("worker 7")), ("from_cpu", Value::Int(-1))];
    writer.instant(Track::Cpu(10), 1_000_700, name::STEAL, &values).unwrap();
    writer.switch(1, 1_001_000, 0x100, &idle).unwrap();
    writer.begin(Track::Task(7), 1_001_000, name::THROTTLED, &[("cgroup", Value::Text("a/b"))]).unwrap();
    writer.end(Track::Task(7), 1_003_000).unwrap();
    writer.instant(Track::Cpu(0), 1_004_000, name::STEAL, &values).unwrap();
    writer.lost(0);
    writer.switch(0, 1_005_000, 2, &child).unwrap();
    let size = writer.finish(|pid| (pid == 6).then(|| "leader".into())).unwrap();
    assert_eq!(size, trace.len() as u64);

    let Some(read) = read(&trace) else { return };
    assert_eq!(read["release"], "6.18.1");
    assert_eq!(read["switches"]["1"], json!([[1_000_000, 0, 7], [1_001_000, 0x100, 0]]));
    assert_eq!(read["switches"]["0"], json!([[1_005_000, 2, 8]]));
    assert_eq!(read["wakings"], json!([[1_000_500, 1, 8, 10]]));
    assert_eq!(read["new"], json!([[1_000_600, 1, 8, 0]]));
    assert_eq!(read["lost"], json!([0]));
    assert_eq!(read["comms"], json!({"7": "worker", "8": "child"}));
    assert_eq!(read["tgids"], json!({"7": 6, "8": 8}));
    assert_eq!(read["processes"], json!({"6": "leader", "8": "child"}));
    assert_eq!(read["tracks"], json!(["scx_magpie", "CPU 0 (LLC 0)", "CPU 1 (LLC 0)", "CPU 10 (LLC 0)", ""]));
    let steal =
        |at, of| json!({"at": at, "track": "CPU", "of": of, "name": "steal", "task": "worker 7", "from_cpu": -1});
    let throttled =
        json!({"at": 1_001_000, "track": "task", "of": 7, "name": name::THROTTLED, "cgroup": "a/b", "duration": 2000});
    assert_eq!(read["events"], json!([steal(1_000_700, 10), throttled, steal(1_004_000, 0)]));

    // A recording that was killed: all packets but the last.
    let whole = read_prefix(&trace, 60);
    assert!(whole.is_none_or(|read| read["release"] == "6.18.1"));
}

/// Read the packets that begin in the first `len` bytes: a file that ends early.
fn read_prefix(trace: &[u8], len: usize) -> Option<Json> {
    let (mut end, mut next) = (0, 0);
    while next < len {
        end = next;
        // The tag of a packet, and its length in one byte.
        assert_eq!(trace[next], 0x0a);
        next += 2 + trace[next + 1] as usize;
    }
    read(&trace[..end])
}

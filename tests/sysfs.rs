// SPDX-License-Identifier: GPL-2.0-only
//! What the loader makes of machines that are not here: `scx_magpie topology` on trees of sysfs, from tables in
//! tests/data/sysfs. A column is a file of each CPU; a line `FILE = TEXT` is one of /sys/devices.

use std::fs;
use std::path::Path;
use std::process::Command;

fn write(file: &Path, text: &str) {
    fs::create_dir_all(file.parent().unwrap()).unwrap();
    fs::write(file, format!("{text}\n")).unwrap();
}

/// Makes the tree, in `root`.
fn grow(name: &str, root: &Path) {
    let table = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/sysfs").join(name);
    let table = fs::read_to_string(table).unwrap();
    let devices = root.join("sys/devices");
    let mut lines = table.lines().filter(|line| !line.starts_with('#')).peekable();
    while let Some((file, text)) = lines.peek().and_then(|line| line.split_once(" = ")) {
        write(&devices.join(file), text);
        lines.next();
    }
    let columns: Vec<_> = lines.next().unwrap().split_whitespace().collect();
    assert_eq!(columns[0], "cpu");
    let mut nr_cpus = 0;
    for line in lines {
        let cells: Vec<_> = line.split_whitespace().collect();
        assert_eq!(cells.len(), columns.len(), "{line}");
        let cpu = devices.join(format!("system/cpu/cpu{}", cells[0]));
        for (file, text) in columns.iter().zip(&cells).skip(1) {
            write(&cpu.join(file), text);
        }
        for (file, text) in [
            ("topology/physical_package_id", "0"),
            ("topology/cluster_id", "0"),
            ("cache/index2/level", "2"),
            ("cache/index3/level", "3"),
        ] {
            write(&cpu.join(file), text);
        }
        fs::create_dir_all(devices.join(format!("system/node/node0/cpu{}", cells[0]))).unwrap();
        nr_cpus += 1;
    }
    write(&devices.join("system/node/node0/distance"), "10");
    write(&devices.join("system/cpu/online"), &format!("0-{}", nr_cpus - 1));
}

/// The lines of `scx_magpie topology`, without indentation, single spaces in each.
fn topology(name: &str) -> Vec<String> {
    let root = tempfile::tempdir().unwrap();
    grow(name, root.path());
    let out = Command::new(env!("CARGO_BIN_EXE_scx_magpie"))
        .arg("topology")
        .env("SCX_SYSFS_PREFIX", root.path())
        .output()
        .expect("it was built");
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    let text = String::from_utf8(out.stdout).unwrap();
    println!("{text}");
    text.lines().map(|line| line.split_whitespace().collect::<Vec<_>>().join(" ")).collect()
}

/// The lines of cores, in the order of their slots.
fn cores(lines: &[String]) -> Vec<&str> {
    lines.iter().filter(|line| line.starts_with("core ")).map(|line| line.split_once(" capacity ").unwrap().1).collect()
}

#[track_caller]
fn has(lines: &[String], line: &str) {
    assert!(lines.iter().any(|have| have == line), "no '{line}'");
}

#[test]
fn a_hybrid_laptop() {
    let lines = topology("hybrid-laptop");
    has(&lines, "20 CPUs, 1 LLCs, 1 nodes, 2 CPUs a core");
    has(&lines, "capacity 632: CPUs 12-19; capacity 978-1024: CPUs 0-11 (acpi_cppc/highest_perf)");
    has(&lines, "preferred first: CPUs 4-7, 0-3,8-11, 12-19 (acpi_cppc/highest_perf)");
    let cores = cores(&lines);
    assert_eq!(cores[..3], ["1024 rank 68 CPU 4 5", "1024 rank 68 CPU 6 7", "978 rank 65 CPU 0 1"]);
    assert_eq!(cores[6..].iter().filter(|core| core.starts_with("632 rank 42 ")).count(), 8);
}

/// Ranks are no capacities: all cores are of one kind.
#[test]
fn a_desktop_with_two_favoured_cores() {
    let lines = topology("favoured-desktop");
    assert!(!lines.iter().any(|line| line.starts_with("capacity ")));
    let cores = cores(&lines);
    assert_eq!(cores[..2], ["1024 rank 236 CPU 3 11", "1024 rank 231 CPU 5 13"]);
    assert_eq!(cores[7], "1024 rank 201 CPU 4 12");
}

#[test]
fn two_uneven_dies() {
    let lines = topology("uneven-ccds");
    has(&lines, "14 CPUs, 2 LLCs, 1 nodes, 1 CPUs a core");
    has(&lines, "LLC 0 (L3): 8 CPUs; other LLCs, nearest first: 1");
    has(&lines, "LLC 1 (L3): 6 CPUs; other LLCs, nearest first: 0");
    let cores = cores(&lines);
    assert_eq!((cores[0], cores[8]), ("1024 rank 190 CPU 0", "1024 rank 236 CPU 8"));
}

#[test]
fn a_phone_of_three_classes() {
    let lines = topology("phone");
    has(&lines, "capacity 250: CPUs 0-3; capacity 620: CPUs 4-6; capacity 1024: CPUs 7 (cpu_capacity)");
    assert!(!lines.iter().any(|line| line.contains("rank")));
    assert_eq!(cores(&lines)[0], "250 CPU 0");
}

/// What is the same for all says nothing.
#[test]
fn cores_that_are_alike() {
    let lines = topology("plain");
    assert!(!lines.iter().any(|line| line.contains("rank") || line.starts_with("capacity")));
    assert_eq!(cores(&lines)[0], "1024 CPU 0");
}

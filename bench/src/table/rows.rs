// SPDX-License-Identifier: GPL-2.0-only
//! What the name of a row says: its group in the table, and whether it is a time, a rate or a percentage.

/// Groups in the order of the table, by the prefixes of their rows. The longest prefix counts.
const GROUPS: [(&str, &[&str]); 14] = [
    ("real programs", &["nginx", "redis", "postgres", "cc1", "x264"]),
    ("locks", &["locks"]),
    ("light alongside heavy", &["light"]),
    ("long runners", &["hog-", "hogs-", "frames-", "audio-"]),
    ("containers", &["light-cgroup", "limited"]),
    ("wakeups", &["wakeup"]),
    ("hackbench", &["hackbench"]),
    ("switches", &["perf-pipe", "pairs", "stress", "tbench"]),
    ("pinned", &["pinned"]),
    ("cores of two threads", &["smt-"]),
    ("one CPU", &["cpu1-"]),
    ("a CPU idles while a task waits in its LLC", &["idle-waiting"]),
    ("a CPU idles while a task waits in another LLC", &["idle-beyond"]),
    ("others", &[""]),
];

/// Kind of a row. A group has a mean for each kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Throughput,
    Latency,
    ContextSwitches,
    /// Time in which a CPU idles while a task waits, us per second.
    Idle,
    /// Samples in which no two hogs share a core, %.
    Apart,
    /// Frames and callbacks of audio on time, of those due, %.
    OnTime,
    /// CPU time that cgroups have used, of what cpu.max allows, %.
    Used,
}

impl Kind {
    const ALL: [(Kind, &str); 7] = [
        (Kind::Throughput, "throughput"),
        (Kind::Latency, "latency"),
        (Kind::ContextSwitches, "context switches"),
        (Kind::Idle, "us a second"),
        (Kind::Apart, "% of the time that no core has two hogs"),
        (Kind::OnTime, "% on time"),
        (Kind::Used, "% of what cpu.max allows"),
    ];

    pub fn of(row: &str) -> Self {
        match row {
            _ if row.starts_with("idle-") => Kind::Idle,
            _ if row.ends_with("-apart") => Kind::Apart,
            _ if row.starts_with("frames-") || row.starts_with("audio-") => Kind::OnTime,
            _ if row.ends_with("-used") => Kind::Used,
            _ if row.ends_with("-switches") => Kind::ContextSwitches,
            _ if ["-p90", "-p99", "-wait"].iter().any(|end| row.ends_with(end)) => Kind::Latency,
            _ => Kind::Throughput,
        }
    }

    /// Return true if the table has its figures as they are, without ratios. Some are 0.
    pub fn is_plain(self) -> bool {
        matches!(self, Kind::Idle | Kind::Apart | Kind::OnTime | Kind::Used)
    }
}

/// Return true if less is better.
pub fn is_time(row: &str) -> bool {
    let name = ["smt-", "cpu1-"].iter().find_map(|machine| row.strip_prefix(machine)).unwrap_or(row);
    let seconds = ["hackbench", "pinned-hackbench", "cc1"].iter().any(|start| name.starts_with(start));
    seconds || !matches!(Kind::of(row), Kind::Throughput | Kind::Apart | Kind::OnTime)
}

/// Return the index in GROUPS.
fn group_of(row: &str) -> usize {
    let fits = |names: &[&str]| names.iter().filter(|name| row.starts_with(**name)).map(|name| name.len()).max();
    (0..GROUPS.len()).max_by_key(|&group| fits(GROUPS[group].1)).unwrap_or_default()
}

/// Return titles like "locks: latency" with their rows, which keep their order.
pub fn grouped(rows: &[String]) -> Vec<(String, Vec<&str>)> {
    let all = (0..GROUPS.len()).flat_map(|group| Kind::ALL.map(|kind| (group, kind)));
    let members = |(group, (kind, title)): (usize, (Kind, &str))| {
        let fits = |row: &&str| group_of(row) == group && Kind::of(row) == kind;
        (format!("{}: {title}", GROUPS[group].0), rows.iter().map(String::as_str).filter(fits).collect::<Vec<_>>())
    };
    all.map(members).filter(|(_, rows)| !rows.is_empty()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_have_throughput_and_latency_apart() {
        let rows = [
            "wakeup-50-p99",
            "other",
            "light-p90",
            "pinned-hackbench",
            "wakeup-50-rps",
            "pinned-hackbench-switches",
            "light-cgroup-p90",
            "hog-beside-forks",
            "frames-beside-pool",
            "audio-beside-build",
            "hog-beside-forks-wait",
            "limited-used",
            "hogs-beside-forks",
            "pairs-8",
            "cc1",
            "locks-spin-24-rps",
            "wakeup-95-rps",
            "idle-beyond-locks",
            "idle-waiting-wakeup-50",
        ]
        .map(str::to_string);
        let groups: Vec<String> = grouped(&rows).into_iter().map(|(group, rows)| format!("{group} {rows:?}")).collect();
        let expected = [
            r#"real programs: throughput ["cc1"]"#,
            r#"locks: throughput ["locks-spin-24-rps"]"#,
            r#"light alongside heavy: latency ["light-p90"]"#,
            r#"long runners: throughput ["hog-beside-forks", "hogs-beside-forks"]"#,
            r#"long runners: latency ["hog-beside-forks-wait"]"#,
            r#"long runners: % on time ["frames-beside-pool", "audio-beside-build"]"#,
            r#"containers: latency ["light-cgroup-p90"]"#,
            r#"containers: % of what cpu.max allows ["limited-used"]"#,
            r#"wakeups: throughput ["wakeup-50-rps", "wakeup-95-rps"]"#,
            r#"wakeups: latency ["wakeup-50-p99"]"#,
            r#"switches: throughput ["pairs-8"]"#,
            r#"pinned: throughput ["pinned-hackbench"]"#,
            r#"pinned: context switches ["pinned-hackbench-switches"]"#,
            r#"a CPU idles while a task waits in its LLC: us a second ["idle-waiting-wakeup-50"]"#,
            r#"a CPU idles while a task waits in another LLC: us a second ["idle-beyond-locks"]"#,
            r#"others: throughput ["other"]"#,
        ];
        assert_eq!(groups, expected);
    }

    #[test]
    fn programs_tell_seconds_or_rates() {
        let time = ["cc1", "nginx-p99", "pinned-hackbench", "pinned-hackbench-switches", "cpu1-hackbench-pipe-2g"]
            .map(is_time);
        let rate =
            ["x264-fps", "nginx-rps", "postgres-write-tps", "pairs-8", "hog-beside-forks", "frames-beside-forks"]
                .map(is_time);
        assert_eq!((time, rate), ([true; 5], [false; 6]));
    }
}

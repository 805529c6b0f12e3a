// SPDX-License-Identifier: GPL-2.0-only
//! Statistics as other programs read them: promtool, python's parser of OpenMetrics, the scx project's script, a dashboard.
//! Programs that are not installed are left out, which is said (`cargo test -- --nocapture`).

use std::collections::{BTreeMap, BTreeSet};
use std::env;
use std::io::{BufRead, BufReader, Write};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use scx_magpie::export::{Format, encode};
use scx_magpie::stats::cgroups::{Cgroup, Cgroups};
use scx_magpie::stats::wake_cases::WakeCase;
use scx_magpie::stats::{Group, LlcSnapshot, Memory, Metrics, Node, Server, Snapshot};

/// Debian's, which its modules are for.
const PYTHON: &str = "/usr/bin/python3";

const PATIENCE: Duration = Duration::from_secs(60);

/// All that there can be.
fn metrics() -> Metrics {
    let llc =
        |search| Group { search, util: 50.0, busy_ns: 1_500_000_000, latencies: vec![0, 3, 1, 0], ..Group::default() };
    let cgroup = Cgroup { weight: 100, throttled_ms: 1500, usage_us: 7, ..Cgroup::default() };
    let case = WakeCase { case: "llb".into(), big_scan: 3, ..WakeCase::default() };
    Metrics {
        interval_ms: 90_500,
        cgroups: Cgroups { top: [("a \"b\" \\c".into(), cgroup)].into(), ..Cgroups::default() },
        memory: Memory::default(),
        wake_cases: [(2, case)].into(),
        nodes: [(0, Node { checks: 7, checks_preferred: 5, ..Node::default() })].into(),
        llcs: [(0, llc(4)), (1, llc(5))].into(),
        ..Metrics::default()
    }
}

/// Whether a program can be run so; says if not.
fn is_here(program: &str, args: &[&str]) -> bool {
    let output = Command::new(program).args(args).output();
    let is_here = output.is_ok_and(|output| output.status.success());
    if !is_here {
        println!("left out, for it is not here: {program} {}", args.join(" "));
    }
    is_here
}

/// What a program says of its input, all of it; it must succeed.
fn filtered(program: &str, args: &[&str], input: &str) -> String {
    let pipe = Stdio::piped;
    let child = Command::new(program).args(args).stdin(pipe()).stdout(pipe()).stderr(pipe()).spawn();
    let mut child = child.unwrap();
    child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    let text = [output.stdout, output.stderr].map(|bytes| String::from_utf8(bytes).unwrap()).concat();
    assert!(output.status.success(), "{text}\n{input}");
    text
}

#[test]
fn figures_have_names_units_and_labels() {
    let text = encode(Some(&metrics()), Format::Prometheus).unwrap();
    for line in [
        "scx_magpie_up 1",
        "scx_magpie_uptime_seconds 90.5",
        "scx_magpie_utilization_ratio{llc=\"0\"} 0.5",
        "scx_magpie_searches_total{llc=\"1\"} 5",
        "scx_magpie_busy_seconds_total{llc=\"0\"} 1.5",
        "scx_magpie_wakeups_total{llc=\"0\",placed=\"handoff\"} 0",
        "scx_magpie_node_ticks_total{node=\"0\",preferred=\"false\",home=\"false\"} 2",
        "scx_magpie_cgroup_throttled_seconds_total{cgroup=\"a \\\"b\\\" \\\\c\"} 1.5",
        "scx_magpie_capacity_wakeups_total{case=\"llb\",cpu=\"big\",placed=\"scan\"} 3",
        "scx_magpie_search_duration_seconds_bucket{llc=\"0\",le=\"4e-09\"} 3",
        "scx_magpie_search_duration_seconds_bucket{llc=\"0\",le=\"+Inf\"} 4",
        "# HELP scx_magpie_steal_misses_total overloaded CPUs that had no task to steal when they were tried",
    ] {
        assert!(text.lines().any(|known| known == line), "{line}\n{text}");
    }
}

#[test]
fn without_a_scheduler_it_is_down() {
    let text = encode(None, Format::OpenMetrics).unwrap();
    let samples: Vec<_> = text.lines().filter(|line| !line.starts_with('#')).collect();
    assert_eq!((samples, text.ends_with("# EOF\n")), (vec!["scx_magpie_up 0"], true));
}

/// The one that tools/setup has unpacked, or the machine's.
fn promtool() -> String {
    let caches = [("XDG_CACHE_HOME", ""), ("HOME", ".cache")].map(|(variable, below)| (env::var_os(variable), below));
    let cache = caches.into_iter().find_map(|(folder, below)| Some(PathBuf::from(folder?).join(below)));
    let unpacked = cache.map(|cache| cache.join("scx_magpie/tools/bin/promtool")).filter(|file| file.exists());
    unpacked.map_or_else(|| "promtool".into(), |file| file.display().to_string())
}

#[test]
fn promtool_finds_nothing_wrong() {
    let promtool = promtool();
    if is_here(&promtool, &["--version"]) {
        let text = encode(Some(&metrics()), Format::Prometheus).unwrap();
        assert_eq!(filtered(&promtool, &["check", "metrics"], &text), "");
    }
}

#[test]
fn python_parses_both_formats() {
    const PARSE: &str = "import sys
from prometheus_client.parser import text_string_to_metric_families as prometheus
from prometheus_client.openmetrics.parser import text_string_to_metric_families as openmetrics
families = list({'prometheus': prometheus, 'openmetrics': openmetrics}[sys.argv[1]](sys.stdin.read()))
assert all(family.documentation and family.type != 'unknown' for family in families)
print(sum(len(family.samples) for family in families))";
    if !is_here(PYTHON, &["-c", "import prometheus_client"]) {
        return;
    }
    for (name, format) in [("prometheus", Format::Prometheus), ("openmetrics", Format::OpenMetrics)] {
        let text = encode(Some(&metrics()), format).unwrap();
        let samples = text.lines().filter(|line| !line.starts_with('#')).count();
        assert_eq!(filtered(PYTHON, &["-c", PARSE, name], &text).trim(), samples.to_string());
    }
}

/// The metrics that a text names; each must exist.
fn asked_for(text: &str) -> BTreeSet<String> {
    let encoded = encode(Some(&metrics()), Format::Prometheus).unwrap();
    let is_name = |char: char| char.is_ascii_alphanumeric() || char == '_';
    let known: BTreeSet<_> = encoded.lines().filter_map(|line| line.split([' ', '{']).next()).collect();
    let rest = text.split("scx_magpie_").skip(1);
    let asked: BTreeSet<_> =
        rest.map(|rest| format!("scx_magpie_{}", rest.split(|c| !is_name(c)).next().unwrap())).collect();
    for name in &asked {
        assert!(known.contains(&name[..]), "{name}");
    }
    asked
}

#[test]
fn the_dashboard_asks_for_what_there_is() {
    let dashboard = include_str!("../dist/grafana-dashboard.json");
    serde_json::from_str::<serde_json::Value>(dashboard).unwrap();
    assert!(asked_for(dashboard).len() > 20);
}

#[test]
fn the_alerts_ask_for_what_there_is() {
    assert!(asked_for(include_str!("../dist/prometheus-rules.yml")).len() >= 6);
    let promtool = promtool();
    if is_here(&promtool, &["--version"]) {
        let rules = concat!(env!("CARGO_MANIFEST_DIR"), "/dist/prometheus-rules.yml");
        let checked = filtered(&promtool, &["check", "rules", "--lint-fatal", rules], "");
        assert!(checked.contains("6 rules found"), "{checked}");
    }
}

/// `scripts/scxstats_to_openmetrics.py` of the crate that the statistics are sent by.
fn script() -> Option<PathBuf> {
    // Other platforms' crates may never have been fetched.
    let platform = format!("{}-unknown-linux-gnu", std::env::consts::ARCH);
    let args = ["metadata", "--format-version=1", "--offline", "--locked", "--filter-platform", &platform];
    let output = Command::new(env!("CARGO")).args(args).current_dir(env!("CARGO_MANIFEST_DIR")).output().ok()?;
    let metadata: serde_json::Value = serde_json::from_slice(&output.stdout).ok()?;
    let package = metadata["packages"].as_array()?.iter().find(|package| package["name"] == "scx_stats")?;
    let manifest = PathBuf::from(package["manifest_path"].as_str()?);
    Some(manifest.with_file_name("scripts").join("scxstats_to_openmetrics.py")).filter(|path| path.exists())
}

/// Ends it, however the test ends.
struct Killed(Child);

impl Drop for Killed {
    fn drop(&mut self) {
        _ = self.0.kill();
        _ = self.0.wait();
    }
}

fn llc(node: usize, count: u64) -> LlcSnapshot {
    LlcSnapshot {
        nr_cpus: 4,
        capacity: 4096,
        sum_util: 2048,
        sum_target: 2048,
        nr_scan: 2,
        nr_queued: 3,
        max_queued: 2,
        node,
        busy_ns: count,
        counters: std::array::from_fn(|stat| count + stat as u64),
        latencies: std::array::from_fn(|_| count),
        stolen_from: std::array::from_fn(|_| count),
    }
}

#[test]
fn the_script_of_the_scx_project_works() {
    let Some(script) = script() else {
        return println!("left out: scx_stats has no scripts/scxstats_to_openmetrics.py");
    };
    if !is_here(PYTHON, &["-c", "import prometheus_client"]) {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("stats");
    let mut server = Server::launch(&socket);
    let mut command = Command::new(PYTHON);
    command.arg(script).args(["-i", "0.05", "-p"]).arg(&socket).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = Killed(command.spawn().unwrap());
    let (send, lines) = mpsc::channel();
    let (out, err) = (child.0.stdout.take().unwrap(), child.0.stderr.take().unwrap());
    let pass_on = |send: mpsc::Sender<_>, from: Box<dyn BufRead + Send>| {
        std::thread::spawn(move || from.lines().map_while(Result::ok).try_for_each(|line| send.send(line)))
    };
    pass_on(send.clone(), Box::new(BufReader::new(out)));
    pass_on(send, Box::new(BufReader::new(err)));

    let mut missing: BTreeMap<&str, u32> =
        ["search ", "cgroups_nr_groups 0.0", "memory_samples ", "l_search{llc=\"1\"} ", "n_checks{node=\"1\"} "]
            .map(|line| (line, 3))
            .into();
    let (deadline, mut said, mut asked) = (Instant::now() + PATIENCE, String::new(), 0);
    while !missing.is_empty() {
        assert!(Instant::now() < deadline, "waited in vain for {missing:?}:\n{said}");
        server.answer(|| {
            asked += 1;
            Ok(Snapshot { llcs: vec![llc(0, 7 * asked), llc(1, 9 * asked)], ..Snapshot::default() })
        });
        let Ok(line) = lines.recv_timeout(Duration::from_millis(10)) else { continue };
        assert!(!line.contains("retrying"), "{line}\n{said}");
        missing.retain(|start, rounds| {
            *rounds -= u32::from(line.starts_with(*start));
            *rounds > 0
        });
        said += &format!("{line}\n");
    }
}

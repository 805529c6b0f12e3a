// SPDX-License-Identifier: GPL-2.0-only
//! Statistics as other programs read them: promtool, python's parser of OpenMetrics, the scx project's script, dashboards, alerts.
//! Programs that are not installed are left out, which is said (`cargo test -- --nocapture`).

use std::collections::{BTreeMap, BTreeSet};
use std::env;
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use scx_magpie::export::{Format, Host, encode};
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
        version: "0.2.0-gabc".into(),
        kernel: "6.18.0".into(),
        cgroups: Cgroups { top: [("a \"b\" \\c".into(), cgroup)].into(), ..Cgroups::default() },
        memory: Memory::default(),
        wake_cases: [(2, case)].into(),
        nodes: [(0, Node { checks: 7, checks_preferred: 5, ..Node::default() })].into(),
        llcs: [(0, llc(4)), (1, llc(5))].into(),
        ..Metrics::default()
    }
}

/// A machine that says all that it can.
fn host() -> Host {
    Host { scheduler: "magpie_0.2.0".into(), nr_attached: Some(3), nr_failures: 2, pressure_us: Some(1_500_000) }
}

/// A machine that fell back to EEVDF, and whose kernel says no more.
fn on_eevdf() -> Host {
    Host { scheduler: "EEVDF".into(), nr_attached: None, pressure_us: None, ..host() }
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
    let text = encode(&host(), Some(&metrics()), Format::Prometheus).unwrap();
    for line in [
        "scx_magpie_up 1",
        "scx_magpie_scheduler_info{scheduler=\"magpie_0.2.0\"} 1",
        "scx_magpie_failures_total 2",
        "scx_magpie_attaches_total 3",
        "scx_magpie_cpu_pressure_seconds_total 1.5",
        "scx_magpie_build_info{version=\"0.2.0-gabc\",kernel=\"6.18.0\"} 1",
        "scx_magpie_uptime_seconds 90.5",
        "scx_magpie_utilization_ratio{llc=\"0\"} 0.5",
        "scx_magpie_searches_total{llc=\"1\"} 5",
        "scx_magpie_busy_seconds_total{llc=\"0\"} 1.5",
        "scx_magpie_wakeups_total{llc=\"0\",placed=\"handoff\"} 0",
        "scx_magpie_node_ticks_total{node=\"0\",preferred=\"false\"} 2",
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
    let text = encode(&on_eevdf(), None, Format::OpenMetrics).unwrap();
    let samples: Vec<_> = text.lines().filter(|line| !line.starts_with('#')).collect();
    let left = ["scx_magpie_up 0", "scx_magpie_scheduler_info{scheduler=\"EEVDF\"} 1", "scx_magpie_failures_total 2"];
    assert_eq!((&samples[..], text.ends_with("# EOF\n")), (&left[..], true));
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
        let text = encode(&host(), Some(&metrics()), Format::Prometheus).unwrap();
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
        let text = encode(&host(), Some(&metrics()), format).unwrap();
        let samples = text.lines().filter(|line| !line.starts_with('#')).count();
        assert_eq!(filtered(PYTHON, &["-c", PARSE, name], &text).trim(), samples.to_string());
    }
}

/// The metrics that a text names; each must exist.
fn asked_for(text: &str) -> BTreeSet<String> {
    let encoded = encode(&host(), Some(&metrics()), Format::Prometheus).unwrap();
    let is_name = |char: char| char.is_ascii_alphanumeric() || char == '_';
    let known: BTreeSet<_> = encoded
        .lines()
        // Of a histogram, which has no sample of its name.
        .filter_map(|line| line.strip_prefix("# TYPE ").unwrap_or(line).split([' ', '{']).next())
        .collect();
    let rest = text.split("scx_magpie_").skip(1);
    let asked: BTreeSet<_> =
        rest.map(|rest| format!("scx_magpie_{}", rest.split(|c| !is_name(c)).next().unwrap())).collect();
    for name in &asked {
        assert!(known.contains(&name[..]), "{name}");
    }
    asked
}

const RULES: &str = include_str!("../dist/prometheus-rules.yml");
const OPERATING: &str = include_str!("../docs/operating.md");

/// The folder of the source.
fn top() -> PathBuf {
    env!("CARGO_MANIFEST_DIR").into()
}

/// Name and text of each dashboard.
fn dashboards() -> Vec<(String, String)> {
    let files = fs::read_dir(top().join("dist")).unwrap().map(|file| file.unwrap());
    let names = files.map(|file| file.file_name().into_string().unwrap());
    let dashboards: Vec<_> = names
        .filter(|name| name.starts_with("grafana-"))
        .map(|name| (name.clone(), fs::read_to_string(top().join("dist").join(name)).unwrap()))
        .collect();
    assert!(dashboards.len() >= 2);
    dashboards
}

#[test]
fn the_dashboards_and_docs_ask_for_what_there_is() {
    for (name, text) in dashboards() {
        assert!(asked_for(&text).len() > 10, "{name}");
    }
    // The table has names without their prefix, and `memory_*`.
    let table = OPERATING.split("| metrics, all `scx_magpie_`").nth(1).unwrap().lines().skip(2);
    let cells = table.take_while(|row| row.starts_with('|')).map(|row| row.split('|').nth(1).unwrap());
    let names: Vec<_> = cells.flat_map(|cell| cell.split('`').skip(1).step_by(2)).collect();
    let names = names.iter().filter(|name| !name.ends_with('*')).map(|name| format!("scx_magpie_{name} "));
    assert!(asked_for(&names.collect::<String>()).len() > 30);
}

/// The queries of a dashboard, those of all its panels.
fn queries(dashboard: &str) -> Vec<String> {
    let dashboard: serde_json::Value = serde_json::from_str(dashboard).unwrap();
    let panels = dashboard["panels"].as_array().unwrap();
    let targets = panels.iter().flat_map(|panel| panel["targets"].as_array().unwrap());
    targets.map(|target| target["expr"].as_str().unwrap().to_string()).collect()
}

/// Series for promtool, an hour long: counters and histograms rise, by different numbers.
fn series(instance: &str, text: &str) -> String {
    let (mut lines, mut is_gauge) = (String::new(), false);
    for (nr, line) in text.lines().enumerate() {
        if line.starts_with("# TYPE") {
            is_gauge = line.ends_with(" gauge");
        }
        let Some((name, value)) = line.rsplit_once(' ').filter(|_| !line.starts_with('#')) else { continue };
        let (name, labels) = name.strip_suffix('}').unwrap_or(name).split_once('{').unwrap_or((name, ""));
        let labels = [labels, &format!("job=\"scx_magpie\",instance=\"{instance}\"")].join(",");
        let values = if is_gauge { format!("{value}x60") } else { format!("{value}+{}x60", nr + 1) };
        lines += &format!("      - {{ series: '{name}{{{}}}', values: '{values}' }}\n", labels.trim_start_matches(','));
    }
    lines
}

/// Each query has an answer on a fleet of two machines, of which one runs EEVDF: promtool evaluates it.
#[test]
fn each_panel_shows_something() {
    const VARIABLES: [(&str, &str); 4] =
        [("$__rate_interval", "5m"), ("$__range", "1h"), ("$instance", ".*"), ("$job", ".*")];
    let promtool = promtool();
    if !is_here(&promtool, &["--version"]) {
        return;
    }
    let attached = encode(&host(), Some(&metrics()), Format::Prometheus).unwrap();
    let fallen_back = encode(&on_eevdf(), None, Format::Prometheus).unwrap();
    let series = [series("a", &attached), series("b", &fallen_back)].concat();
    let mut tests = String::new();
    for query in dashboards().iter().flat_map(|(_, text)| queries(text)) {
        let query = VARIABLES.iter().fold(query, |query, (name, value)| query.replace(name, value)).replace('\'', "''");
        tests += &format!(
            "      - {{ expr: 'count({query}) > bool 0', eval_time: 50m, exp_samples: [{{ labels: '{{}}', value: 1 }}] }}\n"
        );
    }
    let file = tempfile::NamedTempFile::new().unwrap();
    let text = format!("tests:\n  - interval: 1m\n    input_series:\n{series}    promql_expr_test:\n{tests}");
    fs::write(file.path(), text).unwrap();
    filtered(&promtool, &["test", "rules", file.path().to_str().unwrap()], "");
}

/// Promtool runs the cases of tests/data; each alert has one in which it fires, one in which it does not, and a row in docs.
#[test]
fn the_alerts_fire_where_they_should() {
    asked_for(RULES);
    let alerts: Vec<_> = RULES.lines().filter_map(|line| line.trim().strip_prefix("- alert: ")).collect();
    let cases = include_str!("data/prometheus-rules.yml").replace("exp_alerts", "fires").replace([',', '}'], "");
    let cases: Vec<_> = cases.split("alertname: ").skip(1).map(|case| (case, case.contains("fires"))).collect();
    for alert in &alerts {
        let of = |fires| cases.iter().any(|&(case, has)| case.split_whitespace().next() == Some(alert) && has == fires);
        assert!(
            of(true) && of(false),
            "{alert}: a case in which it fires: {}, one in which not: {}",
            of(true),
            of(false)
        );
        assert!(OPERATING.contains(&format!("| `{alert}` |")), "docs/operating.md: nothing about {alert}");
    }
    let promtool = promtool();
    if is_here(&promtool, &["--version"]) {
        let [rules, cases] = ["dist", "tests/data"].map(|folder| top().join(folder).join("prometheus-rules.yml"));
        let checked = filtered(&promtool, &["check", "rules", "--lint-fatal", rules.to_str().unwrap()], "");
        assert!(checked.contains(&format!("{} rules found", alerts.len())), "{checked}");
        filtered(&promtool, &["test", "rules", cases.to_str().unwrap()], "");
    }
}

/// The collector's receiver takes a configuration of Prometheus; so promtool can check that of the docs.
#[test]
fn the_configuration_for_opentelemetry_is_one_of_prometheus() {
    let promtool = promtool();
    if is_here(&promtool, &["--version"]) {
        let block = OPERATING.split("```yaml\nreceivers:\n").nth(1).unwrap();
        let scrape = block.split("    config:\n").nth(1).unwrap().lines().take_while(|line| line.starts_with("      "));
        let file = tempfile::NamedTempFile::new().unwrap();
        fs::write(file.path(), scrape.map(|line| format!("{}\n", &line[6..])).collect::<String>()).unwrap();
        let checked = filtered(&promtool, &["check", "config", file.path().to_str().unwrap()], "");
        assert!(checked.contains("SUCCESS"), "{checked}");
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

// SPDX-License-Identifier: GPL-2.0-only
//! Random scenarios: a seed determines machine, flags, tasks and faults. A scenario that fails is
//! shrunk as long as it still fails.
//!
//! ```text
//! seed --scenarios()--> Scenario --separate process--> holds
//!                          ^                          \--> violation, or a crash (sanitizers abort)
//!                          +---- simplify, as proptest does, until nothing smaller fails
//! ```

use std::cell::OnceCell;
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail, ensure};
use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::{Config, RngAlgorithm, TestError, TestRng, TestRunner};

use crate::cgroup::Spec;
use crate::checks::Violation;
use crate::fluid::Largest;
use crate::kernel::Fault;
use crate::machine::Shape;
use crate::mask::Mask;
use crate::scenario::Scenario;
use crate::workload::Workload;
use crate::workload::chaos::{Chaos, ChaosTask, Kind};
use crate::workload::hogs::Hogs;

/// Time limit for shrinking one failure, ms.
const MAX_SHRINK: u32 = 20_000;

pub fn scenario(seed: u64) -> Scenario {
    tree(seed).1.current()
}

/// Run a seed's scenario with this program's executable `exe`; `None` if all invariants hold. Else
/// return the smallest scenario found that violates the same one, and the violation.
pub fn run_seed(exe: &Path, seed: u64) -> Result<Option<(Scenario, String)>> {
    let (mut runner, tree) = tree(seed);
    let kind = OnceCell::new();
    let run = |scenario| {
        let violation = run_apart(exe, &scenario).map_err(|err| TestCaseError::reject(format!("{err:#}")))?;
        let Some(violation) = violation else { return Ok(()) };
        let first = kind.get_or_init(|| {
            eprintln!("seed {seed} fails ({}); looking for a smaller scenario", violation.kind);
            violation.kind.clone()
        });
        if violation.kind == *first { Err(TestCaseError::fail(violation.to_string())) } else { Ok(()) }
    };
    match runner.run_one(tree, run) {
        Ok(true) => Ok(None),
        Err(TestError::Fail(violation, scenario)) => Ok(Some((scenario, violation.to_string()))),
        rejected => bail!("the scenario of seed {seed} cannot be run: {rejected:?}"),
    }
}

/// Run a seed's scenario to its end, whatever the lags of tasks. Return the largest one, and another
/// violated invariant, which ended the run early.
pub fn measure_lag(seed: u64) -> Result<(Largest, Option<Violation>)> {
    let outcome = scenario(seed).run_with(false, |kernel| kernel.checks.fluid.enforced = false)?;
    Ok((outcome.report.largest_lag, outcome.violation))
}

/// Run a scenario in a separate process, so that its end by a signal, a panic or a sanitizer is a
/// violation like others, with the last messages.
fn run_apart(exe: &Path, scenario: &Scenario) -> Result<Option<Violation>> {
    let mut child = Command::new(exe)
        .args(["replay", "--verdict", "-"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .with_context(|| format!("cannot run {}", exe.display()))?;
    serde_json::to_writer(child.stdin.take().context("no stdin")?, scenario)?;
    let out = child.wait_with_output()?;
    if let Ok(violation) = serde_json::from_slice(&out.stdout) {
        return Ok(violation);
    }
    let said = String::from_utf8_lossy(&out.stderr);
    ensure!(!said.contains("replay:"), "{said}");
    // Without AddressSanitizer's dump of shadow memory.
    let what = format!("{}\n{}", out.status, said.split("Shadow bytes around").next().unwrap_or(""));
    Ok(Some(Violation { kind: "crash".into(), at: 0, what }))
}

fn tree(seed: u64) -> (TestRunner, impl ValueTree<Value = Scenario>) {
    let mut bytes = [0; 32];
    bytes[..8].copy_from_slice(&seed.to_le_bytes());
    let rng = TestRng::from_seed(RngAlgorithm::ChaCha, &bytes);
    let config = Config { max_shrink_time: MAX_SHRINK, failure_persistence: None, ..Config::default() };
    let mut runner = TestRunner::new_with_rng(config, rng);
    let tree = scenarios(seed).new_tree(&mut runner).expect("nothing is filtered away");
    (runner, tree)
}

fn scenarios(seed: u64) -> impl Strategy<Value = Scenario> {
    let faults = prop::collection::vec((0..400_000u64, faults()), 0..16);
    // Sometimes long enough for the guard against starvation and the watchdog.
    let tasks = prop_oneof![
        9 => (prop::collection::vec(tasks(), 0..100), 50..500u64),
        1 => (prop::collection::vec(tasks(), 0..12), 1500..4000u64),
    ];
    // Hogs that share one CPU during the entire run.
    let hogs = prop::collection::vec(-20..20i32, 0..4);
    // Sometimes all tasks on one or two CPUs: queues are long, and other CPUs cannot help.
    let confined = prop_oneof![8 => Just(0usize), 2 => 1..3usize];
    // Half of the scenarios have all tasks in the root.
    let cgroups = prop_oneof![Just(vec![]), prop::collection::vec(cgroups(), 1..12)];
    (shapes(), flags(), tasks, hogs, faults, any::<bool>(), confined, cgroups).prop_map(
        move |(machine, flags, (mut tasks, ms), hogs, faults, noise, confined, mut cgroups)| {
            for (id, spec) in cgroups.iter_mut().enumerate() {
                spec.parent %= id + 1;
            }
            for task in tasks.iter_mut().filter(|task| confined > 0 && task.kind != Kind::Kthread) {
                task.allowed = Mask::first(confined);
            }
            let hogs = hogs.into_iter().map(|nice| Workload::Hogs(Hogs { nice, cpu: 0, ..Hogs::default() }));
            Scenario {
                machine,
                flags,
                workloads: std::iter::once(Workload::Chaos(Chaos { tasks })).chain(hogs).collect(),
                cgroups,
                faults,
                ms,
                seed,
                noise,
                ..Scenario::default()
            }
        },
    )
}

fn shapes() -> impl Strategy<Value = Shape> {
    let capacities = prop_oneof![
        4 => Just(vec![1024]),
        1 => Just(vec![1024, 430]),
        1 => Just(vec![1024, 1024, 620, 250]),
    ];
    let ranks = prop_oneof![4 => Just(false), 1 => Just(true)];
    let smt = prop_oneof![3 => Just(1usize), 2 => Just(2), 1 => Just(4)];
    let counts = prop_oneof![
        6 => (1..3usize, 1..4usize, 1..7usize),
        // Many LLCs, or a large LLC.
        1 => (1..5usize, 4..9usize, 1..3usize),
        1 => (Just(1usize), Just(1usize), 20..60usize),
    ];
    let nohz_full = prop_oneof![4 => Just(false), 1 => Just(true)];
    (counts, smt, capacities, ranks, nohz_full).prop_map(
        |((nodes, llcs, cores), smt, capacities, ranked, nohz_full)| {
            let ranks = if ranked { vec![3, 1, 4, 1, 5] } else { vec![0] };
            // The text of a shape has a rank for each capacity.
            let nr = capacities.len() * ranks.len();
            let [capacities, ranks] = [capacities, ranks].map(|list| list.into_iter().cycle().take(nr).collect());
            Shape { nodes, llcs, cores, smt, ranks, capacities, nohz_full }
        },
    )
}

fn flags() -> impl Strategy<Value = String> {
    let number = |name: &'static str, values: std::ops::Range<u64>| {
        let value = prop::option::weighted(0.3, values);
        value.prop_map(move |value| value.map(|value| format!("{name} {value}")).unwrap_or_default())
    };
    let one_of = |probability, flags: &[&'static str]| {
        let flags = prop::option::weighted(probability, prop::sample::select(flags.to_vec()));
        flags.prop_map(|flags| flags.unwrap_or_default().to_string())
    };
    // Often without credit.
    let lag = prop_oneof![6 => Just(None), 2 => Just(Some(0)), 2 => (0..100_000u64).prop_map(Some)]
        .prop_map(|us| us.map(|us| format!("--slice-us-lag {us}")).unwrap_or_default());
    let cgroups =
        ["--no-cgroups", "--cgroup-mode concur", "--cgroup-mode concur", "--cgroup-mode max", "--cgroup-mode tasks"];
    let steal = ["--steal off", "--steal llc", "--steal node", "--steal all"];
    let search = ["--no-scan-limit", "--small-llc-boost off", "--imbalance-pct 300", "--latency-hist"];
    let affine = [
        "--wake-affine off",
        "--wake-affine sync",
        "--wake-affine idle,sync",
        "--numa-backoff 0",
        "--numa-sample-share 0",
    ];
    let energy = ["--cpufreq on", "--power powersave", "--power powersave --cpufreq on"];
    (
        number("--slice-us", 100..20_000),
        lag,
        number("--util-interval", 1..100),
        number("--migration-cost-llc-us", 0..2000),
        number("--migration-cost-node-us", 0..2000),
        // Short enough for the guard against starvation to act.
        number("--timeout-ms", 1000..3000),
        prop::bool::weighted(0.2).prop_map(|no| if no { "--no-wakeup-preempt".into() } else { String::new() }),
        one_of(0.6, &cgroups),
        one_of(0.3, &steal),
        one_of(0.3, &search),
        one_of(0.3, &affine),
        one_of(0.3, &energy),
    )
        .prop_map(|(a, b, c, d, e, f, g, h, i, j, k, l)| [a, b, c, d, e, f, g, h, i, j, k, l].join(" "))
}

fn cgroups() -> impl Strategy<Value = Spec> {
    let weight = prop_oneof![2 => Just(100u32), 1 => Just(1), 1 => Just(10_000), 2 => 1..=10_000u32];
    let cpus = prop_oneof![4 => Just(0), 1 => 1..8usize];
    (0..16usize, weight, prop::bool::weighted(0.1), cpus).prop_map(|(parent, weight, idle, cpus)| Spec {
        parent,
        weight,
        idle,
        cpus,
    })
}

/// Generate a quota and a period, us, in the kernel's range.
fn limits() -> impl Strategy<Value = (u64, u64)> {
    let period = prop_oneof![2 => Just(100_000u64), 1 => 1_000..1_000_000u64];
    let percent = prop_oneof![1 => Just(1u64), 3 => 1..400u64];
    (period, percent).prop_map(|(period, percent)| ((period * percent / 100).max(1000), period))
}

fn masks() -> impl Strategy<Value = Mask> {
    let of = |bits: u64| (0..64).filter(|cpu| bits & 1 << cpu != 0).collect::<Mask>();
    prop_oneof![
        5 => Just(Mask::all()),
        2 => (0..16usize).prop_map(Mask::only),
        2 => any::<u64>().prop_map(of),
        1 => (0..8usize, 1..8usize).prop_map(|(first, nr)| (first..first + nr).collect()),
    ]
}

fn tasks() -> impl Strategy<Value = ChaosTask> {
    let kind = prop_oneof![
        2 => Just(Kind::Hog),
        4 => Just(Kind::Sleeper),
        1 => Just(Kind::Yielder),
        1 => Just(Kind::Pinned),
        1 => Just(Kind::Forker),
        3 => Just(Kind::Pair),
        1 => Just(Kind::Fan),
        1 => Just(Kind::Kthread),
        1 => Just(Kind::ForkLoop),
        1 => Just(Kind::Pool),
        1 => Just(Kind::JustBefore),
        1 => Just(Kind::Hopper),
        1 => Just(Kind::SeldomGroup),
        1 => Just(Kind::Renicer),
    ];
    let run = prop_oneof![3 => 1..200u64, 2 => 200..5_000u64, 1 => 5_000..30_000u64];
    let sleep = prop_oneof![3 => 1..500u64, 2 => 500..10_000u64];
    let nice = prop_oneof![3 => Just(0i32), 1 => -20..20i32];
    let policy = prop_oneof![8 => Just(0u32), 1 => Just(3), 1 => Just(5)];
    let cgroup = 0..16usize;
    (kind, run, sleep, nice, (policy, own_slices()), masks(), cgroup, 2..33usize).prop_map(
        |(kind, run_us, sleep_us, nice, (policy, slice_us), allowed, cgroup, nr)| {
            // A kernel thread is bound to one CPU and runs briefly.
            let kthread = kind == Kind::Kthread;
            let allowed = if kthread { Mask::only(allowed.iter().next().unwrap_or(0)) } else { allowed };
            let run_us = if kthread { run_us.min(100) } else { run_us };
            ChaosTask { kind, run_us, sleep_us, nice, policy, slice_us, allowed, cgroup, nr }
        },
    )
}

/// Generate slices that programs ask for, us, in the kernel's range; mostly none.
fn own_slices() -> impl Strategy<Value = u64> {
    prop_oneof![8 => Just(0u64), 2 => 100..3_000u64, 1 => 3_000..100_000u64]
}

fn faults() -> impl Strategy<Value = Fault> {
    let cpu = 0..64usize;
    prop_oneof![
        3 => (cpu.clone(), 1_000..20_000_000u64).prop_map(|(cpu, ns)| Fault::HigherClass { cpu, ns }),
        3 => (any::<u16>(), masks()).prop_map(|(pick, allowed)| Fault::Affinity { pick: pick.into(), allowed }),
        2 => (any::<u16>(), -20..20i32).prop_map(|(pick, nice)| Fault::Nice { pick: pick.into(), nice }),
        1 => (any::<u16>(), own_slices()).prop_map(|(pick, us)| Fault::OwnSlice { pick: pick.into(), us }),
        2 => (any::<u16>(), 0..16usize).prop_map(|(pick, to)| Fault::Move { pick: pick.into(), to }),
        2 => (any::<u16>(), 0..16usize).prop_map(|(pick, to)| Fault::Session { pick: pick.into(), to }),
        1 => (0..16usize, 1..=10_000u32).prop_map(|(cgroup, weight)| Fault::Weight { cgroup, weight }),
        1 => (0..16usize, any::<bool>()).prop_map(|(cgroup, idle)| Fault::Idle { cgroup, idle }),
        2 => (0..16usize, prop::option::weighted(0.8, limits()), 0..100_000u64).prop_map(|(cgroup, limit, burst_us)| {
            let (quota_us, period_us) = limit.unzip();
            let period_us = period_us.unwrap_or(100_000);
            Fault::Limit { cgroup, quota_us, period_us, burst_us: burst_us.min(quota_us.unwrap_or(0)) }
        }),
        2 => (any::<u16>(), prop::option::weighted(0.8, 0..64usize))
            .prop_map(|(pick, node)| Fault::Memory { pick: pick.into(), node }),
        1 => cgroups().prop_map(Fault::Make),
        1 => (0..16usize).prop_map(|cgroup| Fault::Remove { cgroup }),
        1 => cpu.clone().prop_map(|cpu| Fault::Offline { cpu }),
        1 => cpu.prop_map(|cpu| Fault::Online { cpu }),
    ]
}

// SPDX-License-Identifier: GPL-2.0-only
//! Hogs that may use all CPUs share them by weight, wherever they started: 20 s of simulated time.

use magpie_sim::dsq::TaskId;
use magpie_sim::scenario::Scenario;
use magpie_sim::workload::HOG;

/// What each is due, in CPUs: by weight, but nobody more than one.
fn due(weights: &[f64], nr_cpus: f64) -> Vec<f64> {
    let mut due = vec![0.0; weights.len()];
    let (mut cpus, mut order) = (nr_cpus, (0..weights.len()).collect::<Vec<_>>());
    order.sort_by(|&a, &b| weights[b].total_cmp(&weights[a]));
    let mut rest: f64 = weights.iter().sum();
    for task in order {
        due[task] = f64::min(1.0, cpus * weights[task] / rest);
        cpus -= due[task];
        rest -= weights[task];
    }
    due
}

/// How far from what it is due the worst one is, as a share of that.
fn unfairness(machine: &str, nr_cpus: f64, hogs: &[&str], flags: &[&str]) -> f64 {
    let scenario = Scenario {
        machine: machine.parse().unwrap(),
        flags: flags.join(" "),
        workloads: hogs.iter().map(|hogs| hogs.parse().unwrap()).collect(),
        ms: 20_000,
        ..Scenario::default()
    };
    let kernel = scenario.run(false).unwrap().kernel;
    let tasks: Vec<TaskId> =
        (0..kernel.tasks.len()).filter(|&task| kernel.programs[kernel.tasks[task].program].name == HOG).collect();
    let weights: Vec<f64> = tasks.iter().map(|&task| kernel.tasks[task].weight().into()).collect();
    let worst = tasks.iter().zip(due(&weights, nr_cpus)).map(|(&task, due)| {
        let task = &kernel.tasks[task];
        let got = task.raw().se.sum_exec_runtime as f64 / 20e9;
        println!("{machine} weight {:5}: got {got:.3} CPUs, due {due:.3}", task.weight());
        (got / due - 1.0).abs()
    });
    worst.fold(0.0, f64::max)
}

#[test]
fn equal_hogs_share_equally() {
    for (machine, nr_cpus, nr) in
        [("1x1x2x1", 2.0, 3), ("1x1x4x1", 4.0, 5), ("1x1x8x1", 8.0, 17), ("1x2x4x1", 8.0, 9), ("2x1x4x1", 8.0, 9)]
    {
        let worst = unfairness(machine, nr_cpus, &[&format!("hogs:nr={nr}")], &[]);
        assert!(worst < 0.05, "{nr} hogs on {machine}: {worst:.3}");
    }
}

#[test]
fn hogs_of_mixed_weights_share_by_weight() {
    for (machine, nr_cpus, hogs) in [
        ("1x1x2x1", 2.0, &["hogs:nr=2", "hogs:nr=2,nice=5"][..]),
        ("1x1x4x1", 4.0, &["hogs:nr=4", "hogs:nr=3,nice=-3", "hogs:nr=2,nice=5"]),
        ("1x2x4x1", 8.0, &["hogs:nr=6", "hogs:nr=5,nice=3", "hogs:nr=3,nice=-2"]),
        ("1x1x2x1", 2.0, &["hogs:nr=1,nice=-10", "hogs:nr=2"]),
    ] {
        let worst = unfairness(machine, nr_cpus, hogs, &[]);
        assert!(worst < 0.1, "{hogs:?} on {machine}: {worst:.3}");
    }
}

/// Sleepers that timers wake have credit at each wakeup. Together they would use all CPUs, and hogs have their share all the
/// same, whatever the sleepers' bursts and weights.
#[test]
fn sleepers_leave_hogs_their_share() {
    for (machine, nr_cpus, sleepers, nr_sleepers, hogs, nr_hogs) in [
        ("1x1x1x1", 1.0, "sleepers:nr=6,run=650,sleep=100", 6.0, "hogs:nr=2", 2.0),
        ("1x1x1x1", 1.0, "sleepers:nr=12,run=100,sleep=100", 12.0, "hogs:nr=1", 1.0),
        ("1x1x1x1", 1.0, "sleepers:nr=8,run=5000,sleep=300", 8.0, "hogs:nr=2", 2.0),
        ("1x1x4x1", 4.0, "sleepers:nr=24,run=650,sleep=100", 24.0, "hogs:nr=4", 4.0),
    ] {
        let scenario = Scenario {
            machine: machine.parse().unwrap(),
            workloads: [sleepers, hogs].map(|workload| workload.parse().unwrap()).into(),
            ms: 3000,
            ..Scenario::default()
        };
        let kernel = scenario.run(false).unwrap().kernel;
        let tasks = kernel.tasks.iter().filter(|task| kernel.programs[task.program].name == HOG);
        let due = 3e9 * nr_cpus / (nr_sleepers + nr_hogs);
        let least = tasks.map(|task| task.raw().se.sum_exec_runtime).min().unwrap() as f64 / due;
        assert!((0.85..1.2).contains(&least), "{machine} {sleepers} {hogs}: {least:.3}");
    }
}

#[test]
fn they_do_not_without_stealing() {
    assert!(unfairness("1x1x2x1", 2.0, &["hogs:nr=3"], &["--steal", "off"]) > 0.2);
}

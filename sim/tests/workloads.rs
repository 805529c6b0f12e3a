// SPDX-License-Identifier: GPL-2.0-only
//! Workloads, each alone on a machine: what they do is what they are named after, and wrong parameters are refused.

use magpie_sim::scenario::{Outcome, Scenario};
use magpie_sim::workload::{HOG, Workload};

fn scenario(machine: &str, workload: &str, ms: u64) -> Scenario {
    Scenario {
        machine: machine.parse().unwrap(),
        workloads: vec![workload.parse().unwrap()],
        ms,
        ..Scenario::default()
    }
}

/// What comes of a workload alone on a machine, where nothing may break.
fn outcome(machine: &str, workload: &str, ms: u64) -> Outcome {
    let outcome = scenario(machine, workload, ms).run(false).unwrap();
    assert_eq!(outcome.violation, None, "{workload} on {machine}");
    outcome
}

/// Why it is refused.
fn refusal(workload: &str) -> String {
    let err = match workload.parse::<Workload>() {
        Ok(_) => scenario("1x1x2x1", workload, 1).run(false).map(|_| ()).unwrap_err(),
        Err(err) => err,
    };
    format!("{err:#}")
}

#[test]
fn tasks_start_where_they_are_told() {
    let mut scenario = scenario("2x1x2x1", "hogs:nr=3", 500);
    (scenario.start_cpus, scenario.working_set_kb) = (Some(2), Some(1024));
    let throughput = |pct| {
        let outcome = Scenario { remote_memory_pct: pct, ..scenario.clone() }.run(false).unwrap();
        let kernel = &outcome.kernel;
        let hogs = || kernel.tasks.iter().filter(|task| kernel.programs[task.program].name == HOG);
        assert!(hogs().all(|hog| hog.first_cpu < 2 && hog.traits.working_set == 1 << 20 >> 6));
        outcome.report.groups.iter().find(|group| group.name == "hogs").unwrap().throughput
    };
    // The third hog runs on the other node.
    let ratio = throughput(100) / throughput(0);
    assert!((0.8..0.87).contains(&ratio), "{ratio}");
}

#[test]
fn runs_end_and_all_messages_arrive() {
    for pipe in [true, false] {
        let outcome = outcome("1x1x4x1", &format!("hackbench:groups=2,fds=5,loops=200,pipe={pipe}"), 200);
        let hackbench = &outcome.report.groups[0];
        assert!(hackbench.requests >= 2, "{hackbench:?}");
        assert!(hackbench.request_us.p50 > 1000.0, "{hackbench:?}");
        // A receiver exits after all its messages, and a run ends after all receivers: what is left is the last's.
        let kernel = &outcome.kernel;
        let done = kernel.tasks.iter().filter(|task| !task.is_alive()).count();
        assert!(done >= 20 * hackbench.requests as usize, "{done} tasks have exited");
    }
}

#[test]
fn what_is_sent_is_read() {
    // Were it more or less by one for a receiver, messages would pile up, or runs would not end.
    let outcome = outcome("1x1x2x1", "hackbench:fds=3,loops=2", 500);
    let runs = outcome.report.groups[0].requests;
    assert!(runs > 100, "{runs} runs");
    let (most, of_a_run) = (outcome.kernel.channels.iter().map(|channel| channel.messages.len()).max(), 3 * 2);
    assert!(most <= Some(of_a_run), "{most:?} messages are left after {runs} runs");
}

#[test]
fn hackbench_refuses_wrong_parameters() {
    assert!(refusal("hackbench:groups=0").contains("not in 1..1000"));
    assert!(refusal("hackbench:fds=1001").contains("not in 1..1000"));
    assert!(refusal("hackbench:loops=0").contains("not in 1..1000000"));
}

#[test]
fn at_low_load_workers_wake_at_once() {
    let outcome = outcome("1x1x16x1", "schbench:m=2,t=3", 2000);
    let [workers, messages] = &outcome.report.groups[..] else { panic!("two groups") };
    assert_eq!((&*workers.name, &*messages.name), ("schbench", "schbench-message"));
    assert!((1.0..8.0).contains(&workers.wakeup_us.p50), "{workers:?}");
    let expected = 6.0 * 2.0 * 15.0 / (15.0 + 10.0);
    assert!((0.9..=1.1).contains(&(workers.cpu_s / expected)), "{} s, not {expected}", workers.cpu_s);
    assert!((15_000.0..15_100.0).contains(&workers.request_us.p50), "{workers:?}");
    assert!(messages.cpu_s < 0.02, "{messages:?}");
    assert!(workers.wakeups >= 6 * 70, "{workers:?}");
}

#[test]
fn overloaded_workers_wait_and_all_run() {
    let outcome = outcome("1x1x2x1", "schbench:m=1,t=8,s=1000,c=3000", 1000);
    let workers = &outcome.report.groups[0];
    assert!(workers.wakeup_us.p99 > 1000.0, "{workers:?}");
    assert!(workers.cpu_s > 1.5, "{workers:?}");
}

#[test]
fn schbench_refuses_wrong_parameters() {
    assert!(refusal("schbench:m=0").contains("not in 1..1000"));
    assert!(refusal("schbench:t=2000").contains("not in 1..1000"));
    assert!(refusal("schbench:s=20000000").contains("not in 0..10000000"));
    assert!(refusal("schbench:c=0").contains("not in 1..10000000"));
    assert!(refusal("schbench:r=30").contains("unknown field `r`"));
}

#[test]
fn operations_take_work_and_switches() {
    let outcome = outcome("1x1x4x1", "tbench", 300);
    let tbench = &outcome.report.groups[0];
    // Work of a mean operation, both sides and all trips, and less than as much again for switches and wakeups.
    // us, by the table of workload/tbench.rs
    let work = 21.8;
    let took = 2.0 * 1e6 / tbench.throughput;
    assert!(took > work && took < 2.0 * work, "{took} us an operation, of which {work} are work");
    assert!(tbench.request_us.p50 < tbench.request_us.p99, "{tbench:?}");
}

#[test]
fn tbench_refuses_wrong_parameters() {
    assert!(refusal("tbench:clients=10001").contains("not in 0..10000"));
}

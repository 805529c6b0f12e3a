// SPDX-License-Identifier: GPL-2.0-only
//! Tasks from a file of the tool rt-app (doc/tutorial.txt there), for what that says of running, waiting and waking:
//! what this cannot do is refused, not passed over. A unit of work is a loop of a phase, from when it was due (its
//! timer, its wakeup) to its last event before it waits again.
//!
//! ```text
//! JSON --Json (members in order)--> Task, Phase, Event --add()--> steps: BeginDue, Run, End, Timer, Loop ...
//!        json.rs                    file.rs                       steps.rs
//! ```

mod file;
mod json;
mod steps;

use anyhow::{Context, Result, ensure};
use serde::{Deserialize, Serialize};

use super::Builder;

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct RtApp {
    pub file: String,
}

impl RtApp {
    pub fn add(&self, builder: &mut Builder<'_>) -> Result<()> {
        ensure!(!self.file.is_empty(), "which file? rtapp:file=PATH");
        let text = std::fs::read_to_string(&self.file).with_context(|| self.file.clone())?;
        let tasks = file::parse(&text).with_context(|| self.file.clone())?;
        steps::add(&tasks, builder).with_context(|| self.file.clone())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::{env, fs, process};

    use super::super::tests;
    use super::*;
    use crate::report::GroupReport;
    use crate::scenario::Outcome;
    use crate::task::{SCHED_BATCH, SCHED_IDLE};

    /// The workload of a file with that in it.
    fn with_file<R>(json: &str, run: impl FnOnce(&str) -> R) -> R {
        static NR: AtomicUsize = AtomicUsize::new(0);
        let name = format!("magpie-sim-{}-{}.json", process::id(), NR.fetch_add(1, Ordering::Relaxed));
        let file = env::temp_dir().join(name);
        fs::write(&file, json).unwrap();
        let ret = run(&format!("rtapp:file={}", file.display()));
        fs::remove_file(&file).unwrap();
        ret
    }

    fn outcome(json: &str, ms: u64) -> Outcome {
        with_file(json, |workload| tests::outcome("1x1x4x1", workload, ms))
    }

    fn group<'a>(outcome: &'a Outcome, name: &str) -> &'a GroupReport {
        outcome.report.groups.iter().find(|group| group.name == name).unwrap()
    }

    fn near(value: f64, expected: f64) -> bool {
        (0.97..1.03).contains(&(value / expected))
    }

    #[test]
    fn the_example_does_as_it_says() {
        let file = concat!(env!("CARGO_MANIFEST_DIR"), "/examples/periodic.json");
        let outcome = tests::outcome("1x1x8x1", &format!("rtapp:file={file}"), 2000);
        for (name, rate, work) in [
            ("small", 4.0 / 0.016, 0.0008),
            ("big", 50.0, 0.006),
            ("producer", 100.0, 0.0003),
            ("consumer", 100.0, 0.0005),
        ] {
            let group = group(&outcome, name);
            assert!(near(group.throughput, rate), "{name}: {} a second", group.throughput);
            // What a wakeup and a switch take comes on top.
            let work_s = work * group.requests as f64;
            assert!(group.cpu_s > work_s && group.cpu_s < 1.05 * work_s, "{name}: {} s", group.cpu_s);
            assert!((work * 1e6..work * 1e6 + 50.0).contains(&group.request_us.p50), "{name}: {:?}", group.request_us);
        }
        // 10 * (1 + 1) ms and 30 + 20 ms.
        assert!(near(group(&outcome, "background").throughput, 11.0 / 0.07));
    }

    #[test]
    fn late_timers_catch_up_or_count_anew() {
        // The first loop takes five periods.
        let json = |mode| {
            format!(
                r#"{{"tasks": {{"a": {{"phases": {{
                    "late": {{"run": 50000, "timer": {{"ref": "unique", "period": 10000, "mode": "{mode}"}}}},
                    "then": {{"loop": -1, "run": 1000, "timer": {{"ref": "unique", "period": 10000, "mode": "{mode}"}}}}
                }} }} }} }}"#
            )
        };
        for (mode, requests) in [("relative", 16..=17), ("absolute", 20..=21)] {
            let outcome = outcome(&json(mode), 200);
            let group = group(&outcome, "a");
            assert!(requests.contains(&group.requests), "{mode}: {group:?}");
        }
    }

    #[test]
    fn runtime_is_by_the_clock() {
        let json = r#"{"tasks": {
            "work": {"cpus": [0], "run": 50000, "sleep": 100},
            "time": {"cpus": [0], "runtime": 50000, "sleep": 100}
        }}"#;
        let outcome = outcome(json, 4000);
        let (work, time) = (group(&outcome, "work"), group(&outcome, "time"));
        assert!(near(work.cpu_s, work.requests as f64 * 0.05), "{work:?}");
        // Half of the time the other has the CPU, which counts.
        assert!(time.cpu_s < time.requests as f64 * 0.035, "{time:?}");
    }

    #[test]
    fn mutexes_conditions_and_barriers() {
        let json = r#"{"tasks": {
            "locker": {"instance": 3, "lock": "m", "run": 1000, "unlock": "m"},
            "waiter": {"instance": 2, "lock": "n", "wait": {"ref": "c", "mutex": "n"}, "unlock": "n", "run": 100},
            "signaller": {"run": 100, "lock": "n", "signal": "c", "unlock": "n",
                "timer": {"ref": "t", "period": 2000}},
            "meeting": {"instance": 2, "run": 200, "barrier": "b"},
            "late": {"sleep": 4000, "barrier": "b", "yield": ""},
            "ping": {"loop": 50, "run": 10, "sync": {"ref": "s", "mutex": "p"}},
            "pong": {"delay": 1000, "run": 10, "sync": {"ref": "s", "mutex": "p"}}
        }}"#;
        let outcome = outcome(json, 1000);
        let rate = |name| group(&outcome, name).throughput;
        // One at a time.
        assert!((900.0..=1000.0).contains(&rate("locker")), "{}", rate("locker"));
        assert!(near(rate("signaller"), 500.0) && near(rate("waiter"), 500.0), "{}", rate("waiter"));
        assert!((230.0..=250.0).contains(&rate("late")), "{}", rate("late"));
        assert!(near(rate("meeting"), 2.0 * rate("late")), "{}", rate("meeting"));
        assert_eq!((group(&outcome, "ping").requests, group(&outcome, "pong").requests), (50, 50));
    }

    #[test]
    fn tasks_are_what_the_file_says() {
        let json = r#"{"tasks": {
            "nice": {"priority": 5, "cpus": [1, 2], "instance": 2, "run": 1000, "run": 500, "sleepy": 10},
            "batch": {"policy": "SCHED_BATCH", "loop": 3, "run0": 100, "sleep_a": 100}
        }, "global": {"default_policy": "SCHED_IDLE", "duration": -1}}"#;
        let outcome = outcome(json, 20);
        let kernel = &outcome.kernel;
        let of = |name: &str| -> Vec<_> {
            kernel.tasks.iter().filter(|task| kernel.programs[task.program].name == name).collect()
        };
        let nice = of("nice");
        assert_eq!(nice.len(), 2);
        for task in nice {
            assert_eq!((task.traits.nice, task.traits.policy), (5, SCHED_IDLE));
            assert_eq!(task.traits.allowed, [1, 2].into_iter().collect());
        }
        let batch = of("batch");
        assert_eq!((batch[0].traits.policy, batch[0].is_alive()), (SCHED_BATCH, false));
        assert_eq!(group(&outcome, "batch").requests, 3);
        // Members of the same name are all there.
        assert!(near(group(&outcome, "nice").request_us.p50, 1500.0), "{:?}", group(&outcome, "nice"));
    }

    #[test]
    fn what_it_cannot_do_is_refused() {
        let task = |members: &str| format!(r#"{{"tasks": {{"a": {{{members}}} }} }}"#);
        for (json, message) in [
            (r#"{"tsks": {}}"#.into(), "unknown key \"tsks\""),
            ("{}".into(), "no \"tasks\""),
            (r#"{"tasks": {}, "global": {"sped": 1}}"#.into(), "\"global\": unknown key \"sped\""),
            (r#"{"tasks": {}, "global": {"pi_enabled": true}}"#.into(), "not simulated"),
            (task(""), "task \"a\": it does nothing"),
            (task(r#""rum": 1"#), "task \"a\": \"rum\": unknown key \"rum\""),
            (task(r#""run": "1""#), "\"run\": this is a string, and an integer is needed"),
            (task(r#""run": 1.5"#), "a number with a fraction"),
            (task(r#""run": -1"#), "-1 is not in 0..3600000000"),
            (task(r#""run": 1, "loop": 0"#), "at least 1"),
            (task(r#""run": 1, "priority": 20"#), "20 is not in -20..19"),
            (task(r#""run": 1, "policy": "SCHED_FIFO""#), "SCHED_FIFO"),
            (task(r#""fork": "b""#), "not simulated"),
            (task(r#""run": 1, "cpus": []"#), "no CPU"),
            (task(r#""timer": {"ref": "t"}"#), "needs a \"period\""),
            (task(r#""timer": {"period": 5, "phase": 1}"#), "unknown key \"phase\""),
            (task(r#""timer": {"period": 5, "mode": "cyclic"}"#), "neither relative nor absolute"),
            (task(r#""wait": {"ref": "c"}"#), "needs a \"mutex\""),
            (task(r#""run": 1, "phases": {"p": {"run": 1}}"#), "events of its own"),
            (
                task(r#""phases": {"p": {"run": 1, "priority": 1}}"#),
                "phase \"p\": \"priority\" is simulated for a whole",
            ),
        ] {
            let err = format!("{:#}", file::parse(&json).unwrap_err());
            assert!(err.contains(message), "{json}: {err}");
        }
        assert!(tests::refusal("rtapp").contains("rtapp:file=PATH"));
        assert!(tests::refusal("rtapp:file=/none").contains("/none"));
    }

    #[test]
    fn what_the_machine_lacks_is_refused() {
        for (members, message) in [
            (r#""run": 1, "cpus": [0, 2]"#, "there is no CPU 2"),
            (r#""instance": 2, "run": 1, "timer": {"ref": "t", "period": 10}"#, "timer \"t\" is shared"),
        ] {
            let json = format!(r#"{{"tasks": {{"a": {{{members}}} }} }}"#);
            let err = with_file(&json, tests::refusal);
            assert!(err.contains(message), "{err}");
        }
    }
}

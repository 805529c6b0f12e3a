// SPDX-License-Identifier: GPL-2.0-only
//! The parts of the simulator, one by one: a module here for each file of `src` that has tests of its own.

mod cache {
    use magpie_sim::cache::Line;
    use magpie_sim::costs::{LINE_FAR, LINE_LLC, LINE_NODE};
    use magpie_sim::machine::Machine;

    #[test]
    fn lines_travel_once() {
        let machine = Machine::new(&"2x2x2x1".parse().unwrap());
        let mut line = Line::default();
        assert!(line.store(&machine, 0) > 0, "others had copies");
        assert_eq!(line.store(&machine, 0), 0);
        assert_eq!(line.load(&machine, 1), LINE_LLC);
        assert_eq!(line.load(&machine, 1), 0);
        assert_eq!(line.load(&machine, 4), LINE_FAR);
        assert_eq!(line.store(&machine, 2), LINE_NODE);
        assert_eq!(line.load(&machine, 0), LINE_NODE);
    }
}

mod dsq {
    use magpie_sim::dsq::Dsq;

    #[test]
    fn by_virtual_time_across_zero_ties_in_order() {
        let mut dsq = Dsq::default();
        for (task, vtime) in [(1, 5u64), (2, 0u64.wrapping_sub(3)), (3, 5), (4, 0)] {
            dsq.insert_vtime(task, vtime);
        }
        assert_eq!(dsq.iter().collect::<Vec<_>>(), [2, 4, 1, 3]);
        assert!(dsq.remove(4) && !dsq.remove(4));
        assert!(dsq.remove(2));
        assert_eq!((dsq.len(), dsq.get(1)), (2, Some(3)));
    }

    #[test]
    fn an_iteration_passes_over_those_that_come_later() {
        let mut dsq = Dsq::default();
        for task in 1..4 {
            dsq.insert_vtime(task, task as u64);
        }
        let seq = dsq.seq;
        assert!(dsq.remove(1));
        dsq.insert_vtime(1, 2);
        assert_eq!([0, 1, 2, 3].map(|pos| dsq.next_before(seq, pos, false)), [Some(0), Some(2), Some(2), None]);
        assert_eq!([0, 1, 2].map(|pos| dsq.next_before(seq, pos, true)), [Some(0), Some(2), Some(2)]);
    }

    #[test]
    fn fifo_with_a_head() {
        let mut dsq = Dsq::default();
        dsq.push_back(1);
        dsq.push_back(2);
        dsq.push_front(3);
        assert_eq!(dsq.iter().collect::<Vec<_>>(), [3, 1, 2]);
        assert!(!dsq.is_empty());
    }
}

mod fluid {
    use magpie_sim::fluid::Fluid;

    fn fluid() -> Fluid {
        let mut fluid = Fluid::new(2, 1.0, 0);
        fluid.place(0, Some(0), 1, 0);
        fluid.place(1, Some(0), 3, 0);
        fluid.run(0, Some((0, true)), 0);
        fluid
    }

    fn lags(fluid: &mut Fluid, now: u64) -> [f64; 2] {
        [0, 1].map(|task| fluid.lag(task, now))
    }

    #[test]
    fn lags_follow_weights_and_add_up_to_0() {
        let mut fluid = fluid();
        assert_eq!(lags(&mut fluid, 400), [-300.0, 300.0]);
        fluid.run(0, Some((1, true)), 400);
        assert_eq!(lags(&mut fluid, 800), [-200.0, 200.0]);
        fluid.run(0, Some((1, true)), 1600);
        assert_eq!(lags(&mut fluid, 1600), [0.0, 0.0]);
        // While a higher class has the CPU.
        fluid.run(0, None, 1600);
        assert_eq!(lags(&mut fluid, 5000), [0.0, 0.0]);
    }

    #[test]
    fn a_change_of_weight_keeps_the_lag() {
        let mut fluid = fluid();
        fluid.reweigh(1, 1, 400);
        assert_eq!(lags(&mut fluid, 400), [-300.0, 300.0]);
        assert_eq!(lags(&mut fluid, 500), [-350.0, 350.0]);
    }

    #[test]
    fn another_cpu_and_a_sleep_forget_the_lag() {
        let mut fluid = fluid();
        fluid.place(1, Some(1), 3, 400);
        assert_eq!(lags(&mut fluid, 400), [-300.0, 0.0]);
        fluid.place(1, Some(0), 3, 800);
        assert_eq!(lags(&mut fluid, 1200), [-300.0, 300.0]);
        fluid.place(0, None, 1, 1200);
        assert_eq!(lags(&mut fluid, 2000), [0.0, 300.0]);
    }

    #[test]
    fn alone_nothing_is_lost_and_nothing_is_regained() {
        let mut fluid = fluid();
        fluid.place(1, None, 3, 400);
        assert_eq!(lags(&mut fluid, 400), [-300.0, 0.0]);
        assert_eq!(lags(&mut fluid, 401), [0.0, 0.0]);
        fluid.place(1, Some(0), 3, 401);
        fluid.run(0, Some((1, true)), 401);
        fluid.place(1, None, 3, 801);
        fluid.run(0, Some((0, true)), 801);
        assert_eq!(lags(&mut fluid, 2000), [100.0, 0.0]);
    }

    #[test]
    fn time_that_does_not_count_is_only_its_own() {
        let mut fluid = fluid();
        fluid.run(0, Some((0, false)), 0);
        assert_eq!(lags(&mut fluid, 400), [-400.0, 0.0]);
    }
}

mod machine {
    use magpie_sim::machine::{Distance, Machine, PRESETS, Shape};

    #[test]
    fn presets_are_what_they_say() {
        for (name, shape, _) in PRESETS {
            let parsed: Shape = name.parse().unwrap();
            assert_eq!(parsed.to_string(), shape);
        }
        assert_eq!("112".parse::<Shape>().unwrap().nr_cpus(), 112);
        assert_eq!("1024".parse::<Shape>().unwrap().nr_cpus(), 1024);
    }

    #[test]
    fn what_is_not_a_machine_is_refused() {
        for (text, message) in [
            ("none", "neither"),
            ("1x2x3", "four counts"),
            ("1x0x3x1", "count of 0"),
            ("4x16x16x2", "at most 1024"),
            ("1x1x4x1:0", "1..1024"),
            ("1x1x4x1:512", "capacity 1024"),
            ("1x1x4x1:1024@x", "rank"),
        ] {
            let err = format!("{:#}", text.parse::<Shape>().unwrap_err());
            assert!(err.contains(message), "{text}: {err}");
        }
    }

    #[test]
    fn distances() {
        let machine = Machine::new(&"2x2x2x2".parse().unwrap());
        let all: Vec<_> = [0, 1, 2, 4, 8].map(|cpu| machine.distance(0, cpu)).into();
        assert_eq!(all, [Distance::Same, Distance::Core, Distance::Llc, Distance::Node, Distance::Far]);
        assert_eq!(machine.siblings(5), 4..6);
    }
}

mod mask {
    use magpie_sim::mask::Mask;

    #[test]
    fn sets() {
        let mask: Mask = [3, 64, 1023].into_iter().collect();
        assert_eq!(mask.iter().collect::<Vec<_>>(), [3, 64, 1023]);
        assert_eq!((mask.len(), mask.next_after(64), mask.next_after(1023)), (3, Some(1023), Some(3)));
        assert!(mask.test(64) && !mask.test(65) && !mask.is_only(3));
        assert_eq!(Mask::default().next_after(0), None);
        assert_eq!(mask.to_string(), "3,64,1023");
    }

    #[test]
    fn lists_are_read_back() {
        for list in ["", "all", "0-3,8", "5", "62-65,1023"] {
            assert_eq!(list.parse::<Mask>().unwrap().to_string(), list);
        }
        assert!("1024".parse::<Mask>().is_err());
    }
}

mod program {
    use magpie_sim::program::Dist;

    #[test]
    fn means_are_kept() {
        let mut rng = fastrand::Rng::with_seed(1);
        for dist in [Dist::Fixed(1000), Dist::About(1000), Dist::Uniform(500, 1500), Dist::Exp(1000)] {
            let sum: u64 = (0..20_000).map(|_| dist.draw(&mut rng)).sum();
            assert!((950..1050).contains(&(sum / 20_000)), "{dist:?}: {sum}");
        }
        assert!((0..1000).all(|_| (800..=1200).contains(&Dist::About(1000).draw(&mut rng))));
    }
}

mod fuzz {
    use std::fs::{self, Permissions};
    use std::os::unix::fs::PermissionsExt;
    use std::path::{Path, PathBuf};

    use magpie_sim::fuzz::{run_seed, scenario};
    use magpie_sim::scenario::Scenario;

    /// An executable that runs no scenario, and ends as the test says.
    fn exe(name: &str, script: &str) -> PathBuf {
        let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
        fs::write(&path, format!("#!/bin/sh\ncat >/dev/null\n{script}\n")).unwrap();
        fs::set_permissions(&path, Permissions::from_mode(0o755)).unwrap();
        path
    }

    #[test]
    fn failures_are_shrunk_and_crashes_are_failures() {
        let violates = exe("violates", r#"echo '{"kind":"lost","at":5000,"what":"task 1"}'"#);
        let (shrunk, violation) = run_seed(&violates, 7).unwrap().unwrap();
        assert_eq!(violation, "lost: task 1 (at 5 us)");
        assert!(shrunk.faults.is_empty() && !scenario(7).faults.is_empty(), "{shrunk:?}");
        let (_, crash) = run_seed(&exe("crashes", "echo why >&2; kill -9 $$"), 7).unwrap().unwrap();
        assert!(crash.contains("signal: 9") && crash.contains("why"), "{crash}");
        assert!(run_seed(&exe("holds", "echo null"), 7).unwrap().is_none());
        let err = run_seed(&exe("refuses", "echo replay: >&2; exit 2"), 7).unwrap_err();
        assert!(err.to_string().contains("cannot be run"), "{err}");
    }

    #[test]
    fn a_seed_is_a_scenario_and_survives_json() {
        let json = |seed| serde_json::to_string(&scenario(seed)).unwrap();
        assert_eq!(json(7), json(7));
        assert_ne!(json(7), json(8));
        for seed in 0..100 {
            let again: Scenario = serde_json::from_str(&json(seed)).unwrap();
            assert_eq!(serde_json::to_string(&again).unwrap(), json(seed));
            assert_eq!(again.machine, scenario(seed).machine, "seed {seed}");
        }
    }

    #[test]
    fn the_same_scenario_gives_the_same_trace() {
        for seed in 0..10 {
            let run = || {
                let outcome = scenario(seed).run(true).unwrap();
                let mut text = Vec::new();
                outcome.kernel.write_text(&mut text).unwrap();
                (text, outcome.report.hash)
            };
            assert!(run() == run(), "seed {seed}");
        }
    }
}

// SPDX-License-Identifier: GPL-2.0-only
//! Machines whose cores differ, by capacity or in how far they are preferred: where hogs and light tasks run. The shapes are
//! those of tests/data/sysfs.

use magpie_sim::kernel::{Curr, Kernel};
use magpie_sim::program::{Dist, Step};
use magpie_sim::scenario::Scenario;
use magpie_sim::time::MSEC;
use magpie_sim::workload::{Builder, HOG};

const FAVOURED: &str = "1x1x8x2:1024@216,1024@211,1024@206,1024@236,1024@201,1024@231,1024@226,1024@221";
const HYBRID: &str = "1x1x14x1:978@65*2,1024@68*2,978@65*2,632@42*8";
const PHONE: &str = "1x1x8x1:250*4,620*3,1024";

fn run(machine: &str, workloads: &[&str], flags: &[&str]) -> Kernel {
    let scenario = Scenario {
        machine: machine.parse().unwrap(),
        flags: flags.join(" "),
        workloads: workloads.iter().map(|text| text.parse().unwrap()).collect(),
        ms: 500,
        warm_up_ms: 300,
        ..Scenario::default()
    };
    let outcome = scenario.run(false).unwrap();
    assert_eq!(outcome.violation, None, "{workloads:?} on {machine}");
    outcome.kernel
}

/// Of so many looks, a millisecond apart: on which CPU a hog runs, or any other task if not `hogs`.
fn seen(kernel: &mut Kernel, hogs: bool) -> Vec<usize> {
    let mut seen = vec![0; kernel.cpus.len()];
    for _ in 0..1000 {
        let at = kernel.now + 1_000_000;
        kernel.run_until(at);
        for (cpu, seen) in seen.iter_mut().enumerate() {
            if let Curr::Task(task) = kernel.cpus[cpu].curr {
                let task = &kernel.tasks[task];
                let is_hog = kernel.programs[task.program].name == HOG;
                *seen += usize::from(is_hog == hogs && !kernel.groups[kernel.programs[task.program].group].background);
            }
        }
    }
    assert_eq!(kernel.violation, None);
    seen
}

#[test]
fn a_hog_runs_on_the_best_core_and_light_tasks_beside_it() {
    for (machine, best) in [(FAVOURED, 6..8), (HYBRID, 2..4), (PHONE, 7..8)] {
        let mut kernel = run(machine, &["hogs:nr=1", "sleepers"], &[]);
        let hog: usize = seen(&mut kernel, true)[best.clone()].iter().sum();
        assert!(hog >= 950, "{machine}: on {best:?} for {hog} ms of a second");
    }
}

#[test]
fn two_hogs_have_the_two_favoured_cores() {
    let mut kernel = run(FAVOURED, &["hogs:nr=2"], &[]);
    let seen = seen(&mut kernel, true);
    let favoured: usize = [6, 7, 10, 11].map(|cpu| seen[cpu]).iter().sum();
    assert!(favoured >= 1900, "{seen:?}");
}

#[test]
fn as_many_hogs_as_cores_use_all() {
    for (machine, nr, width) in [(FAVOURED, 8, 2), (HYBRID, 14, 1), (PHONE, 8, 1)] {
        let mut kernel = run(machine, &[&format!("hogs:nr={nr}")], &[]);
        let seen = seen(&mut kernel, true);
        let cores = seen.chunks(width).map(|cpus| cpus.iter().sum::<usize>());
        assert!(cores.min().unwrap() > 900, "{machine}: {seen:?}");
    }
}

/// Cores a few percent apart are of one kind: nothing is a misfit there.
#[test]
fn a_few_percent_are_no_reason_to_move() {
    let misfits = |machine| run(machine, &["hogs:nr=4"], &[]).report(0).stats.misfit;
    assert_eq!(misfits("1x1x4x1:1024,980*3"), 0);
    assert!(misfits("1x1x4x1:1024,900*3") > 0);
}

/// Ten light tasks on the hybrid machine.
fn light(flags: &[&str]) -> Kernel {
    let mut kernel = Kernel::new(&HYBRID.parse().unwrap(), &flags.join(" "), 1).unwrap();
    let at = kernel.now + 10 * MSEC;
    let mut builder = Builder::new(&mut kernel, at, 0);
    let group = builder.group("light", false);
    let steps = vec![Step::Sleep(Dist::Exp(10 * MSEC)), Step::Run(Dist::Fixed(MSEC / 2)), Step::Jump(0)];
    let program = builder.program(group, "light", steps);
    for _ in 0..10 {
        let traits = builder.traits();
        builder.task(program, traits);
    }
    kernel.start_checks();
    kernel.run_until(at + 300 * MSEC);
    kernel
}

/// Light tasks in powersave: on few cores, of the weakest.
#[test]
fn powersave_packs_light_tasks_on_weak_cores() {
    let spread = |flags: &[&str]| {
        let seen = seen(&mut light(flags), false);
        let (strong, all): (usize, usize) = (seen[..6].iter().sum(), seen.iter().sum());
        // CPUs that have most of the work.
        let mut sorted = seen;
        sorted.sort_unstable_by(|a, b| b.cmp(a));
        let (mut cores, mut sum) = (0, 0);
        while sum * 10 < all * 9 {
            sum += sorted[cores];
            cores += 1;
        }
        println!("{flags:?}: {strong} of {all} ms on strong cores; nine tenths on {cores} cores");
        (strong as f64 / all as f64, cores)
    };
    let (balanced, powersave) = (spread(&[]), spread(&["--power", "powersave"]));
    assert!(powersave.0 < 0.1 && powersave.0 < balanced.0, "{powersave:?} {balanced:?}");
    assert!(powersave.1 < balanced.1, "{powersave:?} {balanced:?}");
}

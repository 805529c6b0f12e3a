// SPDX-License-Identifier: GPL-2.0-only
//! Frequencies that follow utilization, beside those that the kernel's own formula gives: a task that runs for a part of each
//! period, on a CPU whose governor is schedutil.

use magpie_sim::kernel::cpufreq::{MAX_FREQ, MIN_FREQ, RATE_LIMIT};
use magpie_sim::kernel::{Curr, Kernel};
use magpie_sim::mask::Mask;
use magpie_sim::program::{Dist, Step};
use magpie_sim::time::{MSEC, SEC, USEC};
use magpie_sim::workload::Builder;

const TICK: u64 = 4 * MSEC;
const PERIOD: u64 = 20 * MSEC;
/// When the frequency is where the load wants it.
const RISEN: u64 = 1500 * MSEC;
const HALF_LIFE: f64 = 32.0 * 1.024e6;

/// What a run took: energy as the simulator counts it, the frequency each millisecond, and how late work was done at most.
struct Run {
    energy: f64,
    freqs: Vec<u64>,
    late: u64,
}

/// The kernel: PELT on a clock that passes by the frequency, util_est, and schedutil's formula, in real numbers.
/// Work of `pct` % of each period at full speed.
fn kernel_formula(pct: u64, ms: u64) -> Run {
    let work = (PERIOD * pct / 100) as f64;
    let (mut util, mut est, mut behind, mut freq) = (0.0f64, 0.0f64, 0.0f64, MIN_FREQ as f64);
    let (mut left, mut set_at, mut run) = (0.0f64, None, Run { energy: 0.0, freqs: vec![], late: 0 });
    let step = 10 * USEC;
    for now in (0..ms * MSEC).step_by(step as usize) {
        let comes = now % PERIOD == 0;
        let was_idle = left <= 0.0;
        if comes {
            left += work;
        }
        let speed = freq / MAX_FREQ as f64;
        let starts = was_idle && left > 0.0;
        if left > 0.0 {
            util = 1024.0 + (util - 1024.0) * (-(step as f64) * speed / HALF_LIFE).exp2();
            behind += step as f64 * (1.0 - speed);
            if util >= 1023.0 {
                behind = 0.0;
            }
            left -= step as f64 * speed;
            run.energy += speed.powi(3) * step as f64 / SEC as f64;
        } else {
            util *= (-(step as f64) / HALF_LIFE).exp2();
        }
        let stops = !was_idle && left <= 0.0;
        if stops {
            util *= (-std::mem::take(&mut behind) / HALF_LIFE).exp2();
            est = if util >= est { util } else { est - (est - util) / 4.0 };
            run.late = run.late.max(if now > RISEN { now % PERIOD } else { 0 });
        }
        if (starts || stops || (left > 0.0 && now % TICK == 0)) && set_at.is_none_or(|at| now >= at + RATE_LIMIT) {
            let cpu_util = if left > 0.0 { util.max(est) } else { util };
            let wanted = (cpu_util * 1.25).clamp(MIN_FREQ as f64, MAX_FREQ as f64);
            if wanted != freq {
                (freq, set_at) = (wanted, Some(now));
            }
        }
        if now % MSEC == 0 {
            run.freqs.push(freq as u64);
        }
    }
    run
}

/// The same work under our scheduler, on each of the first `busy` CPUs.
fn simulate(machine: &str, busy: usize, pct: u64, ms: u64, flags: &[&str]) -> Run {
    let mut kernel = Kernel::new(&machine.parse().unwrap(), &flags.join(" "), 1).unwrap();
    let start = (kernel.now / PERIOD + 1) * PERIOD;
    let mut builder = Builder::new(&mut kernel, start, 0);
    let group = builder.group("periodic", false);
    let work = PERIOD * pct / 100;
    let steps = match pct {
        100 => vec![Step::Run(Dist::Fixed(MSEC)), Step::Jump(0)],
        // What is late is made up for.
        _ => {
            let period = Step::Timer(PERIOD);
            vec![Step::BeginDue, Step::Run(Dist::Fixed(work)), Step::End, period, Step::Jump(0)]
        }
    };
    let program = builder.program(group, "periodic", steps);
    for cpu in 0..busy {
        let mut traits = builder.traits();
        traits.allowed = Mask::only(cpu);
        builder.task(program, traits);
    }
    kernel.start_checks();
    // Idle for long: all targets are low.
    if flags.contains(&"on") {
        for cpu in 0..kernel.cpus.len() {
            kernel.cpus[cpu].freq.now = MIN_FREQ;
            kernel.set_speeds(cpu);
        }
    }
    let mut run = Run { energy: 0.0, freqs: vec![], late: 0 };
    for at in (start..start + ms * MSEC).step_by(MSEC as usize) {
        kernel.run_until(at);
        run.freqs.push(kernel.cpus[0].freq.now);
        if (at - start).is_multiple_of(32 * MSEC) {
            kernel.publish();
        }
        // What was late while the frequency rose does not count.
        if at == start + RISEN {
            kernel.end_warm_up();
        }
    }
    assert_eq!(kernel.violation, None);
    for cpu in 0..kernel.cpus.len() {
        kernel.charge_energy(cpu);
        run.energy += kernel.cpus[cpu].freq.energy;
    }
    run.late = kernel.groups[0].request.max();
    run
}

/// When the frequency first reached `freq`, ms.
fn reached(run: &Run, freq: u64) -> usize {
    run.freqs.iter().position(|&now| now >= freq).unwrap_or(usize::MAX)
}

/// Idle until it steps up.
#[test]
fn load_steps_are_followed_as_fast_as_by_the_kernel() {
    for pct in [10, 50, 100] {
        let (ours, kernel) = (simulate("1x1x2x1", 1, pct, 1000, &["--cpufreq", "on"]), kernel_formula(pct, 1000));
        let mean = |run: &Run| run.freqs[500..].iter().sum::<u64>() / 500;
        // To nine tenths of where it ends up.
        let goal = mean(&kernel) * 9 / 10;
        let (own, theirs) = (reached(&ours, goal), reached(&kernel, goal));
        println!("{pct} %: {goal} after {own} ms, kernel {theirs} ms; mean {}, kernel {}", mean(&ours), mean(&kernel));
        assert!(own <= theirs + 8, "{pct} %: {own} ms, kernel {theirs} ms");
        assert!(mean(&ours).abs_diff(mean(&kernel)) <= mean(&kernel) / 10, "{pct} %");
    }
}

/// Half of the CPUs work for half of the time.
#[test]
fn a_half_idle_machine_takes_as_much_energy_as_by_the_kernels_formula() {
    for pct in [10, 50] {
        let ours = simulate("1x1x8x1", 4, pct, 4000, &["--cpufreq", "on"]);
        let full = simulate("1x1x8x1", 4, pct, 4000, &["--cpufreq", "off"]);
        let kernel = kernel_formula(pct, 4000);
        let (own, theirs) = (ours.energy, 4.0 * kernel.energy);
        println!(
            "{pct} %: energy {own:.3}, kernel {theirs:.3}, off {:.3}; longest {} us, kernel {} us, off {} us",
            full.energy,
            ours.late / USEC,
            kernel.late / USEC,
            full.late / USEC
        );
        assert!((own / theirs - 1.0).abs() < 0.1, "{pct} %: {own:.3}, kernel {theirs:.3}");
        // All of it done before the next period.
        assert!(ours.late < PERIOD, "{pct} %: {} us", ours.late / USEC);
    }
}

/// Half of the headroom: less energy, and all of the work in time.
#[test]
fn powersave_takes_less_and_keeps_up() {
    let balanced = simulate("1x1x8x1", 4, 50, 4000, &["--cpufreq", "on"]);
    let powersave = simulate("1x1x8x1", 4, 50, 4000, &["--cpufreq", "on", "--power", "powersave"]);
    let (less, more) = (powersave.energy, balanced.energy);
    println!("powersave: energy {less:.3}, balanced {more:.3}; longest {} us", powersave.late / USEC);
    assert!(less < 0.9 * more, "{less:.3} {more:.3}");
    assert!(powersave.late < PERIOD, "{} us", powersave.late / USEC);
}

/// It does not get stuck below what a hog needs, and goes down when there is none.
#[test]
fn targets_go_down_at_idle() {
    let mut kernel = Kernel::new(&"1x1x2x1".parse().unwrap(), "--cpufreq on", 1).unwrap();
    let mut builder = Builder::new(&mut kernel, 20 * MSEC, 0);
    let group = builder.group("burst", false);
    let program = builder.program(group, "burst", vec![Step::Run(Dist::Fixed(400 * MSEC)), Step::Exit]);
    let traits = builder.traits();
    builder.task(program, traits);
    kernel.run_until(300 * MSEC);
    let busy = (0..2).find(|&cpu| kernel.cpus[cpu].curr != Curr::Idle).expect("it runs");
    assert!(kernel.cpus[busy].freq.rq.scx.cpuperf_target >= 1000);
    kernel.run_until(SEC);
    for _ in 0..10 {
        kernel.publish();
        let now = kernel.now;
        kernel.run_until(now + 32 * MSEC);
    }
    assert!((0..2).all(|cpu| kernel.cpus[cpu].freq.rq.scx.cpuperf_target < 40));
}

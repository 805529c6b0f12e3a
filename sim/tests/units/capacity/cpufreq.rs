// SPDX-License-Identifier: GPL-2.0-only
//! `capacity/cpufreq.bpf.h`: which targets the kernel is told, and when.

use crate::rig::Rig;

fn rig() -> Rig {
    Rig::new("1x1x2x1:1024,512", &["--cpufreq", "on"])
}

fn set(rig: &mut Rig, cpu: usize, util: u32, running: bool) {
    let now = rig.kernel.now;
    rig.cpu(cpu, |cctx| {
        (cctx.pelt.updated_at, cctx.pelt.util_avg, cctx.pelt.running) = (now, util, running.into());
    });
}

fn target(rig: &Rig, cpu: usize) -> u32 {
    rig.kernel.cpus[cpu].freq.rq.scx.cpuperf_target
}

/// As when the CPU enters or leaves idle, or at a tick.
fn update(rig: &mut Rig, util: u32, running: bool, tick: bool) -> u32 {
    set(rig, 0, util, running);
    rig.call(rig.u.update_cpuperf, (0, rig.cctx(0), tick));
    target(rig, 0)
}

#[test]
fn the_target_is_the_utilization() {
    let mut rig = rig();
    for util in [300, 1023, 0] {
        assert_eq!(update(&mut rig, util, true, true), util);
    }
}

#[test]
fn small_changes_are_told_at_ticks_only() {
    let mut rig = rig();
    update(&mut rig, 500, true, true);
    assert_eq!(update(&mut rig, 530, true, false), 500);
    assert_eq!(update(&mut rig, 470, true, false), 500);
    assert_eq!(update(&mut rig, 533, true, false), 533);
    let told = rig.kernel.cpus[0].freq.nr_set;
    update(&mut rig, 533, true, true);
    assert_eq!(rig.kernel.cpus[0].freq.nr_set, told + 1, "a tick tells it again: the governor may not have listened");
}

/// What ran before it idled is expected to come back, and forgotten by a quarter a time.
#[test]
fn a_cpu_that_was_busy_starts_where_it_was() {
    let mut rig = rig();
    assert_eq!(update(&mut rig, 800, false, false), 800);
    assert_eq!(update(&mut rig, 100, true, false), 800);
    assert_eq!(update(&mut rig, 100, false, false), 100);
    assert_eq!(update(&mut rig, 100, true, false), 625);
    assert_eq!(update(&mut rig, 900, true, false), 900);
}

/// The governor adds what real-time and deadline tasks use.
#[test]
fn others_are_left_out() {
    let mut rig = rig();
    rig.kernel.cpus[0].freq.rq.avg_rt.util_avg = 200;
    rig.kernel.cpus[0].freq.rq.avg_dl.util_avg = 50;
    assert_eq!(update(&mut rig, 600, true, true), 350);
    assert_eq!(update(&mut rig, 200, true, true), 0);
}

#[test]
fn idle_cpus_decay() {
    let mut rig = rig();
    update(&mut rig, 1000, false, false);
    let start = rig.kernel.now;
    for (periods, left) in [(0, 1000), (32, 500), (64, 250), (320, 0)] {
        rig.kernel.now = start + periods * 1024 * 1024;
        rig.call(rig.u.decay_cpuperf, (0, rig.kernel.now));
        assert!(target(&rig, 0).abs_diff(left) <= 1, "{} after {periods} periods", target(&rig, 0));
    }
    // Not one that runs.
    update(&mut rig, 1000, true, true);
    set(&mut rig, 0, 10, true);
    rig.call(rig.u.decay_cpuperf, (0, rig.kernel.now));
    assert_eq!(target(&rig, 0), 1000);
}

#[test]
fn off_is_full_speed() {
    let mut rig = Rig::new("1x1x2x1", &["--cpufreq", "off"]);
    assert_eq!(update(&mut rig, 300, true, true), 1024);
    assert_eq!(rig.kernel.cpus[0].freq.nr_set, 0);
}

// SPDX-License-Identifier: GPL-2.0-only
//! `capacity/losses.bpf.h`: what CPUs have lost to others than our tasks, and what is left for a task to fit in.

use proptest::prelude::*;

use crate::rig::Rig;

/// CPUs 0 to 3 are strong, 4 to 7 weak.
const MACHINE: &str = "1x1x8x1:1024*4,430*4";
const MSEC: u64 = 1_000_000;

/// The kernel's averages of a CPU: real-time tasks, deadline tasks, heat, interrupts; brought up to date just now.
fn others(rig: &mut Rig, cpu: usize, [rt, dl, heat, irq]: [u64; 4]) {
    let now = rig.kernel.now;
    let rq = &mut rig.kernel.cpus[cpu].freq.rq;
    (rq.avg_rt.util_avg, rq.avg_dl.util_avg, rq.avg_hw.load_avg, rq.avg_irq.util_avg) = (rt, dl, heat, irq);
    rq.avg_rt.last_update_time = now;
}

fn lost(rig: &mut Rig, cpu: usize) -> u32 {
    rig.call(rig.u.note_loss, (cpu as i32, rig.kernel.now));
    // SAFETY: the program does not run.
    unsafe { (*rig.kernel.native.shared().losses[cpu].get()).lost }
}

proptest! {
    /// As scale_rt_capacity(): of what tasks and heat leave, interrupts take their part.
    #[test]
    fn what_is_left_is_what_the_kernel_says(rt in 0..600u64, dl in 0..600u64, heat in 0..600u64, irq in 0..=1024u64) {
        let mut rig = Rig::new(MACHINE, &[]);
        others(&mut rig, 0, [rt, dl, heat, irq]);
        let left = if irq >= 1024 { 0 } else { 1024u64.saturating_sub(rt + dl + heat) * (1024 - irq) / 1024 };
        prop_assert!((1024 - lost(&mut rig, 0) as u64).abs_diff(left) <= 1);
    }
}

/// Nothing runs there that would bring the kernel's averages up to date.
#[test]
fn an_idle_cpu_gets_back_what_it_lost() {
    let mut rig = Rig::new(MACHINE, &[]);
    others(&mut rig, 0, [512, 0, 0, 0]);
    assert_eq!(lost(&mut rig, 0), 511);
    rig.kernel.now += 33 * MSEC;
    assert!((250..=262).contains(&lost(&mut rig, 0)), "a half-life");
    others(&mut rig, 0, [512, 0, 0, 0]);
    assert_eq!(lost(&mut rig, 0), 511, "the same again is not old");
}

#[test]
fn tasks_fit_in_what_is_left() {
    let mut rig = Rig::new(MACHINE, &[]);
    others(&mut rig, 0, [700, 0, 0, 0]);
    others(&mut rig, 4, [300, 0, 0, 0]);
    rig.kernel.publish();
    assert!(!rig.call(rig.u.fits_cpu, (300, 0)), "324 left: weaker than the others");
    assert!(rig.call(rig.u.fits_cpu, (200, 0)));
    assert!(!rig.call(rig.u.fits_cpu, (200, 4)) && rig.call(rig.u.fits_cpu, (200, 5)));
    assert!(rig.call(rig.u.fits_all, (300,)), "which tasks are big does not depend on it");
}

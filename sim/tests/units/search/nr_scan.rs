// SPDX-License-Identifier: GPL-2.0-only
//! `search/nr_scan.bpf.h`: the loader's arithmetic (src/nr_scan.rs), and a CPU that does it while the loader is late.

use magpie_sim::native::ALL_SLOTS;
use proptest::prelude::*;
use scx_magpie::bpf_intf::*;
use scx_magpie::nr_scan::ScanLimit;

use crate::rig::Rig;

const MSEC: u64 = 1_000_000;

proptest! {
    #[test]
    fn nr_scan_is_the_loaders(
        imbalance_pct in 101..=1000u32,
        boost: bool,
        // Small LLCs have a rule of their own.
        nr_cpus in prop_oneof![1..=16u32, 1..=1024u32],
        (used, reach) in (0..=1024u32, 1..=1024u32),
    ) {
        let flags = ["--imbalance-pct", &imbalance_pct.to_string(), "--small-llc-boost", if boost { "on" } else { "off" }];
        let mut rig = Rig::new("1x1x1x1", &flags);
        let limit = ScanLimit { unlimited: false, imbalance_pct, small_llc_boost: boost };
        let (sum_util, capacity) = (used * nr_cpus, reach * nr_cpus);
        let here = rig.call(rig.u.nr_scan_of, (sum_util.into(), capacity.into(), nr_cpus));
        prop_assert_eq!(here, limit.nr_scan(sum_util, capacity, nr_cpus));
    }

    /// The sum is the loader's, but for the part of a period that has just begun.
    #[test]
    fn utilization_is_the_loaders(cpus in prop::collection::vec((0..=1024u32, 0..200 * MSEC, any::<bool>()), 20)) {
        let mut rig = Rig::new("1x1x20x1:1024*10,430*10", &[]);
        let now = 1000 * MSEC;
        for (cpu, &(util, ago, running)) in cpus.iter().enumerate() {
            let capacity = rig.kernel.machine.places[cpu].capacity as u32;
            let util = util.min(capacity);
            rig.cpu(cpu, |cctx| {
                cctx.pelt = pelt {
                    updated_at: now - ago,
                    util_sum: u64::from(util) * u64::from(pelt_consts_PELT_LOAD_AVG_MAX - 512),
                    period_contrib: 512,
                    util_avg: util,
                    behind: 0,
                    since: now - ago,
                    ran: 0,
                    idled: 0,
                    running: running.into(),
                }
            });
        }
        rig.kernel.now = now;
        let loader = rig.kernel.sum_util()[0];
        let here = rig.call(rig.u.sum_util, (0, now));
        prop_assert!(here.abs_diff(loader.into()) <= 20 * 24, "{} here, {} there", here, loader);
    }
}

/// A tick of CPU 1 at that time: nr_scan then, and how often the loader was found late.
fn tick(rig: &mut Rig, at: u64) -> (u32, u64) {
    rig.kernel.now = at;
    rig.cpu(1, |cctx| cctx.mono_offset = 0);
    rig.call(rig.u.estimate_nr_scan, (1, rig.cctx(1).cast_const()));
    let published = rig.call(rig.u.llc_published, (0,));
    // SAFETY: the program does not run.
    let nr_scan = unsafe { (*published).nr_scan };
    (nr_scan, rig.stat(magpie_stat_STAT_STALE))
}

#[test]
fn a_tick_estimates_nr_scan_while_the_loader_is_late() {
    let mut rig = Rig::new("1x1x8x1", &["--util-interval", "10"]);
    for cpu in 0..8 {
        // Busy for ever.
        rig.cpu(cpu, |cctx| {
            cctx.pelt.running = 1;
            cctx.pelt.updated_at = 0;
        });
    }
    let at = 5000 * MSEC;
    let published = rig.call(rig.u.llc_published, (0,));
    // SAFETY: the program does not run.
    let publish = |at: u64| unsafe { ((*published).at, (*published).nr_scan) = (at, 8) };
    publish(at);
    assert_eq!(tick(&mut rig, at + 29 * MSEC), (8, 0));
    assert_eq!(tick(&mut rig, at + 31 * MSEC), (0, 1));
    // Once an interval, and once is counted.
    publish(at);
    assert_eq!(tick(&mut rig, at + 40 * MSEC), (8, 1));
    assert_eq!(tick(&mut rig, at + 42 * MSEC), (0, 1));
    // The loader is back, and is late again.
    publish(at + 50 * MSEC);
    assert_eq!(tick(&mut rig, at + 60 * MSEC), (8, 1));
    assert_eq!(tick(&mut rig, at + 81 * MSEC), (0, 2));
}

/// Published nr_scan -> slots that a search may go over.
#[test]
fn the_budget_is_nr_scan_unless_that_is_the_whole_llc() {
    for (flags, published, budget) in
        [(&[][..], 0, 0), (&[], 3, 3), (&[], 8, ALL_SLOTS), (&["--no-scan-limit"], 0, ALL_SLOTS)]
    {
        let mut rig = Rig::new("1x1x8x1", flags);
        let llc = rig.call(rig.u.llc_published, (0,));
        // SAFETY: the program does not run.
        unsafe { (*llc).nr_scan = published };
        assert_eq!(rig.call(rig.u.scan_budget, (0,)), budget, "{flags:?} {published}");
    }
}

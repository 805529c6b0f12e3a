// SPDX-License-Identifier: GPL-2.0-only
//! `search/scan.bpf.h`: --latency-hist counts searches by time.

use scx_magpie::bpf_intf::magpie_limits_LATENCY_BUCKETS as BUCKETS;

use crate::rig::Rig;

/// Searches so far, by bucket.
fn counted(rig: &Rig) -> Vec<u64> {
    let hists = rig.kernel.native.shared().latency_hists;
    // SAFETY: the program does not run.
    (0..BUCKETS as usize).map(|i| hists.iter().map(|hist| unsafe { (*hist.get()).buckets[i] }).sum()).collect()
}

#[test]
fn buckets_are_powers_of_two() {
    for (ns, bucket) in [(0, 0), (1, 0), (2, 1), (3, 1), (4, 2), (1023, 9), (1024, 10), (1 << 40, BUCKETS - 1)] {
        let mut rig = Rig::new("1x1x1x1", &[]);
        rig.kernel.now = 1 << 41;
        let started = rig.kernel.now - ns;
        rig.call(rig.u.count_latency, (started,));
        assert_eq!(counted(&rig).iter().position(|&nr| nr == 1), Some(bucket as usize), "{ns} ns");
    }
}

#[test]
fn searches_are_counted_when_asked_for() {
    for (flags, count) in [(&[][..], 0), (&["--latency-hist"], 1)] {
        let mut rig = Rig::new("1x1x4x1", flags);
        rig.kernel.now = 1000;
        let task = rig.task();
        rig.call(rig.u.find_idle, (rig.raw(task), rig.tctx(task).cast_const(), 0, 0));
        assert_eq!(counted(&rig).iter().sum::<u64>(), count, "{flags:?}");
    }
}

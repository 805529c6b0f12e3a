// SPDX-License-Identifier: GPL-2.0-only
//! `core/latency.bpf.h`: --latency-hist counts searches in buckets.

use scx_magpie::bpf_intf::magpie_limits_LATENCY_BUCKETS as BUCKETS;

use crate::rig::Rig;

#[test]
fn buckets_are_powers_of_two() {
    let mut rig = Rig::new("1x1x1x1", &[]);
    for (ns, bucket) in [(0, 0), (1, 0), (2, 1), (3, 1), (4, 2), (1023, 9), (1024, 10), (u64::MAX, BUCKETS - 1)] {
        assert_eq!(rig.call(rig.u.log2_bucket, (ns,)), bucket, "{ns} ns");
    }
}

#[test]
fn searches_are_counted_when_asked_for() {
    for (flags, count) in [(&[][..], 0), (&["--latency-hist"], 1)] {
        let mut rig = Rig::new("1x1x4x1", flags);
        let task = rig.task();
        rig.call(rig.u.timed_find_idle, (rig.raw(task), rig.tctx(task), 0, 0));
        let hists = rig.kernel.native.shared().latency_hists;
        // SAFETY: the program does not run.
        let counted: u64 = hists.iter().flat_map(|hist| unsafe { (*hist.get()).buckets }).sum();
        assert_eq!(counted, count, "{flags:?}");
    }
}

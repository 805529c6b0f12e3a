// SPDX-License-Identifier: GPL-2.0-only
//! `capacity/wake_cases.bpf.h`: Morten Rasmussen's table of wakeups.

use scx_magpie::bpf_intf::*;

use crate::rig::Rig;

/// CPU 0 is big, CPU 1 little, and so on.
const MACHINE: &str = "1x1x8x1:1024,430";

#[test]
fn each_wakeup_counts_in_one_cell() {
    for (util, prev, waking, target, cpu, case, big, end) in [
        (100, 1, 3, 1, 1, 0, false, magpie_wake_end_WAKE_FAST),
        (100, 1, 2, 1, 4, 1, true, magpie_wake_end_WAKE_SCAN),
        (100, 0, 3, 0, -1, 2, true, magpie_wake_end_WAKE_FALLBACK),
        (900, 0, 2, 2, 0, 7, true, magpie_wake_end_WAKE_FAST),
        (900, 1, 3, 1, 5, 4, false, magpie_wake_end_WAKE_SCAN),
        (900, 1, 2, 1, 6, 5, true, magpie_wake_end_WAKE_FAST),
        (900, 0, 3, 3, -1, 6, false, magpie_wake_end_WAKE_FALLBACK),
    ] {
        let mut rig = Rig::new(MACHINE, &[]);
        let task = rig.task();
        rig.remembered(task, |tctx| (tctx.task_util, tctx.recent) = (util, 6));
        rig.kernel.cpu = waking;
        rig.call(rig.u.count_wake_case, (rig.tctx(task).cast_const(), prev, target, cpu));
        // SAFETY: the program does not run.
        let cases = unsafe { &*rig.kernel.native.shared().wake_cases.expect("capacities differ")[waking].get() };
        let (there, other) = if big { (&cases.big, &cases.little) } else { (&cases.little, &cases.big) };
        assert_eq!(there[case][end as usize], 1, "{util} {prev} {waking} {target} {cpu}");
        assert_eq!(there.iter().flatten().sum::<u64>(), 1);
        assert_eq!(other.iter().flatten().sum::<u64>(), 0);
    }
}

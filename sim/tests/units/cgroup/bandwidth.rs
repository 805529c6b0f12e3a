// SPDX-License-Identifier: GPL-2.0-only
//! `cgroup/bandwidth.bpf.h`: a group uses its quota and no more, whatever of it is in the budgets of CPUs.

use magpie_sim::cgroup::{CgroupId, Spec};
use magpie_sim::native::{BW_SLICE_MAX, BW_SLICE_MIN, cpu_budget};
use proptest::prelude::*;
use scx_magpie::bpf_intf::group;

use crate::rig::Rig;

const USEC: u64 = 1000;
const MSEC: u64 = 1_000_000;
const SLICE: u64 = 3 * MSEC;

/// CPUs 0 to 3, and a chain of groups with these limits: quota and burst, us, by periods of 100 ms.
fn rig(limits: &[Option<(u64, u64)>]) -> Rig {
    let mut rig = Rig::new("1x1x4x1", &[]);
    rig.kernel.now = 1_000_000_000_000;
    for (parent, limit) in limits.iter().enumerate() {
        let id = rig.kernel.make_cgroup(&Spec { parent, ..Spec::default() });
        if let &Some((quota, burst)) = limit {
            rig.kernel.set_cgroup_max(id, Some(quota), 100_000, burst);
        }
    }
    rig
}

fn group(rig: &Rig, id: CgroupId) -> &group {
    rig.kernel.native.group(rig.kernel.program_id(id))
}

fn take(rig: &mut Rig, cpu: i32, id: u32) -> u64 {
    let now = rig.kernel.now;
    rig.call(rig.u.take_slice, (cpu, id, now))
}

fn charge(rig: &mut Rig, cpu: i32, id: u32, ns: u64) {
    rig.call(rig.u.charge_groups, (cpu, id, ns));
}

fn cpu_budget(rig: &mut Rig, cpu: i32, id: u32) -> &'static cpu_budget {
    // SAFETY: one of the program's variables.
    unsafe { &*rig.call(rig.u.cpu_budget, (cpu, id)) }
}

#[test]
fn without_a_limit_the_slice_is_infinite() {
    let mut rig = rig(&[None, None]);
    assert_eq!(take(&mut rig, 0, 2), u64::MAX);
}

#[test]
fn the_tightest_level_of_the_tree_throttles() {
    let mut rig = rig(&[Some((2_000, 0)), Some((400_000, 0))]);
    // A CPU gets an eighth of the quota (twice as many parts as CPUs), within bounds.
    assert_eq!(take(&mut rig, 0, 2), u64::from(BW_SLICE_MIN));
    assert_eq!(cpu_budget(&mut rig, 0, 2).left, u64::from(BW_SLICE_MAX));
    charge(&mut rig, 0, 2, 2 * MSEC);
    assert_eq!(take(&mut rig, 0, 2), 0);
    assert_eq!((group(&rig, 1).throttled_at, group(&rig, 2).throttled_at), (rig.kernel.now, 0));
    let now = rig.kernel.now;
    assert_eq!(rig.call(rig.u.next_refill, (2, now)), group(&rig, 1).period_start + 100 * MSEC);
    rig.kernel.now = now + 100 * MSEC;
    assert!(take(&mut rig, 0, 2) > 0);
    let root = group(&rig, 1);
    assert_eq!((root.nr_periods, root.nr_throttled, root.throttled_ns), (1, 1, 100 * MSEC));
}

/// What it owes is more than a period brings; it ran in none of the ten after that.
#[test]
fn periods_count_as_the_kernel_counts_them() {
    let mut rig = rig(&[Some((2_000, 0))]);
    take(&mut rig, 0, 1);
    charge(&mut rig, 0, 1, 7 * MSEC);
    assert_eq!(take(&mut rig, 0, 1), 0);
    let start = rig.kernel.now;
    for period in 1..=3 {
        rig.kernel.now = start + period * 100 * MSEC;
        assert_eq!(take(&mut rig, 0, 1) > 0, period == 3, "{period}");
    }
    assert_eq!((group(&rig, 1).nr_periods, group(&rig, 1).nr_throttled), (3, 3));
    assert_eq!(group(&rig, 1).throttled_ns, 300 * MSEC);
    charge(&mut rig, 0, 1, MSEC);
    rig.kernel.now += 1000 * MSEC;
    take(&mut rig, 0, 1);
    assert_eq!((group(&rig, 1).nr_periods, group(&rig, 1).nr_throttled), (4, 3));
}

#[test]
fn an_unused_quota_is_saved_up_to_the_burst() {
    for (burst, periods, saved) in [(0, 5, 20), (30, 1, 40), (30, 5, 50)] {
        let mut rig = rig(&[Some((20_000, burst * 1000))]);
        rig.kernel.now += periods * 100 * MSEC;
        let (native, now) = (&rig.kernel.native, rig.kernel.now);
        let raw = std::ptr::from_ref(native.group(1)).cast_mut();
        rig.call(rig.u.bw_refill, (raw, now));
        assert_eq!(group(&rig, 1).budget, saved * MSEC as i64, "burst {burst} ms, {periods} periods");
    }
}

#[test]
fn a_new_limit_counts_at_once() {
    let mut rig = rig(&[Some((1_000, 0))]);
    assert_eq!(take(&mut rig, 0, 1), u64::from(BW_SLICE_MIN));
    charge(&mut rig, 0, 1, 50 * MSEC);
    assert_eq!(take(&mut rig, 0, 1), 0);
    rig.kernel.set_cgroup_max(1, None, 100_000, 0);
    assert_eq!(take(&mut rig, 0, 1), u64::MAX);
    rig.kernel.set_cgroup_max(1, Some(50_000), 100_000, 0);
    assert_eq!(group(&rig, 1).budget, 50 * MSEC as i64);
}

/// A debt of the CPU would outlast the period in which the pool has enough for it.
#[test]
fn an_overrun_is_paid_from_what_the_period_has_left() {
    let mut rig = rig(&[Some((40_000, 0))]);
    let slice = take(&mut rig, 0, 1);
    charge(&mut rig, 0, 1, slice + 4 * MSEC);
    assert_eq!(cpu_budget(&mut rig, 0, 1).left, 0);
    assert_eq!(group(&rig, 1).budget, 36 * MSEC as i64 - slice as i64);
    rig.kernel.now += 100 * MSEC;
    let next = take(&mut rig, 0, 1);
    assert_eq!((next, group(&rig, 1).budget), (5 * MSEC, 35 * MSEC as i64));
}

proptest! {
    /// CPUs run tasks of the group for the slices that they get and up to a tick longer. In the end they have used no more
    /// than the quota, but for what they overran last.
    #[test]
    fn a_group_uses_its_quota_and_no_more(steps in prop::collection::vec((0..4i32, 0..4_000u64, 0..3_000u64), 100..400), quota in 1_000..300_000u64) {
        let mut rig = rig(&[Some((quota, 0))]);
        let (start, mut used) = (rig.kernel.now, 0);
        for (cpu, overrun, pause) in steps {
            let until = rig.kernel.now + pause * USEC;
            rig.kernel.run_until(until);
            let slice = take(&mut rig, cpu, 1);
            let slice = slice.min(SLICE);
            if slice > 0 {
                charge(&mut rig, cpu, 1, slice + overrun * USEC);
                used += slice + overrun * USEC;
            }
        }
        let periods = (rig.kernel.now - start) / (100 * MSEC) + 1;
        prop_assert!(used <= periods * quota * USEC + 4 * (SLICE + 4 * MSEC), "{} in {} periods", used, periods);
    }
}

#[test]
fn a_reused_id_starts_without_the_budgets_of_the_former_group() {
    let mut rig = Rig::new("1x1x4x1", &["--max-cgroups", "1"]);
    rig.kernel.now = 1_000_000_000_000;
    let cgroup = rig.kernel.make_cgroup(&Spec::default());
    rig.kernel.set_cgroup_max(cgroup, Some(100_000), 100_000, 0);
    let now = rig.kernel.now;
    assert_ne!(rig.call(rig.u.take_slice, (2, 1, now)), 0);
    assert_eq!(cpu_budget(&mut rig, 2, 1).group, 1);
    rig.kernel.remove_cgroup(cgroup);
    assert_eq!(cpu_budget(&mut rig, 2, 1).group, 0);
}

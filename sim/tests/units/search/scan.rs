// SPDX-License-Identifier: GPL-2.0-only
//! `search/scan.bpf.h`: the order of the search, its bounds, and that it claims no CPU which the task may not use.

use std::collections::BTreeSet;

use magpie_sim::dsq::TaskId;
use magpie_sim::native::MAX_BEYOND;
use proptest::prelude::*;
use scx_magpie::bpf_intf::*;

use crate::rig::Rig;

const MSEC: u64 = 1_000_000;

/// Starts a search for the task, for which the functions below are called one by one.
fn begin(rig: &mut Rig, task: TaskId, wakes: bool) {
    rig.call(rig.u.begin_search, (rig.raw(task).cast_const(), rig.tctx(task).cast_const(), wakes));
}

/// The whole search of a wakeup.
fn find(rig: &mut Rig, task: TaskId, prev: usize, target: usize) -> i32 {
    rig.call(rig.u.find_idle, (rig.raw(task), rig.tctx(task).cast_const(), prev as i32, target as i32))
}

fn set_budget(rig: &mut Rig, llc: u32, nr_scan: u32) {
    let published = rig.call(rig.u.llc_published, (llc,));
    // SAFETY: the program does not run.
    unsafe { (*published).nr_scan = nr_scan };
}

/// CPUs of an LLC in the order of a search from `from`, which may be another LLC's. CPU ids are in the order of slots.
fn order(rig: &Rig, llc: usize, from: usize) -> Vec<usize> {
    let places = &rig.kernel.machine.places;
    let own: Vec<_> = (0..places.len()).filter(|&cpu| places[cpu].llc == llc).collect();
    let layout = &rig.kernel.layout;
    let at = match layout.cpus[&from].llc == llc {
        true => own.iter().position(|&cpu| cpu == from).unwrap(),
        // As from the same place of a line.
        false => layout.cpus[&from].slot % 16,
    };
    let (before, after) = own.split_at((at + 1).min(own.len()));
    [after, before].concat()
}

/// The CPU that a search of the LLC finds: the first of a core that is idle as a whole, or else any.
fn in_llc(rig: &Rig, llc: usize, from: usize, idle: &BTreeSet<usize>, allowed: &BTreeSet<usize>) -> Option<usize> {
    let cpus = order(rig, llc, from);
    let siblings = |cpu| rig.kernel.machine.siblings(cpu);
    let whole = |cpu: usize| siblings(cpu).start == cpu && siblings(cpu).all(|cpu| idle.contains(&cpu));
    let usable = |cpu: &usize| idle.contains(cpu) && allowed.contains(cpu);
    let mut whole_cores = cpus.iter().copied().filter(|&cpu| whole(cpu));
    whole_cores.find(usable).or_else(|| cpus.iter().copied().find(usable))
}

fn cpus(max: usize, each: f64) -> impl Strategy<Value = BTreeSet<usize>> {
    prop::collection::vec(prop::bool::weighted(each), max)
        .prop_map(|set| set.into_iter().enumerate().filter(|(_, set)| *set).map(|(cpu, _)| cpu).collect())
}

/// Few CPUs, many, all.
fn some_cpus(max: usize) -> impl Strategy<Value = BTreeSet<usize>> {
    prop::sample::select(&[0.02, 0.1, 0.5, 1.0]).prop_flat_map(move |each| cpus(max, each))
}

const MACHINES: [&str; 5] = ["1x1x40x1", "1x1x20x2", "2x2x5x4", "2x4x3x2", "1x5x8x1"];

proptest! {
    /// All idle CPUs are found, in the order of the file's drawing, and only the one that is returned is claimed.
    #[test]
    fn the_order_of_the_search(
        machine in prop::sample::select(&MACHINES),
        idle in some_cpus(40),
        allowed in some_cpus(40),
        (target, prev, recent) in (0..40usize, 0..40usize, -1..40i32),
    ) {
        let mut rig = Rig::new(machine, &[]);
        let nr = rig.nr_cpus();
        let below = |cpu: &&usize| **cpu < nr;
        let idle: BTreeSet<_> = idle.iter().filter(below).copied().collect();
        let mut allowed: BTreeSet<_> = allowed.iter().filter(below).copied().collect();
        let (target, prev, recent) = (target % nr, prev % nr, if recent < 0 { -1 } else { recent % nr as i32 });
        allowed.insert(target);
        rig.only_idle(&idle.iter().copied().collect::<Vec<_>>());
        let task = rig.task_on(allowed.iter().copied());
        rig.remembered(task, |tctx| tctx.recent = recent);

        let own = rig.kernel.machine.places[target].llc;
        let fast = |rig: &Rig, cpu: usize| {
            rig.kernel.machine.places[cpu].llc == own && idle.contains(&cpu) && allowed.contains(&cpu)
        };
        let recent = usize::try_from(recent).ok().filter(|&cpu| fast(&rig, cpu));
        let others = rig.kernel.layout.llcs[own].others.clone();
        let beyond = || others.iter().find_map(|&llc| in_llc(&rig, llc, target, &idle, &allowed));
        let (expected, stat) = match () {
            () if fast(&rig, target) => (Some(target), magpie_stat_STAT_TARGET),
            () if fast(&rig, prev) => (Some(prev), magpie_stat_STAT_PREV),
            () if recent.is_some() => (recent, magpie_stat_STAT_RECENT),
            () => match (in_llc(&rig, own, target, &idle, &allowed), beyond()) {
                (Some(cpu), _) => (Some(cpu), magpie_stat_STAT_SCAN),
                (None, Some(cpu)) => (Some(cpu), magpie_stat_STAT_BEYOND),
                (None, None) => (None, magpie_stat_STAT_FAILED),
            },
        };
        prop_assert_eq!(usize::try_from(find(&mut rig, task, prev, target)).ok(), expected);
        prop_assert_eq!(rig.stat(stat), 1);
        let mut left = idle.clone();
        expected.map(|cpu| left.remove(&cpu));
        prop_assert_eq!(rig.idle(), left);
    }

    /// One search after the other hands out each idle CPU once, and then none.
    #[test]
    fn every_idle_cpu_is_found(
        machine in prop::sample::select(&MACHINES), idle in some_cpus(40), from in 0..40usize, allowed in some_cpus(40)
    ) {
        let mut rig = Rig::new(machine, &[]);
        let nr = rig.nr_cpus();
        let idle: Vec<_> = idle.into_iter().filter(|&cpu| cpu < nr).collect();
        rig.only_idle(&idle);
        let allowed: BTreeSet<_> = allowed.into_iter().filter(|&cpu| cpu < nr).chain([0]).collect();
        let task = rig.task_on(allowed.iter().copied());
        let mut found = BTreeSet::new();
        while let Ok(cpu) = usize::try_from(find(&mut rig, task, from % nr, from % nr)) {
            prop_assert!(found.insert(cpu), "{cpu} twice");
        }
        prop_assert_eq!(found, idle.into_iter().filter(|cpu| allowed.contains(cpu)).collect::<BTreeSet<_>>());
    }

    /// The search goes over nr_scan CPUs that the task may use, from the one after the target on, wrapping: as many slots as
    /// have so many of them if they are spread evenly.
    #[test]
    fn no_further_than_the_budget(
        target in 0..40usize, nr_scan in 0..50usize, idle in some_cpus(40), allowed in some_cpus(40)
    ) {
        let mut rig = Rig::new("1x1x40x1", &[]);
        let allowed: BTreeSet<_> = allowed.into_iter().chain([target]).collect();
        let task = rig.task_on(allowed.iter().copied());
        rig.only_idle(&idle.iter().copied().filter(|&cpu| cpu != target).collect::<Vec<_>>());
        set_budget(&mut rig, 0, nr_scan as u32);
        let slots = if nr_scan < 40 { (nr_scan * 40 / allowed.len()).min(40) } else { 40 };
        let window: Vec<_> = (1..=slots).map(|i| (target + i) % 40).collect();
        let hit = window.iter().position(|cpu| idle.contains(cpu) && allowed.contains(cpu) && *cpu != target);
        prop_assert_eq!(usize::try_from(find(&mut rig, task, target, target)).ok(), hit.map(|hit| window[hit]));
        let none = idle.iter().all(|&cpu| cpu == target);
        let scanned = if none { 0 } else { 1 } * (hit.map_or(slots, |hit| hit + 1) * allowed.len()).div_ceil(40);
        prop_assert_eq!(rig.stat(magpie_stat_STAT_SCANNED), scanned as u64);
        prop_assert_eq!(rig.stat(magpie_stat_STAT_FAILED), u64::from(hit.is_none()));
    }
}

/// With a budget of 0 nothing of the LLC is looked at, idle cores included; --no-scan-limit goes by no budget.
#[test]
fn no_budget_no_search() {
    for (machine, flags, found, scanned) in [
        ("1x1x8x1", &[][..], -1, 0),
        ("1x1x4x2", &[], -1, 0),
        ("1x1x8x1", &["--no-scan-limit"], 4, 2),
        ("1x1x4x2", &["--no-scan-limit"], 4, 2),
    ] {
        let mut rig = Rig::new(machine, flags);
        let task = rig.task();
        rig.only_idle(&[4, 5]);
        set_budget(&mut rig, 0, 0);
        assert_eq!(find(&mut rig, task, 2, 2), found, "{machine} {flags:?}");
        assert_eq!(rig.stat(magpie_stat_STAT_SCANNED), scanned, "{machine} {flags:?}");
    }
}

#[test]
fn each_llc_has_its_own_budget() {
    for (idle, found, scanned) in [(5, 5, 2), (7, -1, 2), (10, 10, 3), (1, -1, 0)] {
        let mut rig = Rig::new("1x3x4x1", &[]);
        let task = rig.task();
        rig.only_idle(&[idle]);
        (0..3).zip([0, 2, 4]).for_each(|(llc, nr_scan)| set_budget(&mut rig, llc, nr_scan));
        assert_eq!(find(&mut rig, task, 3, 3), found, "{idle}");
        assert_eq!(rig.stat(magpie_stat_STAT_SCANNED), scanned, "{idle}");
    }
}

/// A task that waits is offered to any idle CPU, and the search for that one is not counted.
#[test]
fn only_wakeups_are_bounded_and_counted() {
    for (wakes, found) in [(true, -1), (false, 5)] {
        let mut rig = Rig::new("1x1x8x1", &[]);
        let task = rig.task();
        rig.only_idle(&[5]);
        set_budget(&mut rig, 0, 2);
        begin(&mut rig, task, wakes);
        assert_eq!(rig.call(rig.u.scan_llc, (rig.raw(task), 0, 0)), found);
        assert_eq!(rig.stat(magpie_stat_STAT_SCANNED), 0);
    }
}

/// Of more LLCs, the nearest MAX_BEYOND.
#[test]
fn not_beyond_its_bound() {
    let mut rig = Rig::new("1x12x2x1", &[]);
    let task = rig.task();
    let others = rig.kernel.layout.llcs[3].others.clone();
    let slot = rig.kernel.layout.cpus[&6].slot as u32;
    for (i, llc) in others.into_iter().enumerate() {
        let cpu = 2 * llc + 1;
        rig.only_idle(&[cpu]);
        begin(&mut rig, task, true);
        let found = rig.call(rig.u.scan_beyond, (rig.raw(task), 3, slot, 0, 11));
        let expected = if i < MAX_BEYOND as usize { cpu as i32 } else { -1 };
        assert_eq!(found, expected, "LLC {i} of the others");
    }
}

/// When no core is idle as a whole; and the next search does not look for one.
#[test]
fn half_a_core_is_better_than_none() {
    let mut rig = Rig::new("1x1x4x2", &[]);
    let task = rig.task();
    rig.only_idle(&[3, 5]);
    begin(&mut rig, task, true);
    for expected in [5, 3, -1] {
        assert_eq!(rig.call(rig.u.scan_llc, (rig.raw(task), 0, 4)), expected);
        let llc = rig.call(rig.u.llc_ctx, (0,));
        // SAFETY: the program does not run.
        assert_eq!(unsafe { (*llc).has_idle_core }, 0);
    }
}

/// Successive searches that find nothing else start where the last one's CPU is, and so come around.
#[test]
fn successive_searches_cover_the_llc() {
    let mut rig = Rig::new("1x1x40x1", &[]);
    let task = rig.task();
    set_budget(&mut rig, 0, 1);
    let mut at = 7;
    for _ in 0..40 {
        rig.only_idle(&[(at + 1) % 40]);
        at = find(&mut rig, task, at, at) as usize;
    }
    assert_eq!(at, 7);
}

/// A wakeup away from the preferred node: the other LLCs of the node, then the preferred node, then the nearest others.
#[test]
fn the_preferred_node_comes_before_nearer_nodes() {
    for (preferred, idle, held, found) in [
        (2, &[2, 4, 8][..], false, 2),
        (2, &[4, 8, 12], false, 8),
        (2, &[4, 10, 12], false, 10),
        (2, &[4, 12], false, 4),
        (2, &[4, 8, 12], true, 4),
        (0, &[4, 8, 12], false, 4),
        (NO_NODE, &[4, 8, 12], false, 4),
    ] {
        let mut rig = Rig::new("4x2x2x1", &[]);
        let task = rig.task();
        rig.only_idle(idle);
        let later = rig.kernel.now + MSEC;
        rig.remembered(task, |tctx| {
            (tctx.preferred_node, tctx.preferred_retry_at) = (preferred, if held { later } else { 0 });
        });
        assert_eq!(find(&mut rig, task, 0, 0), found, "preferred {preferred}, idle {idle:?}, held back: {held}");
        let returned = !held && preferred == 2 && (8..12).contains(&found);
        assert_eq!(rig.stat(magpie_stat_STAT_PREFERRED_WAKE), u64::from(returned));
    }
}

/// An LLC of two strong CPUs and two weak ones (0, 1; 2, 3), and another (4, 5; 6, 7).
const ASYM: &str = "1x2x4x1:1024*2,430*2";

fn sized(rig: &mut Rig, util: u32) -> TaskId {
    let task = rig.task();
    rig.remembered(task, |tctx| tctx.task_util = util);
    task
}

#[test]
fn big_tasks_look_for_strong_cpus_wherever_they_are() {
    use magpie_stat_STAT_BEYOND as BEYOND;
    use magpie_stat_STAT_PREV as PREV;
    use magpie_stat_STAT_RECENT as RECENT;
    use magpie_stat_STAT_SCAN as SCAN;
    use magpie_stat_STAT_TARGET as TARGET;
    for (prev, target, recent, idle, found, stat) in [
        (0, 0, -1, &[0, 1, 2][..], 0, TARGET),
        (1, 0, -1, &[1, 2], 1, PREV),
        (2, 3, 1, &[1, 2, 3], 1, RECENT),
        // Its candidates are idle, and too weak.
        (2, 3, -1, &[0, 2, 3], 0, SCAN),
        (2, 3, 2, &[2, 3, 5], 5, BEYOND),
        (2, 2, -1, &[4, 6, 7], 4, BEYOND),
        (2, 2, -1, &[], -1, magpie_stat_STAT_FAILED),
    ] {
        let mut rig = Rig::new(ASYM, &[]);
        let task = sized(&mut rig, 600);
        rig.remembered(task, |tctx| tctx.recent = recent);
        rig.only_idle(idle);
        assert_eq!(find(&mut rig, task, prev, target), found, "{prev} {target} {recent} {idle:?}");
        assert_eq!(rig.stat(stat), 1, "{prev} {target} {recent} {idle:?}");
        assert_eq!(rig.idle().len(), idle.len() - usize::from(found >= 0));
    }
}

/// However busy the LLC is said to be.
#[test]
fn big_tasks_are_not_bounded() {
    for (util, found) in [(600, 1), (100, -1)] {
        let mut rig = Rig::new(ASYM, &["--small-llc-boost", "off"]);
        let task = sized(&mut rig, util);
        rig.only_idle(&[1]);
        (0..2).for_each(|llc| set_budget(&mut rig, llc, 0));
        assert_eq!(find(&mut rig, task, 3, 3), found, "{util}");
    }
}

/// Without a strong CPU a big task takes the weak one with the largest spare capacity, of any LLC; small tasks take the first.
#[test]
fn weak_cpus_are_the_last_resort() {
    // Spare: 920, 120, 150, 50; 1024, 620, 250, 250.
    let used = [104, 500, 100, 200, 0, 0, 0, 0];
    for (util, idle, found) in [
        (600, &[1, 2, 3][..], 2),
        (600, &[1, 3], 1),
        (600, &[3], 3),
        (600, &[0, 2], 0),
        (600, &[3, 7], 7),
        (600, &[2, 3, 5], 5),
        (100, &[1, 2], 1),
    ] {
        let mut rig = Rig::new("1x2x4x1:1024,620,250,250", &[]);
        let task = sized(&mut rig, util);
        let now = rig.kernel.now;
        for (cpu, util) in used.into_iter().enumerate() {
            rig.cpu(cpu, |cctx| (cctx.pelt.updated_at, cctx.pelt.util_avg, cctx.pelt.running) = (now, util, 0));
        }
        rig.only_idle(idle);
        assert_eq!(find(&mut rig, task, 0, 0), found, "{util} {idle:?}");
        assert_eq!(rig.idle().len(), idle.len() - 1);
    }
}

/// What the task has left on a CPU itself is not in its way there.
#[test]
fn spare_capacity_is_without_the_task() {
    let mut rig = Rig::new("1x1x3x1:1024,620,250", &[]);
    let task = sized(&mut rig, 600);
    let now = rig.kernel.now;
    rig.cpu(1, |cctx| (cctx.pelt.updated_at, cctx.pelt.util_avg, cctx.pelt.running) = (now, 500, 0));
    for (vtime_cpu, found) in [(0, 2), (1, 1)] {
        rig.remembered(task, |tctx| (tctx.vtime_cpu, tctx.util.util_avg) = (vtime_cpu, 400));
        rig.only_idle(&[1, 2]);
        assert_eq!(find(&mut rig, task, 2, 2), found);
    }
}

#[test]
fn big_tasks_prefer_whole_idle_cores() {
    let mut rig = Rig::new("1x1x3x2:1024,1024,430", &[]);
    let task = sized(&mut rig, 600);
    for (idle, found) in [(&[1, 2, 3, 4, 5][..], 2), (&[1, 4, 5], 1), (&[0, 3], 0)] {
        rig.only_idle(idle);
        assert_eq!(find(&mut rig, task, 5, 5), found, "{idle:?}");
    }
}

#[test]
fn big_tasks_stay_on_cpus_that_they_may_use() {
    let mut rig = Rig::new(ASYM, &[]);
    let task = rig.task_on([1, 2, 3]);
    rig.remembered(task, |tctx| tctx.task_util = 600);
    for (idle, found) in [(&[0, 1, 2][..], 1), (&[0, 2, 4], 2), (&[0, 4], -1)] {
        rig.only_idle(idle);
        assert_eq!(find(&mut rig, task, 3, 3), found, "{idle:?}");
    }
}

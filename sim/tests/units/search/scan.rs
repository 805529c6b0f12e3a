// SPDX-License-Identifier: GPL-2.0-only
//! `search/scan.bpf.h`: the order of the search, that it finds what there is, and nothing that the task may not use.

use std::collections::BTreeSet;

use magpie_sim::native::{MAX_BEYOND, NO_BUDGET};
use proptest::prelude::*;
use scx_magpie::bpf_intf::*;

use crate::rig::Rig;

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

/// Who is to be found in an LLC: the first CPU of a core that is idle as a whole, or else any.
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

/// Few CPUs idle, many, all; few allowed, many, all.
fn some_cpus(max: usize) -> impl Strategy<Value = BTreeSet<usize>> {
    prop::sample::select(&[0.02, 0.1, 0.5, 1.0]).prop_flat_map(move |each| cpus(max, each))
}

/// No budget, and nobody who counts.
fn no_budget() -> *mut u32 {
    Box::leak(Box::new(NO_BUDGET))
}

const MACHINES: [&str; 5] = ["1x1x40x1", "1x1x20x2", "2x2x5x4", "2x4x3x2", "1x5x8x1"];

proptest! {
    /// All idle CPUs are found, in the order of the head's diagram, and just that one is claimed.
    #[test]
    fn as_the_diagram_says(
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
        let found = rig.call(rig.u.find_idle, (rig.raw(task), rig.tctx(task), prev as i32, target as i32));
        prop_assert_eq!(usize::try_from(found).ok(), expected);
        prop_assert_eq!(rig.stat(stat), 1);
        let mut left = idle.clone();
        expected.map(|cpu| left.remove(&cpu));
        prop_assert_eq!(rig.idle(), left);
    }

    /// One after another, a search hands out each idle CPU once, and then none.
    #[test]
    fn everything_idle_is_found(
        machine in prop::sample::select(&MACHINES), idle in some_cpus(40), from in 0..40usize, allowed in some_cpus(40)
    ) {
        let mut rig = Rig::new(machine, &[]);
        let nr = rig.nr_cpus();
        let idle: Vec<_> = idle.into_iter().filter(|&cpu| cpu < nr).collect();
        rig.only_idle(&idle);
        let allowed: BTreeSet<_> = allowed.into_iter().filter(|&cpu| cpu < nr).chain([0]).collect();
        let task = rig.task_on(allowed.iter().copied());
        let mut found = BTreeSet::new();
        while let Ok(cpu) = usize::try_from(rig.call(rig.u.find_idle_for_queued, (rig.raw(task), (from % nr) as i32))) {
            prop_assert!(found.insert(cpu), "{cpu} twice");
        }
        prop_assert_eq!(found, idle.into_iter().filter(|cpu| allowed.contains(cpu)).collect::<BTreeSet<_>>());
    }
}

/// Of more LLCs, the nearest MAX_BEYOND.
#[test]
fn not_beyond_its_bound() {
    let mut rig = Rig::new("1x12x2x1", &[]);
    let task = rig.task();
    let others = rig.kernel.layout.llcs[3].others.clone();
    for (i, llc) in others.into_iter().enumerate() {
        let cpu = 2 * llc + 1;
        rig.only_idle(&[cpu]);
        let found =
            rig.call(rig.u.scan_beyond, (rig.raw(task), 3, rig.kernel.layout.cpus[&6].slot as u32, 11, no_budget()));
        let expected = if i < MAX_BEYOND as usize { cpu as i32 } else { -1 };
        assert_eq!(found, expected, "LLC {i} of the others");
    }
}

/// When no core is idle as a whole.
#[test]
fn half_a_core_is_better_than_none() {
    let mut rig = Rig::new("1x1x4x2", &[]);
    let task = rig.task();
    rig.only_idle(&[3, 5]);
    assert_eq!(rig.call(rig.u.scan_llc, (rig.raw(task), 0, 4, no_budget())), 5);
    assert_eq!(rig.call(rig.u.scan_llc, (rig.raw(task), 0, 4, no_budget())), 3);
    assert_eq!(rig.call(rig.u.scan_llc, (rig.raw(task), 0, 4, no_budget())), -1);
}

fn set_budget(rig: &mut Rig, llc: u32, nr_scan: u32) {
    let published = rig.call(rig.u.llc_published, (llc,));
    // SAFETY: the program does not run.
    unsafe { (*published).nr_scan = nr_scan };
}

proptest! {
    /// Of the target's LLC the nr_scan CPUs from the one after the target on, wrapping, and all of them are counted.
    #[test]
    fn no_further_than_the_budget(target in 0..40usize, nr_scan in 0..50u32, idle in some_cpus(40)) {
        let mut rig = Rig::new("1x1x40x1", &["--small-llc-boost", "off"]);
        let task = rig.task();
        rig.only_idle(&idle.iter().copied().filter(|&cpu| cpu != target).collect::<Vec<_>>());
        set_budget(&mut rig, 0, nr_scan);
        let window = (0..40.min(nr_scan as usize)).map(|i| (target + 1 + i) % 40);
        let hit = window.clone().position(|cpu| idle.contains(&cpu) && cpu != target);
        let target_slot = target as i32;
        let found = rig.call(rig.u.find_idle, (rig.raw(task), rig.tctx(task), target_slot, target_slot));
        prop_assert_eq!(usize::try_from(found).ok(), hit.and_then(|hit| window.clone().nth(hit)));
        let scanned = hit.map_or(window.len(), |hit| hit + 1) as u64;
        prop_assert_eq!(rig.stat(magpie_stat_STAT_SCANNED), scanned);
        prop_assert_eq!(rig.stat(magpie_stat_STAT_FAILED), u64::from(hit.is_none()));
    }
}

/// With its budget at 0 nothing of the LLC is read; --no-scan-limit goes by no budget.
#[test]
fn no_budget_no_search() {
    for (flags, expected) in [(&[][..], -1), (&["--no-scan-limit"], 5)] {
        let mut rig = Rig::new("1x1x8x1", flags);
        let task = rig.task();
        rig.only_idle(&[5]);
        set_budget(&mut rig, 0, 0);
        assert_eq!(rig.call(rig.u.find_idle, (rig.raw(task), rig.tctx(task), 2, 2)), expected, "{flags:?}");
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
        at = rig.call(rig.u.find_idle, (rig.raw(task), rig.tctx(task), at as i32, at as i32)) as usize;
    }
    assert_eq!(at, 7);
}

/// A search for whole cores that finds none says so to those after it.
#[test]
fn the_hint_goes_when_it_is_wrong() {
    let mut rig = Rig::new("1x1x4x2", &[]);
    let task = rig.task();
    rig.only_idle(&[3]);
    assert_eq!(rig.call(rig.u.scan_llc, (rig.raw(task), 0, 0, no_budget())), 3);
    let llc = rig.call(rig.u.llc_ctx, (0,));
    // SAFETY: the program does not run.
    assert_eq!(unsafe { (*llc).has_idle_core }, 0);
}

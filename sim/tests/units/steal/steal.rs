// SPDX-License-Identifier: GPL-2.0-only
//! `steal/steal.bpf.h`: nearest first, and no more than --steal-tries victims.

use std::collections::BTreeMap;

use proptest::prelude::*;
use scx_magpie::bpf_intf::*;

use crate::rig::Rig;

/// The default of --steal-tries.
const MAX_TRIES: usize = 8;

/// The victims in order of nearness to `cpu`: its LLC from the next CPU on, then the others as the layout has them.
fn order(rig: &Rig, cpu: usize) -> Vec<usize> {
    let places = &rig.kernel.machine.places;
    let layout = &rig.kernel.layout;
    let own = places[cpu].llc;
    let mut order = Vec::new();
    for llc in [own].into_iter().chain(layout.llcs[own].others.iter().copied()) {
        let cpus: Vec<_> = (0..places.len()).filter(|&cpu| places[cpu].llc == llc).collect();
        let at = match llc == own {
            true => cpus.iter().position(|&other| other == cpu).unwrap(),
            false => layout.cpus[&cpu].slot % 16,
        };
        let (before, after) = cpus.split_at((at + 1).min(cpus.len()));
        order.extend([after, before].concat().into_iter().filter(|&other| other != cpu));
    }
    order
}

#[derive(Clone, Copy, Debug)]
enum Victim {
    /// Its bit is set, and its queue is empty.
    Stale,
    /// One task waits, which may not use the thief's CPU.
    Restricted,
    /// A second one does, which may.
    Movable,
}

/// Puts the victim's tasks into its queue. Returns the one to be stolen, if there is one.
fn set_up(rig: &mut Rig, cpu: usize, thief: usize, victim: Victim) -> Option<usize> {
    let elsewhere: Vec<_> = (0..rig.nr_cpus()).filter(|&other| other != thief).collect();
    match victim {
        Victim::Stale => {
            rig.call(rig.u.mark_overloaded, (cpu as i32,));
            None
        }
        Victim::Restricted => {
            let task = rig.task_on(elsewhere);
            rig.queue(task, cpu, 1);
            None
        }
        Victim::Movable => {
            let (restricted, task) = (rig.task_on(elsewhere), rig.task());
            rig.queue(restricted, cpu, 1);
            rig.queue(task, cpu, 2);
            Some(task)
        }
    }
}

proptest! {
    #[test]
    fn the_nearest_within_the_bound(
        machine in prop::sample::select(&["1x1x40x1", "2x2x5x2", "2x5x4x1", "1x8x5x1"]),
        victims in prop::collection::btree_map(
            0..40usize, prop::sample::select(&[Victim::Stale, Victim::Restricted, Victim::Movable]), 0..20
        ),
        thief in 0..40usize,
        movable in prop::bool::weighted(0.7),
    ) {
        let mut rig = Rig::new(machine, &[]);
        rig.only_idle(&[]);
        let thief = thief % rig.nr_cpus();
        rig.kernel.cpu = thief;
        let mut stealable = BTreeMap::new();
        for (cpu, victim) in victims {
            let cpu = cpu % rig.nr_cpus();
            // Some cases have many victims with nothing to take.
            let victim = if movable || !matches!(victim, Victim::Movable) { victim } else { Victim::Restricted };
            stealable.entry(cpu).or_insert(None);
            if let Some(task) = set_up(&mut rig, cpu, thief, victim) {
                let first = stealable.get_mut(&cpu).unwrap();
                *first = first.or(Some(task));
            }
        }
        let tried: Vec<_> = order(&rig, thief).into_iter().filter(|cpu| stealable.contains_key(cpu)).collect();
        let hit = tried.iter().take(MAX_TRIES).position(|cpu| stealable[cpu].is_some());
        let misses = hit.unwrap_or(tried.len().min(MAX_TRIES));

        prop_assert_eq!(rig.call(rig.u.steal, (thief as i32,)), hit.is_some());
        prop_assert_eq!(rig.local(thief), hit.and_then(|hit| stealable[&tried[hit]]).into_iter().collect::<Vec<_>>());
        prop_assert_eq!(rig.stat(magpie_stat_STAT_STEAL_MISS), misses as u64);
        let far = hit.map(|hit| {
            let (victim, thief) = (rig.kernel.machine.places[tried[hit]], rig.kernel.machine.places[thief]);
            match () {
                () if victim.llc == thief.llc => magpie_stat_STAT_STEAL_LLC,
                () if victim.node == thief.node => magpie_stat_STAT_STEAL_NODE,
                () => magpie_stat_STAT_STEAL_FAR,
            }
        });
        for stat in [magpie_stat_STAT_STEAL_LLC, magpie_stat_STAT_STEAL_NODE, magpie_stat_STAT_STEAL_FAR] {
            prop_assert_eq!(rig.stat(stat), u64::from(far == Some(stat)));
        }
    }
}

/// The CPU of another node has it cleared, too.
#[test]
fn a_bit_without_tasks_is_cleared() {
    let mut rig = Rig::new("2x2x4x1", &[]);
    rig.only_idle(&[]);
    for (cpu, victim) in [(1, Victim::Stale), (2, Victim::Restricted), (9, Victim::Stale)] {
        set_up(&mut rig, cpu, 0, victim);
    }
    for misses in [3, 4] {
        assert!(!rig.call(rig.u.steal, (0,)));
        assert_eq!(rig.stat(magpie_stat_STAT_STEAL_MISS), misses);
        assert_eq!(rig.overloaded(), [2].into());
    }
}

/// Over LLCs, too.
#[test]
fn the_last_try_counts_and_one_more_is_not_made() {
    for machine in ["1x1x16x1", "2x2x4x1"] {
        for in_vain in [MAX_TRIES - 1, MAX_TRIES] {
            let mut rig = Rig::new(machine, &[]);
            rig.only_idle(&[]);
            let order = order(&rig, 0);
            for &cpu in &order[..in_vain] {
                set_up(&mut rig, cpu, 0, Victim::Restricted);
            }
            set_up(&mut rig, order[in_vain], 0, Victim::Movable);
            assert_eq!(rig.call(rig.u.steal, (0,)), in_vain < MAX_TRIES, "{machine} after {in_vain} misses");
            assert_eq!(rig.stat(magpie_stat_STAT_STEAL_MISS), in_vain as u64);
        }
    }
}

/// It is about to go idle, so its own bit is stale.
#[test]
fn a_cpu_does_not_try_itself() {
    let mut rig = Rig::new("1x1x4x1", &[]);
    set_up(&mut rig, 0, 0, Victim::Stale);
    assert!(!rig.call(rig.u.steal, (0,)));
    assert_eq!(rig.stat(magpie_stat_STAT_STEAL_MISS), 0);
}

/// Else the last CPUs of a large LLC would have no thief while the first ones have nothing to take.
#[test]
fn a_search_that_ran_out_of_tries_is_continued() {
    let mut rig = Rig::new("1x1x40x1", &[]);
    rig.only_idle(&[]);
    for cpu in 1..30 {
        set_up(&mut rig, cpu, 0, Victim::Restricted);
    }
    let stolen = set_up(&mut rig, 30, 0, Victim::Movable);
    let tried_to: Vec<_> = (0..4)
        .map(|_| {
            rig.call(rig.u.steal, (0,));
            rig.cpu(0, |cctx| cctx.steal_slot)
        })
        .collect();
    assert_eq!(tried_to, [8, 16, 24, magpie_limits_NO_SLOT]);
    assert_eq!(rig.local(0), Vec::from_iter(stolen));
}

/// As far as --steal allows.
#[test]
fn tasks_of_other_nodes_are_taken_last() {
    for (flags, reach) in [(&[][..], 3), (&["--steal", "node"], 2), (&["--steal", "llc"], 1), (&["--steal", "off"], 0)]
    {
        let mut rig = Rig::new("2x2x2x1", flags);
        rig.only_idle(&[]);
        let tasks: Vec<_> = [1, 2, 4].into_iter().filter_map(|cpu| set_up(&mut rig, cpu, 0, Victim::Movable)).collect();
        for &task in &tasks[..reach] {
            assert!(rig.call(rig.u.steal, (0,)), "{flags:?}");
            assert_eq!(rig.local(0), [task]);
            rig.kernel.take_out(task);
        }
        assert!(!rig.call(rig.u.steal, (0,)), "{flags:?}");
    }
}

/// What was queued in its LLC after it looked. Tasks of other LLCs are offered by the ticks of their CPUs.
#[test]
fn a_cpu_that_goes_idle_looks_once_more_in_its_llc() {
    for (waits_on, looks) in [(None, false), (Some(1), true), (Some(2), false)] {
        let mut rig = Rig::new("1x2x2x1", &[]);
        rig.only_idle(&[]);
        if let Some(cpu) = waits_on {
            let task = rig.task();
            rig.queue(task, cpu, 0);
        }
        assert_eq!(rig.call(rig.u.work_in_reach, (0,)), looks, "on {waits_on:?}");
    }
}

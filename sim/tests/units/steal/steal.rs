// SPDX-License-Identifier: GPL-2.0-only
//! `steal/steal.bpf.h`: nearest first, and no more than --steal-tries victims.

use std::collections::BTreeMap;

use magpie_sim::trace::Op;
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

/// Somebody claims a CPU that looks for work in vain, and the kick is forgotten: it looks once more.
#[test]
fn a_claim_that_comes_while_stealing_is_not_lost() {
    for claimed in [false, true] {
        let mut rig = Rig::new("1x1x3x1", &[]);
        rig.kernel.quirks.claimed_while_stealing = claimed;
        rig.only_idle(&[0]);
        set_up(&mut rig, 1, 0, Victim::Restricted);
        let ops = rig.kernel.ops;
        rig.kernel.call(Op::Dispatch, None, 0, |_| unsafe { ops.dispatch.unwrap()(0, std::ptr::null_mut()) });
        assert_eq!(rig.kernel.kicks, if claimed { vec![(0, 0)] } else { vec![] });
    }
}

/// Whose last task goes to sleep steals at once: by way of the idle loop it would take two switches.
#[test]
fn a_cpu_steals_before_it_goes_idle() {
    let mut rig = Rig::new("1x1x2x1", &[]);
    rig.only_idle(&[]);
    let sleeper = rig.task();
    rig.run(sleeper, 0);
    let stolen = set_up(&mut rig, 1, 0, Victim::Movable);
    let ops = rig.kernel.ops;
    rig.kernel.call(Op::Dispatch, None, 0, |_| unsafe { ops.dispatch.unwrap()(0, std::ptr::null_mut()) });
    assert_eq!(rig.local(0), Vec::from_iter(stolen));
}

#[derive(Clone, Copy, Debug)]
enum Victim {
    /// Its bit is set, but nobody waits.
    Stale,
    /// Who waits may not run on the thief's CPU.
    Restricted,
    /// One that may not, and one that may.
    Movable,
}

/// Puts the victim's tasks in line. The one to be stolen, if there is one.
fn set_up(rig: &mut Rig, cpu: usize, thief: usize, victim: Victim) -> Option<usize> {
    let elsewhere: Vec<_> = (0..rig.nr_cpus()).filter(|&other| other != thief).collect();
    match victim {
        Victim::Stale => {
            let task = rig.task();
            rig.call(rig.u.mark_waiting, (rig.raw(task), cpu as i32, rig.cctx(cpu)));
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
            // Some cases with many that cannot be robbed.
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

/// Nobody is led there twice.
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

/// The last try counts, one more is not made; over LLCs, too.
#[test]
fn exactly_max_steal_tries() {
    for machine in ["1x1x16x1", "2x2x4x1"] {
        for in_vain in [MAX_TRIES - 1, MAX_TRIES] {
            let mut rig = Rig::new(machine, &[]);
            rig.only_idle(&[]);
            let order = order(&rig, 0);
            for &cpu in &order[..in_vain] {
                set_up(&mut rig, cpu, 0, Victim::Restricted);
            }
            set_up(&mut rig, order[in_vain], 0, Victim::Movable);
            assert_eq!(rig.call(rig.u.steal, (0,)), in_vain < MAX_TRIES, "{machine} after {in_vain} in vain");
            assert_eq!(rig.stat(magpie_stat_STAT_STEAL_MISS), in_vain as u64);
        }
    }
}

/// It is about to go idle: its own bit is stale, and no try.
#[test]
fn not_from_itself() {
    let mut rig = Rig::new("1x1x4x1", &[]);
    set_up(&mut rig, 0, 0, Victim::Stale);
    assert!(!rig.call(rig.u.steal, (0,)));
    assert_eq!(rig.stat(magpie_stat_STAT_STEAL_MISS), 0);
}

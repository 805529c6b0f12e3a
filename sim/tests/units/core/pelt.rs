// SPDX-License-Identifier: GPL-2.0-only
//! `core/pelt.bpf.h`, against floating point, and against the loader's half of the way (src/pelt.rs).

use proptest::prelude::*;
use scx_magpie::bpf_intf::{magpie_stat_STAT_BUSY_NS, pelt, pelt_consts_PELT_LOAD_AVG_MAX as LOAD_AVG_MAX};
use scx_magpie::pelt::{Pelt, decay_factors};

use crate::rig::Rig;

const UNIT: u64 = 1024;
const PERIOD: u64 = 1024 * UNIT;

/// What util_avg should be: each unit of 1024 ns counts by the age of its period.
#[derive(Default)]
struct Model {
    /// Units used at full scale, in periods before the running one and in that.
    past: f64,
    current: f64,
    into: f64,
}

impl Model {
    fn accumulate(&mut self, mut units: f64, scale: f64) {
        let y = 0.5f64.powf(1.0 / 32.0);
        while self.into + units >= 1024.0 {
            let rest = 1024.0 - self.into;
            self.past = (self.past + self.current + rest * scale) * y;
            (self.current, self.into) = (0.0, 0.0);
            units -= rest;
        }
        self.current += units * scale;
        self.into += units;
    }

    /// 0..1
    fn util(&self) -> f64 {
        (self.past + self.current) / (f64::from(LOAD_AVG_MAX) - 1024.0 + self.into)
    }
}

/// A CPU's state is what its last update left; time goes on from there.
fn state() -> pelt {
    pelt {
        updated_at: 0,
        util_sum: 0,
        period_contrib: 0,
        util_avg: 0,
        behind: 0,
        since: 0,
        ran: 0,
        running: 0,
        idled: 0,
    }
}

/// Used at this scale all of the time.
fn accumulate(rig: &mut Rig, pelt: &mut pelt, now: u64, scale: u32, freq: u32) {
    let ran = now - pelt.updated_at;
    rig.call(rig.u.pelt_accumulate, (&raw mut *pelt, now, ran, scale, freq));
}

/// The CPU is `running` from `now` on.
fn update(rig: &mut Rig, cpu: usize, now: u64, running: bool) {
    rig.kernel.now = now;
    rig.call(rig.u.pelt_update, (cpu as i32, rig.cctx(cpu), now, running));
}

fn stretch() -> impl Strategy<Value = u64> {
    prop_oneof![0..3 * UNIT, 0..3 * PERIOD, 0..100 * PERIOD]
}

proptest! {
    #[test]
    fn as_in_floating_point(stretches in prop::collection::vec((stretch(), 0..=1024u32), 1..60)) {
        let mut rig = Rig::new("1x1x1x1", &[]);
        let (mut pelt, mut model, mut now) = (state(), Model::default(), 0);
        for (ns, scale) in stretches {
            // What is less than a unit counts next time.
            let units = (now + ns - pelt.updated_at) / UNIT;
            now += ns;
            accumulate(&mut rig, &mut pelt, now, scale, 1024);
            model.accumulate(units as f64, f64::from(scale) / 1024.0);
            prop_assert!(now - pelt.updated_at < UNIT);
            prop_assert!(u64::from(pelt.period_contrib) < 1024);
            let util = model.util() * 1024.0;
            prop_assert!((f64::from(pelt.util_avg) - util).abs() <= 4.0, "{} for {util}", pelt.util_avg);
        }
    }

    #[test]
    fn the_loader_gets_where_the_program_gets(
        stretches in prop::collection::vec((stretch(), 0..=1024u32), 1..10), rest in stretch(), scale in 0..=1024u32
    ) {
        let mut rig = Rig::new("1x1x1x1", &[]);
        let (mut cpu, mut now) = (state(), 0);
        for (ns, scale) in stretches {
            now += ns;
            accumulate(&mut rig, &mut cpu, now, scale, 1024);
        }
        let pelt { updated_at, util_sum, period_contrib, .. } = cpu;
        let reader = Pelt { updated_at, util_sum, period_contrib, scale };
        now += rest;
        accumulate(&mut rig, &mut cpu, now, scale, 1024);
        prop_assert_eq!(reader.util_at(now, &decay_factors()), cpu.util_avg.min(1024));
    }

    #[test]
    fn never_above_the_scale(stretches in prop::collection::vec(stretch(), 1..60), scale in 0..=1024u32) {
        let mut rig = Rig::new("1x1x1x1", &[]);
        let (mut pelt, mut now) = (state(), 0);
        for ns in stretches {
            now += ns;
            accumulate(&mut rig, &mut pelt, now, scale, 1024);
            prop_assert!(pelt.util_avg <= scale);
        }
    }
}

#[test]
fn a_clock_that_goes_back_changes_nothing() {
    let mut rig = Rig::new("1x1x1x1", &[]);
    let mut pelt = pelt { updated_at: 100 * PERIOD, ..state() };
    rig.call(rig.u.pelt_accumulate, (&raw mut pelt, 90 * PERIOD, 0, 1024, 1024));
    assert_eq!((pelt.updated_at, pelt.util_sum, pelt.util_avg), (100 * PERIOD, 0, 0));
}

#[test]
fn a_long_idle_time_leaves_nothing() {
    let mut rig = Rig::new("1x1x1x1", &[]);
    let full = u64::from(LOAD_AVG_MAX) * 1024;
    for (periods, left) in [(0, full), (32, full / 2), (64, full / 4), (32 * 64, 0), (1 << 40, 0)] {
        let decayed = rig.call(rig.u.decay_load, (full, periods));
        assert!(decayed.abs_diff(left) <= 1, "{periods}: {decayed}, not {left}");
    }
}

/// The time until an update counts as what the CPU was, not as what it becomes, and by its capacity.
#[test]
fn a_cpu_is_what_it_was_until_now() {
    let mut rig = Rig::new("1x1x2x1:1024,512", &[]);
    let start = rig.kernel.now;
    for cpu in 0..2 {
        update(&mut rig, cpu as usize, start, true);
        update(&mut rig, cpu as usize, start + 400 * PERIOD, false);
        let (util, capacity) = (rig.cpu(cpu as usize, |c| c.pelt.util_avg), 1024 >> cpu);
        assert!((capacity - 2..=capacity).contains(&util), "{util} of {capacity}");
        update(&mut rig, cpu as usize, start + 432 * PERIOD, false);
        let util = rig.cpu(cpu as usize, |c| c.pelt.util_avg);
        assert!(util.abs_diff(capacity / 2) <= 2, "{util} of {capacity} after 32 idle periods");
    }
}

/// The sum is brought up to date once a period, however often the CPU enters and leaves idle, as if it had run evenly.
#[test]
fn a_period_or_more_counts_by_how_much_of_it_the_cpu_ran() {
    let (mut rig, start) = (Rig::new("1x1x1x1", &[]), 1 << 30);
    rig.cpu(0, |c| c.pelt = pelt { updated_at: start, since: start, ..state() });
    for part in 1..=8 {
        update(&mut rig, 0, start + part * PERIOD / 8 - UNIT, part % 2 == 1);
        assert_eq!(rig.cpu(0, |c| c.pelt.updated_at), start);
    }
    assert_eq!(rig.cpu(0, |c| c.pelt.ran), PERIOD / 2);
    update(&mut rig, 0, start + 2 * PERIOD, true);
    let mut model = Model::default();
    model.accumulate(2048.0, 0.25);
    let (seen, util) = (rig.cpu(0, |c| c.pelt.util_avg), model.util() * 1024.0);
    assert!((f64::from(seen) - util).abs() <= 1.0, "{seen} for {util}");
    assert_eq!(rig.cpu(0, |c| (c.pelt.updated_at, c.pelt.ran)), (start + 2 * PERIOD, 0));
    assert_eq!(rig.cpu(0, |c| c.stats[magpie_stat_STAT_BUSY_NS as usize]), PERIOD / 2);
}

/// What is less than a unit at a tick is no idle time, which would make up for the low frequency.
#[test]
fn a_slow_cpu_that_never_idles_is_behind_from_tick_to_tick() {
    let (mut rig, start) = (Rig::new("1x1x1x1", &[]), 1 << 30);
    rig.kernel.cpus[0].freq.now = 256;
    rig.cpu(0, |c| c.pelt = pelt { updated_at: start, since: start, running: 1, ..state() });
    for tick in 1..=100 {
        update(&mut rig, 0, start + tick * 4_000_000, true);
    }
    let mut model = Model::default();
    model.accumulate(100.0 * 4_000_000.0 / 1024.0 / 4.0, 1.0);
    let (seen, util) = (rig.cpu(0, |c| c.pelt.util_avg), model.util() * 1024.0);
    assert!((f64::from(seen) - util).abs() <= 8.0, "{seen} for {util}");
}

/// The same work in each period, at less than the highest frequency: the same utilization, as long as there is idle time.
#[test]
fn utilization_does_not_depend_on_the_frequency() {
    let work = 5 * PERIOD;
    for (freq, period) in [(1024, 20), (512, 20), (300, 20), (512, 12)] {
        let (mut rig, mut pelt, mut now) = (Rig::new("1x1x1x1", &[]), state(), 0);
        for _ in 0..40 {
            now += work * 1024 / u64::from(freq);
            accumulate(&mut rig, &mut pelt, now, 1024, freq);
            now += period * PERIOD - work * 1024 / u64::from(freq);
            rig.call(rig.u.pelt_accumulate, (&raw mut pelt, now, 0, 1024, freq));
        }
        let mut model = Model::default();
        for _ in 0..40 {
            model.accumulate((work / UNIT) as f64, 1.0);
            model.accumulate(((period * PERIOD - work) / UNIT) as f64, 0.0);
        }
        let util = model.util() * 1024.0;
        assert!((f64::from(pelt.util_avg) - util).abs() <= 5.0, "{} for {util} at {freq}", pelt.util_avg);
    }
}

/// A CPU that never idles is full at any frequency, and what it is behind is not held against it later.
#[test]
fn a_slow_cpu_that_never_idles_is_full() {
    let (mut rig, mut pelt) = (Rig::new("1x1x1x1", &[]), state());
    for tick in 1..=1000 {
        accumulate(&mut rig, &mut pelt, tick * 4 * PERIOD, 1024, 256);
    }
    assert!(pelt.util_avg >= 1023 && pelt.behind == 0, "{pelt:?}");
    rig.call(rig.u.pelt_accumulate, (&raw mut pelt, 4032 * PERIOD, 0, 1024, 256));
    assert!(pelt.util_avg.abs_diff(512) <= 2, "{}", pelt.util_avg);
}

/// The distance of the two clocks is noted again after a second, not before, when the sum is brought up to date.
#[test]
fn the_loaders_clock_is_noted_once_a_second() {
    let mut rig = Rig::new("1x1x1x1", &[]);
    update(&mut rig, 0, 5_000_000_000, true);
    assert_eq!(rig.cpu(0, |c| (c.mono_at, c.mono_offset)), (5_000_000_000, 0));
    let later = 6_000_000_000 + PERIOD;
    for (now, noted) in [(6_000_000_000, 5_000_000_000), (later, later)] {
        update(&mut rig, 0, now, true);
        assert_eq!(rig.cpu(0, |c| c.mono_at), noted);
    }
}

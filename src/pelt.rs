// SPDX-License-Identifier: GPL-2.0-only
//! Per-entity load tracking on the reader's side: the decay factors for the BPF program, and the
//! decay from its last state to now. `bpf/core/pelt.bpf.h` has the same arithmetic.

use crate::bpf_intf::{
    pelt_consts_CAPACITY_SCALE as CAPACITY_SCALE, pelt_consts_PELT_HALFLIFE as HALFLIFE,
    pelt_consts_PELT_LOAD_AVG_MAX as LOAD_AVG_MAX, pelt_consts_PELT_PERIOD as PERIOD,
    pelt_consts_PELT_UNIT_SHIFT as UNIT_SHIFT,
};

/// Return the kernel's `runnable_avg_yN_inv`: `(2^32 - 1) * y^n` with `y^HALFLIFE = 1/2`.
pub fn decay_factors() -> [u32; HALFLIFE as usize] {
    std::array::from_fn(|n| (f64::from(u32::MAX) * 0.5f64.powf(n as f64 / f64::from(HALFLIFE))) as u32)
}

/// PELT state of a CPU.
#[derive(Clone, Copy, Debug, Default)]
pub struct Pelt {
    /// CLOCK_MONOTONIC ns up to which time is accounted.
    pub updated_at: u64,
    /// Weighted sum of use, 0..LOAD_AVG_MAX * CAPACITY_SCALE.
    pub util_sum: u64,
    /// Units of 1024 ns into the running period, 0..PERIOD.
    pub period_contrib: u32,
    /// Scale of use since `updated_at`: the CPU's capacity, or 0 if it is idle.
    pub scale: u32,
}

impl Pelt {
    /// Return the utilization at `now` (CLOCK_MONOTONIC ns, or `updated_at` if later), 0..1024.
    pub fn util_at(&self, now: u64, factors: &[u32; HALFLIFE as usize]) -> u32 {
        let delta = now.saturating_sub(self.updated_at) >> UNIT_SHIFT;
        let into = u64::from(self.period_contrib) + delta;
        let (periods, d3) = (into / u64::from(PERIOD), into % u64::from(PERIOD));

        let (sum, contrib) = if periods == 0 {
            (self.util_sum, delta)
        } else {
            let d1 = u64::from(PERIOD - self.period_contrib);
            let max = u64::from(LOAD_AVG_MAX);
            let whole = max - decay(max, periods, factors) - u64::from(PERIOD);
            (decay(self.util_sum, periods, factors), decay(d1, periods, factors) + whole + d3)
        };
        let divider = u64::from(LOAD_AVG_MAX - PERIOD) + d3;
        let util = (sum + contrib * u64::from(self.scale)) / divider;
        util.min(u64::from(CAPACITY_SCALE)) as u32
    }
}

fn decay(val: u64, n: u64, factors: &[u32; HALFLIFE as usize]) -> u64 {
    let halflife = u64::from(HALFLIFE);
    if n >= 64 * halflife {
        return 0;
    }
    ((val >> (n / halflife)) * u64::from(factors[(n % halflife) as usize])) >> 32
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const MS: u64 = 1 << 20; // a PELT period in ns

    #[test]
    fn factors_halve_in_32_periods() {
        let factors = decay_factors();
        assert_eq!(factors[0], u32::MAX);
        assert_eq!(factors[1], 0xfa83b2da); // the kernel's sched-pelt.h
        assert_eq!(factors[31], 0x82cd8698);
        assert!(factors.is_sorted_by(|a, b| a > b));
    }

    #[test]
    fn idle_halves_every_32_periods() {
        let factors = decay_factors();
        let full = Pelt { util_sum: u64::from(LOAD_AVG_MAX) * 1024, ..Default::default() };
        let at = |periods| full.util_at(periods * MS, &factors);
        assert!(at(0) >= 1020, "{}", at(0));
        assert!(at(32).abs_diff(512) <= 12, "{}", at(32));
        assert!(at(64).abs_diff(256) <= 6, "{}", at(64));
        assert_eq!(at(32 * 64), 0);
    }

    #[test]
    fn busy_converges_to_the_scale() {
        let factors = decay_factors();
        for scale in [1024, 430] {
            let pelt = Pelt { scale, ..Default::default() };
            assert!(pelt.util_at(32 * MS, &factors).abs_diff(scale / 2) <= 12);
            assert!(pelt.util_at(400 * MS, &factors).abs_diff(scale) <= 3);
        }
    }

    proptest! {
        #[test]
        fn stays_in_range(
            util in 0..=1024u64, period_contrib in 0..PERIOD, scale in 0..=1024u32, elapsed in any::<u32>(), skew in 0..2u64
        ) {
            let divider = u64::from(LOAD_AVG_MAX - PERIOD + period_contrib);
            let pelt = Pelt { updated_at: skew * MS, util_sum: util * divider, period_contrib, scale };
            let now = pelt.util_at(u64::from(elapsed), &decay_factors());
            prop_assert!(u64::from(now) <= util.max(scale.into()) + 1);
        }
    }
}

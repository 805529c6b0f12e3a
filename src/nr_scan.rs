// SPDX-License-Identifier: GPL-2.0-only
//! How many CPUs of an LLC a wakeup scans: `nr_scan`, Chen Yu's SIS_UTIL (commit 70fb5ccf2e).
//! `bpf/search/nr_scan.bpf.h` has the same arithmetic, for when the loader is late.

use std::fmt;

use clap::{Args, value_parser};
use serde::Serialize;

use crate::bpf_intf::{magpie_limits_SMALL_LLC as SMALL_LLC, pelt_consts_CAPACITY_SCALE as CAPACITY_SCALE};
use crate::tunables::{Switch, Tunables};

/// The LLC and the flags for which to compute the table.
#[derive(Debug, Args)]
pub struct ScanTableOpts {
    /// Compute the table for an LLC of this many CPUs.
    ///
    /// Range: 1..1024.
    ///
    /// Example: --llc-weight 112
    #[arg(long, value_name = "N", value_parser = value_parser!(u32).range(1..=1024))]
    pub llc_weight: u32,

    /// Stop searching the LLC when its utilization exceeds 100 / PCT.
    ///
    /// Unit: percent. Range: 101..1000. Set it to the value that you consider for the scheduler's
    /// flag of this name.
    ///
    /// Example: --imbalance-pct 130
    #[arg(long, default_value_t = 117, value_name = "PCT", value_parser = value_parser!(u32).range(101..=1000))]
    pub imbalance_pct: u32,

    /// Search an LLC of 16 CPUs or fewer further than its utilization alone would allow.
    ///
    /// Example: --small-llc-boost off
    #[arg(long, value_enum, default_value_t = Switch::On)]
    pub small_llc_boost: Switch,

    /// Print JSON.
    #[arg(long)]
    pub json: bool,
}

/// Flags that bound the search.
#[derive(Clone, Copy, Debug)]
pub struct ScanLimit {
    /// --no-scan-limit.
    pub unlimited: bool,
    pub imbalance_pct: u32,
    pub small_llc_boost: bool,
}

impl From<&Tunables> for ScanLimit {
    fn from(tunables: &Tunables) -> Self {
        Self {
            unlimited: tunables.no_scan_limit,
            imbalance_pct: tunables.imbalance_pct,
            small_llc_boost: tunables.small_llc_boost == Switch::On,
        }
    }
}

impl ScanLimit {
    /// Return the number of CPUs to scan, 0..nr_cpus, in an LLC of `nr_cpus` CPUs. `sum_util` is
    /// its utilization, `capacity` its reachable capacity, both on the scale of 1024 a CPU.
    pub fn nr_scan(&self, sum_util: u32, capacity: u32, nr_cpus: u32) -> u32 {
        let scale = u64::from(CAPACITY_SCALE);
        // All CPUs of the LLC are offline.
        if nr_cpus == 0 || self.unlimited {
            return nr_cpus;
        }
        let x = u64::from(sum_util) * scale / u64::from(capacity);
        let used = (x * x * u64::from(self.imbalance_pct).pow(2) / (10_000 * scale)).min(scale);
        let nr = (u64::from(nr_cpus) * (scale - used) / scale) as u32;
        match self.small_llc_boost && nr_cpus <= SMALL_LLC {
            true => (nr * 2 * SMALL_LLC / nr_cpus).min(nr_cpus),
            false => nr,
        }
    }
}

/// `nr_scan` by utilization, for `scx_magpie scan-table`.
#[derive(Debug, Serialize)]
pub struct Table {
    llc_weight: u32,
    rows: Vec<Row>,
}

#[derive(Debug, Serialize)]
struct Row {
    #[serde(rename = "sum_util%")]
    sum_util_pct: u32,
    nr_scan: u32,
}

impl Table {
    /// Compute the table for the utilizations of the author's tables.
    pub fn new(args: &ScanTableOpts) -> Self {
        let small_llc_boost = args.small_llc_boost == Switch::On;
        let limit = ScanLimit { unlimited: false, imbalance_pct: args.imbalance_pct, small_llc_boost };
        let rows = [0, 5, 15, 25, 35, 45, 55, 65, 75, 85, 86, 95, 100].map(|pct| Row {
            sum_util_pct: pct,
            nr_scan: {
                // Utilization of the average CPU, as in the author's tables.
                let x = pct * CAPACITY_SCALE / 100;
                limit.nr_scan(x * args.llc_weight, args.llc_weight * CAPACITY_SCALE, args.llc_weight)
            },
        });
        Self { llc_weight: args.llc_weight, rows: rows.into() }
    }
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "LLC of {} CPUs", self.llc_weight)?;
        writeln!(f, "sum_util%  nr_scan")?;
        self.rows.iter().try_for_each(|row| writeln!(f, "{:>9}  {:>7}", row.sum_util_pct, row.nr_scan))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn table(llc_weight: u32, small_llc_boost: Switch) -> Vec<u32> {
        let args = ScanTableOpts { llc_weight, imbalance_pct: 117, small_llc_boost, json: false };
        Table::new(&args).rows.iter().map(|row| row.nr_scan).collect()
    }

    #[test]
    fn the_authors_tables() {
        assert_eq!(table(112, Switch::Off)[..11], [112, 111, 108, 102, 93, 81, 65, 47, 25, 1, 0]);
        assert_eq!(table(16, Switch::Off)[..11], [16, 15, 15, 14, 13, 11, 9, 6, 3, 0, 0]);
        // "For LLC domain with 16 CPUs, the nr_scan will be expanded to 2 times large."
        assert_eq!(table(16, Switch::On)[..11], [16, 16, 16, 16, 16, 16, 16, 12, 6, 0, 0]);
        assert_eq!(table(112, Switch::On), table(112, Switch::Off));
    }

    #[test]
    fn without_a_limit_all_are_searched() {
        let limit = ScanLimit { unlimited: true, imbalance_pct: 117, small_llc_boost: true };
        assert_eq!([0, 20].map(|nr_cpus| limit.nr_scan(nr_cpus * CAPACITY_SCALE, CAPACITY_SCALE, nr_cpus)), [0, 20]);
    }

    proptest! {
        #[test]
        fn its_shape(nr_cpus in 1..=1024u32, imbalance_pct in 101..=1000u32, boost: bool, a in 0..=1024u32, b in 0..=1024u32) {
            let limit = ScanLimit { unlimited: false, imbalance_pct, small_llc_boost: boost };
            let at = |util: u32| limit.nr_scan(util * nr_cpus, nr_cpus * 1024, nr_cpus);
            prop_assert_eq!(at(0), nr_cpus);
            prop_assert!(at(a.min(b)) >= at(a.max(b)));
            prop_assert!(at(a) <= nr_cpus);
            if a * imbalance_pct >= 102_400 {
                prop_assert_eq!(at(a), 0);
            }
        }
    }
}

// SPDX-License-Identifier: GPL-2.0-only
//! Results of searches for an idle CPU: the rates that SIS_UTIL's author defines.

use super::percent;
use crate::bpf_intf::*;

/// Counts of an interval's searches. SIS_UTIL's author defines the rates, and gives tables of them
/// (commit 70fb5ccf2e).
#[derive(Clone, Copy, Debug)]
pub struct SearchCounts {
    pub search: u64,
    /// Searches that continued past the fast candidates.
    pub domain_search: u64,
    /// CPUs scanned by these.
    pub domain_scanned: u64,
    pub failed: u64,
}

impl SearchCounts {
    pub fn of(count: impl Fn(magpie_stat) -> u64) -> Self {
        let search = count(magpie_stat_STAT_SEARCH);
        let fast = count(magpie_stat_STAT_TARGET) + count(magpie_stat_STAT_PREV) + count(magpie_stat_STAT_RECENT);
        Self {
            search,
            // The counters may increase while they are read.
            domain_search: search.saturating_sub(fast),
            domain_scanned: count(magpie_stat_STAT_SCANNED),
            failed: count(magpie_stat_STAT_FAILED),
        }
    }

    /// Return the number of scanned CPUs: one for each fast hit, and all CPUs past the candidates.
    pub fn scanned(&self) -> u64 {
        self.search - self.domain_search + self.domain_scanned
    }

    pub fn se_eff(&self) -> f64 {
        percent(self.search.saturating_sub(self.failed), self.scanned())
    }

    pub fn dom_eff(&self) -> f64 {
        percent(self.domain_search.saturating_sub(self.failed), self.domain_scanned)
    }

    pub fn fast_rate(&self) -> f64 {
        percent(self.search - self.domain_search, self.search)
    }

    pub fn success_rate(&self) -> f64 {
        percent(self.search.saturating_sub(self.failed), self.search)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The definitions agree with the author's tables: se_eff follows from the other three rates.
    #[test]
    fn search_rates_are_those_of_the_seed() {
        const SEARCHES: f64 = 1e12;
        let mut rows = 0;
        for line in include_str!("../../tests/data/search_efficiency.tsv").lines().filter(|line| !line.starts_with('#'))
        {
            let rates: Vec<f64> = line.split('\t').skip(2).map(|rate| rate.parse().unwrap()).collect();
            let [se_eff, dom_eff, fast_rate, success_rate] = rates[..] else { panic!("{line}") };
            // Not measured, or 0 in three digits.
            if se_eff == 0.0 || dom_eff == 0.0 {
                continue;
            }
            rows += 1;
            let domain_search = SEARCHES * (1.0 - fast_rate / 100.0);
            let failed = SEARCHES * (1.0 - success_rate / 100.0);
            let counts = SearchCounts {
                search: SEARCHES as u64,
                domain_search: domain_search as u64,
                domain_scanned: ((domain_search - failed) * 100.0 / dom_eff) as u64,
                failed: failed as u64,
            };
            let close = |a: f64, b: f64| (a - b).abs() < 0.02;
            assert!(close(counts.se_eff(), se_eff), "{line}: {counts:?}, {}", counts.se_eff());
            assert!(close(counts.dom_eff(), dom_eff), "{line}: {}", counts.dom_eff());
            assert!(close(counts.fast_rate(), fast_rate) && close(counts.success_rate(), success_rate), "{line}");
        }
        assert_eq!(rows, 59);
    }
}

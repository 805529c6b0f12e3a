// SPDX-License-Identifier: GPL-2.0-only
//! Statistics of machines whose CPUs differ in capacity: Morten Rasmussen's table of wake cases.
//!
//! ```text
//! wake_cases[] --Snapshot::new()--> Snapshot --since()--> WakeCase of each case 1..=8 --format()--> the table
//! ```

use std::cell::UnsafeCell;
use std::collections::BTreeMap;
use std::io::Write;

use anyhow::Result;
use scx_stats_derive::{Stats, stat_doc};
use serde::{Deserialize, Serialize};

use super::rise;
use crate::bpf_intf::*;
use crate::shared::{Access, part};

const NR_CASES: usize = magpie_wake_case_NR_WAKE_CASES as usize;
const NR_ENDS: usize = magpie_wake_end_NR_WAKE_ENDS as usize;

/// Counters since the start, summed over CPUs; `None` if wake cases are not counted.
#[derive(Clone, Debug, Default)]
pub struct Snapshot(Option<[Counts; NR_CASES]>);

/// Wakeups of a case by placement (`enum magpie_wake_end`), on a little CPU and on a big one.
#[derive(Clone, Copy, Debug, Default)]
struct Counts {
    little: [u64; NR_ENDS],
    big: [u64; NR_ENDS],
}

/// Statistics of a case: each of task, previous CPU and waking CPU is little or big.
#[stat_doc]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, Stats)]
#[stat(_om_prefix = "w_", _om_label = "wake_case")]
#[serde(default)]
pub struct WakeCase {
    #[stat(desc = "size of the task, the previous CPU and the waking CPU: l(ittle) or b(ig)")]
    pub case: String,
    #[stat(desc = "wakeups placed on an idle little CPU that was the target, the previous or the recent CPU")]
    pub little_fast: u64,
    #[stat(desc = "wakeups placed on another idle little CPU")]
    pub little_scan: u64,
    #[stat(desc = "wakeups queued at a little CPU")]
    pub little_fallback: u64,
    #[stat(desc = "wakeups placed on an idle big CPU that was the target, the previous or the recent CPU")]
    pub big_fast: u64,
    #[stat(desc = "wakeups placed on another idle big CPU")]
    pub big_scan: u64,
    #[stat(desc = "wakeups queued at a big CPU")]
    pub big_fallback: u64,
}

/// Cases by Rasmussen's number, 1..=8.
pub type WakeCases = BTreeMap<usize, WakeCase>;

impl Snapshot {
    /// Sum the counters of the CPUs `ids`. The BPF program may write meanwhile.
    pub fn new(wake_cases: Option<&[UnsafeCell<wake_cases>]>, ids: impl Iterator<Item = usize>) -> Self {
        let Some(wake_cases) = wake_cases else { return Self(None) };
        let mut sums = [Counts::default(); NR_CASES];
        for id in ids {
            let of = &wake_cases[id];
            for (case, sum) in sums.iter_mut().enumerate() {
                for end in 0..NR_ENDS {
                    sum.little[end] += part!(of, little[case][end]).load();
                    sum.big[end] += part!(of, big[case][end]).load();
                }
            }
        }
        Self(Some(sums))
    }

    /// Return the increase since `prev`.
    pub fn since(&self, prev: &Self) -> WakeCases {
        let Some(now) = &self.0 else { return WakeCases::new() };
        let before = prev.0.unwrap_or_default();
        let case = |(index, (now, before)): (usize, (&Counts, &Counts))| {
            let since = |of: fn(&Counts) -> &[u64; NR_ENDS], end: magpie_wake_end| {
                rise(of(now)[end as usize], of(before)[end as usize])
            };
            let kind = |bit: magpie_wake_case| if index as u32 & bit != 0 { "b" } else { "l" };
            let wake_case = WakeCase {
                case: [
                    magpie_wake_case_WAKE_BIG_TASK,
                    magpie_wake_case_WAKE_BIG_PREV,
                    magpie_wake_case_WAKE_BIG_WAKING,
                ]
                .map(kind)
                .concat(),
                little_fast: since(|of| &of.little, magpie_wake_end_WAKE_FAST),
                little_scan: since(|of| &of.little, magpie_wake_end_WAKE_SCAN),
                little_fallback: since(|of| &of.little, magpie_wake_end_WAKE_FALLBACK),
                big_fast: since(|of| &of.big, magpie_wake_end_WAKE_FAST),
                big_scan: since(|of| &of.big, magpie_wake_end_WAKE_SCAN),
                big_fallback: since(|of| &of.big, magpie_wake_end_WAKE_FALLBACK),
            };
            (index + 1, wake_case)
        };
        now.iter().zip(&before).enumerate().map(case).collect()
    }
}

/// Print Rasmussen's table: wakeups of each case by placement. Nothing if cases are not counted.
pub fn format<W: Write>(cases: &WakeCases, w: &mut W) -> Result<()> {
    if cases.is_empty() {
        return Ok(());
    }
    writeln!(w, "case task prev waking | little:  fast    scan in line | big:  fast    scan in line")?;
    for (number, of) in cases {
        let kinds: Vec<char> = of.case.chars().collect();
        let [task, prev, waking] = kinds[..] else { continue };
        writeln!(
            w,
            "{number:>4} {task:>4} {prev:>4} {waking:>6} | {:>13} {:>7} {:>7} | {:>10} {:>7} {:>7}",
            of.little_fast, of.little_scan, of.little_fallback, of.big_fast, of.big_scan, of.big_fallback
        )?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counted(case: usize, end: magpie_wake_end, count: u64) -> UnsafeCell<wake_cases> {
        // SAFETY: plain integers.
        let mut cases: wake_cases = unsafe { std::mem::zeroed() };
        cases.little[case][end as usize] = count;
        cases.big[case][end as usize] = 10 * count;
        UnsafeCell::new(cases)
    }

    #[test]
    fn cpus_add_up_by_case() {
        let cpus = [counted(0, magpie_wake_end_WAKE_FAST, 1), counted(6, magpie_wake_end_WAKE_SCAN, 2)];
        let before = Snapshot::new(Some(&cpus[..1]), 0..1);
        let cases = Snapshot::new(Some(&cpus), 0..2).since(&before);
        assert_eq!(cases.len(), 8);
        assert_eq!((cases[&1].case.as_str(), cases[&1].little_fast, cases[&1].big_fast), ("lll", 0, 0));
        assert_eq!((cases[&7].case.as_str(), cases[&7].little_scan, cases[&7].big_scan), ("bbl", 2, 20));
        assert_eq!(cases[&2].case, "llb");
        // The scheduler has restarted.
        assert_eq!(before.since(&Snapshot::new(Some(&cpus), 0..2))[&7].big_scan, 0);

        let mut out = Vec::new();
        format(&cases, &mut out).unwrap();
        let out = String::from_utf8(out).unwrap();
        assert_eq!(out.lines().count(), 9, "{out}");
        assert!(out.lines().nth(7).unwrap().starts_with("   7    b    b      l |"), "{out}");
    }

    #[test]
    fn where_none_are_counted_there_is_no_table() {
        let cases = Snapshot::new(None, 0..0).since(&Snapshot::default());
        let mut out = Vec::new();
        format(&cases, &mut out).unwrap();
        assert!(cases.is_empty() && out.is_empty());
    }
}

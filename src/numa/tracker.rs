// SPDX-License-Identifier: GPL-2.0-only
//! Select the processes to sample: the busiest, and rarely those whose memory does not move.

use std::collections::{BTreeSet, HashMap};
use std::time::{Duration, Instant};

use super::maps::Pass;
use crate::bpf_intf::process;

/// Interval between two samples of a process. It doubles while the memory stays on its node.
const INTERVAL: Duration = Duration::from_millis(500);
const MAX_INTERVAL: Duration = Duration::from_secs(60);

/// Maximum number of busy processes that are sampled, the busiest ones.
const MAX_BUSY: usize = 32;

/// Ticks per round that make a process busy: about 4 % of a CPU.
const MIN_CHECKS: u64 = 5;

/// State of a process.
pub struct Known {
    /// Ticks counted at the last round.
    checks: u64,
    pub due: Instant,
    interval: Duration,
    pub pass: Option<Pass>,
    /// Size of its memory at the last sample, kB.
    kb: u64,
}

impl Known {
    /// Note the memory's size. Return true if it has changed by more than a quarter.
    pub fn resized(&mut self, kb: u64) -> bool {
        let before = std::mem::replace(&mut self.kb, kb);
        kb.abs_diff(before) > before / 4
    }

    /// Schedule the next sample. `stays`: the memory is still on the same node.
    pub fn sampled(&mut self, now: Instant, stays: bool) {
        self.interval = if stays { (2 * self.interval).min(MAX_INTERVAL) } else { INTERVAL };
        self.due = now + self.interval;
    }
}

/// Processes that use CPU time, and when each is sampled next.
#[derive(Default)]
pub struct Tracker {
    pub known: HashMap<i32, Known>,
}

impl Tracker {
    /// Return the busiest processes since the last round that are due, from the map's entries. The
    /// longest overdue come first, so that a process with many mappings does not shut out others.
    pub fn due(&mut self, now: Instant, entries: &[(i32, process)]) -> Vec<(i32, process)> {
        let present: BTreeSet<i32> = entries.iter().map(|&(tgid, _)| tgid).collect();
        self.known.retain(|tgid, _| present.contains(tgid));
        let mut busy = Vec::new();
        for &(tgid, process) in entries {
            let first = Known { checks: 0, due: now, interval: INTERVAL, pass: None, kb: 0 };
            let known = self.known.entry(tgid).or_insert(first);
            // The kernel may have dropped and recreated the entry.
            let checks = process.checks.checked_sub(known.checks).unwrap_or(process.checks);
            known.checks = process.checks;
            if checks >= MIN_CHECKS {
                busy.push((checks, tgid, process));
            }
        }
        busy.sort_by_key(|&(checks, tgid, _)| (std::cmp::Reverse(checks), tgid));
        busy.truncate(MAX_BUSY);
        busy.retain(|(_, tgid, _)| self.known[tgid].due <= now);
        busy.sort_by_key(|(_, tgid, _)| self.known[tgid].due);
        busy.into_iter().map(|(_, tgid, process)| (tgid, process)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bpf_intf::NO_NODE;

    fn used(checks: u64) -> process {
        process { checks, node: NO_NODE, pad: 0 }
    }

    #[test]
    fn the_busiest_come_first_and_rest_longer_while_they_stay() {
        let mut tracker = Tracker::default();
        let start = Instant::now();
        let at = |ms| start + Duration::from_millis(ms);
        let mut entries: Vec<_> = (1..=40).map(|tgid| (tgid, used(10 * tgid as u64))).collect();
        entries.push((50, used(MIN_CHECKS - 1)));
        let tgids = |due: Vec<(i32, process)>| due.into_iter().map(|(tgid, _)| tgid).collect::<Vec<_>>();
        let due = tgids(tracker.due(at(0), &entries));
        assert_eq!((due.len(), due[0], due[31]), (MAX_BUSY, 40, 9));

        // All except two are idle since then.
        entries[6].1.checks += 20;
        entries[39].1.checks += 30;
        let known = tracker.known.get_mut(&40).unwrap();
        assert_eq!([1000, 1250, 1500, 2000, 100].map(|kb| known.resized(kb)), [true, false, false, true, true]);
        for (stays, ms) in [(true, 1000), (true, 2000), (true, 4000), (false, 500), (true, 1000), (true, 2000)] {
            known.sampled(at(0), stays);
            assert_eq!(known.interval, Duration::from_millis(ms));
        }
        assert_eq!(tgids(tracker.due(at(1999), &entries)), [7]);
        entries[39].1.checks += 30;
        assert_eq!(tgids(tracker.due(at(2000), &entries)), [40]);
        // The entry was recreated.
        entries[39].1.checks = 6;
        assert_eq!(tgids(tracker.due(at(2500), &entries)), [40]);
        // A process that is overdue for longer precedes a busier one.
        tracker.known.get_mut(&40).unwrap().due = at(2500);
        tracker.known.get_mut(&7).unwrap().due = at(2400);
        (entries[6].1.checks, entries[39].1.checks) = (200, 900);
        assert_eq!(tgids(tracker.due(at(2600), &entries)), [7, 40]);
        for _ in 0..10 {
            tracker.known.get_mut(&40).unwrap().sampled(at(0), true);
        }
        assert_eq!(tracker.known[&40].interval, MAX_INTERVAL);
        tracker.due(at(3000), &entries[..3]);
        assert_eq!(tracker.known.len(), 3);
    }
}

// SPDX-License-Identifier: GPL-2.0-only
//! Which process is looked at next: the busiest, less and less often while their memory stays where it is.

use std::collections::{BTreeSet, HashMap};
use std::time::{Duration, Instant};

use super::maps::Pass;
use crate::bpf_intf::process;

/// How often a process is looked at: less and less often while its memory stays where it is.
const INTERVAL: Duration = Duration::from_millis(500);
const MAX_INTERVAL: Duration = Duration::from_secs(60);

/// At most so many processes take turns, those that use most.
const MAX_BUSY: usize = 32;

/// Ticks in a round that make a process busy: some 4 % of a CPU.
const MIN_LOOKS: u64 = 5;

/// What is known of a process.
pub struct Known {
    /// At the last round.
    looks: u64,
    pub due: Instant,
    interval: Duration,
    pub pass: Option<Pass>,
    /// Its memory when it was last looked at, kB.
    kb: u64,
}

impl Known {
    /// Has it so much more or less memory now that it may soon be elsewhere? Remembers how much it is.
    pub fn resized(&mut self, kb: u64) -> bool {
        let before = std::mem::replace(&mut self.kb, kb);
        kb.abs_diff(before) > before / 4
    }

    /// Its memory was looked at; `stays` where it was.
    pub fn looked_at(&mut self, now: Instant, stays: bool) {
        self.interval = if stays { (2 * self.interval).min(MAX_INTERVAL) } else { INTERVAL };
        self.due = now + self.interval;
    }
}

/// Which processes use CPU time, and which one is looked at next.
#[derive(Default)]
pub struct Tracker {
    pub known: HashMap<i32, Known>,
}

impl Tracker {
    /// Of all processes that the map has now: the busiest since the last round whose turn it is. First those that have waited
    /// longest for it, so that one of many mappings, which is gone on with again and again, does not shut out others.
    pub fn due(&mut self, now: Instant, entries: &[(i32, process)]) -> Vec<(i32, process)> {
        let present: BTreeSet<i32> = entries.iter().map(|&(tgid, _)| tgid).collect();
        self.known.retain(|tgid, _| present.contains(tgid));
        let mut busy = Vec::new();
        for &(tgid, process) in entries {
            let first = Known { looks: 0, due: now, interval: INTERVAL, pass: None, kb: 0 };
            let known = self.known.entry(tgid).or_insert(first);
            // The kernel may have forgotten the entry, and made it anew.
            let looks = process.looks.checked_sub(known.looks).unwrap_or(process.looks);
            known.looks = process.looks;
            if looks >= MIN_LOOKS {
                busy.push((looks, tgid, process));
            }
        }
        busy.sort_by_key(|&(looks, tgid, _)| (std::cmp::Reverse(looks), tgid));
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

    fn used(looks: u64) -> process {
        process { looks, node: NO_NODE, pad: 0 }
    }

    #[test]
    fn the_busiest_come_first_and_rest_longer_while_they_stay() {
        let mut tracker = Tracker::default();
        let start = Instant::now();
        let at = |ms| start + Duration::from_millis(ms);
        let mut entries: Vec<_> = (1..=40).map(|tgid| (tgid, used(10 * tgid as u64))).collect();
        entries.push((50, used(MIN_LOOKS - 1)));
        let tgids = |due: Vec<(i32, process)>| due.into_iter().map(|(tgid, _)| tgid).collect::<Vec<_>>();
        let due = tgids(tracker.due(at(0), &entries));
        assert_eq!((due.len(), due[0], due[31]), (MAX_BUSY, 40, 9));

        // All but two have used nothing since.
        entries[6].1.looks += 20;
        entries[39].1.looks += 30;
        let known = tracker.known.get_mut(&40).unwrap();
        assert_eq!([1000, 1250, 1500, 2000, 100].map(|kb| known.resized(kb)), [true, false, false, true, true]);
        for (stays, ms) in [(true, 1000), (true, 2000), (true, 4000), (false, 500), (true, 1000), (true, 2000)] {
            known.looked_at(at(0), stays);
            assert_eq!(known.interval, Duration::from_millis(ms));
        }
        assert_eq!(tgids(tracker.due(at(1999), &entries)), [7]);
        entries[39].1.looks += 30;
        assert_eq!(tgids(tracker.due(at(2000), &entries)), [40]);
        // Made anew.
        entries[39].1.looks = 6;
        assert_eq!(tgids(tracker.due(at(2500), &entries)), [40]);
        // One that has waited longer comes before one that has used more.
        tracker.known.get_mut(&40).unwrap().due = at(2500);
        tracker.known.get_mut(&7).unwrap().due = at(2400);
        (entries[6].1.looks, entries[39].1.looks) = (200, 900);
        assert_eq!(tgids(tracker.due(at(2600), &entries)), [7, 40]);
        for _ in 0..10 {
            tracker.known.get_mut(&40).unwrap().looked_at(at(0), true);
        }
        assert_eq!(tracker.known[&40].interval, MAX_INTERVAL);
        tracker.due(at(3000), &entries[..3]);
        assert_eq!(tracker.known.len(), 3);
    }
}

// SPDX-License-Identifier: GPL-2.0-only
//! Detect when busy CPUs stalled: they did not even take their own interrupts.

use std::collections::BTreeMap;

use crate::trace::{Event, Line};

/// A busy CPU that takes its own interrupt later than this has stalled. us
const LATE: f64 = 100.0;

/// Stalls of busy CPUs: from, to; in us, by CPU.
#[derive(Default)]
pub struct Still(Vec<Vec<(f64, f64)>>);

impl Still {
    pub fn new<'a>(nr_cpus: usize, lines: impl Iterator<Item = &'a Line>) -> Self {
        let mut still = vec![Vec::new(); nr_cpus];
        let mut busy = vec![false; nr_cpus];
        // Due times of the timers that each CPU set while it was busy.
        let mut due = vec![BTreeMap::new(); nr_cpus];
        // When each CPU sent itself an interrupt.
        let mut sent = vec![None; nr_cpus];
        for &Line { cpu, now, ref event, .. } in lines {
            match *event {
                Event::Switch { next, .. } => busy[cpu] = next != 0,
                // A CPU that halts takes interrupts.
                Event::Halt => due[cpu].clear(),
                Event::Told { cpu: to } if to == cpu => _ = sent[cpu].get_or_insert(now),
                Event::IrqWork => {
                    if let Some(since) = sent[cpu].take().filter(|since| now - since > LATE) {
                        still[cpu].push((since, now));
                    }
                }
                Event::Start { timer, due: at } => {
                    due.iter_mut().for_each(|due| _ = due.remove(&timer));
                    if busy[cpu] {
                        due[cpu].insert(timer, at);
                    }
                }
                Event::Cancel { timer } => due.iter_mut().for_each(|due| _ = due.remove(&timer)),
                Event::Timer => {
                    let since = due[cpu].values().copied().fold(now, f64::min);
                    if now - since > LATE {
                        still[cpu].push((since, now));
                    }
                    due[cpu].retain(|_, &mut at| at > now);
                }
                _ => {}
            }
        }
        Self(still)
    }

    /// Return the stalls of a CPU within a period.
    pub fn within(&self, cpu: usize, from: f64, to: f64) -> impl Iterator<Item = (f64, f64)> {
        clipped(&self.0[cpu], from, to)
    }

    /// Return the number of stalls.
    pub fn count(&self) -> usize {
        self.0.iter().map(Vec::len).sum()
    }

    /// Return the longest stall, us.
    pub fn longest(&self) -> f64 {
        self.0.iter().flatten().map(|still| still.1 - still.0).fold(0.0, f64::max)
    }
}

/// Clip spans, which are in order of their ends, to a period.
pub fn clipped(spans: &[(f64, f64)], from: f64, to: f64) -> impl Iterator<Item = (f64, f64)> {
    let first = spans.partition_point(|span| span.1 <= from);
    spans[first..].iter().take_while(move |span| span.0 < to).map(move |span| (span.0.max(from), span.1.min(to)))
}

/// Return the parts of a span that no other span covers.
pub fn without((mut from, to): (f64, f64), mut others: Vec<(f64, f64)>) -> Vec<(f64, f64)> {
    others.sort_by(|a, b| a.0.total_cmp(&b.0));
    let mut left = Vec::new();
    for other in others.into_iter().chain([(to, to)]) {
        if from < other.0.min(to) {
            left.push((from, other.0.min(to)));
        }
        from = from.max(other.1);
    }
    left
}

/// Return the length of the union of the spans.
pub fn union(mut spans: Vec<(f64, f64)>) -> f64 {
    spans.sort_by(|a, b| a.0.total_cmp(&b.0));
    let (mut sum, mut end) = (0.0, 0.0_f64);
    for (from, to) in spans {
        sum += (to - from.max(end)).max(0.0);
        end = end.max(to);
    }
    sum
}

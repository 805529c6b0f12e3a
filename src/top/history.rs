// SPDX-License-Identifier: GPL-2.0-only
//! The last five minutes of a few figures, for sparklines.

use std::collections::VecDeque;

use crate::stats::Metrics;
use crate::stats::column::seconds;

/// How long figures are kept.
const SPAN_MS: u64 = 5 * 60 * 1000;

/// The figures that are kept.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Trend {
    Util,
    Busy,
    Wakeups,
    Found,
    Waiting,
    Stolen,
}

const NR_TRENDS: usize = Trend::Stolen as usize + 1;

/// The figures of one interval.
struct Point {
    from: u64,
    to: u64,
    values: [f64; NR_TRENDS],
}

#[derive(Default)]
pub struct History {
    points: VecDeque<Point>,
    /// Sum of all intervals so far, ms.
    now: u64,
}

impl History {
    pub fn add(&mut self, metrics: &Metrics) {
        let (total, seconds) = (&metrics.total, seconds(metrics.interval_ms));
        let from = self.now;
        self.now += metrics.interval_ms;
        let values = [
            total.util,
            total.busy,
            (total.search + total.handoff) as f64 / seconds,
            total.success_rate,
            total.nr_queued as f64,
            total.stolen as f64 / seconds,
        ];
        self.points.push_back(Point { from, to: self.now, values });
        while self.points.front().is_some_and(|point| point.to + SPAN_MS <= self.now) {
            self.points.pop_front();
        }
    }

    /// Drop the history of another scheduler.
    pub fn clear(&mut self) {
        *self = Self::default();
    }

    /// Return the value of the last interval.
    pub fn last(&self, trend: Trend) -> f64 {
        self.points.back().map_or(0.0, |point| point.values[trend as usize])
    }

    /// Return the highest value of the five minutes.
    pub fn highest(&self, trend: Trend) -> f64 {
        self.points.iter().map(|point| point.values[trend as usize]).fold(0.0, f64::max)
    }

    /// Return the averages of `nr_parts` equal parts of the five minutes, the last first.
    pub fn parts(&self, trend: Trend, nr_parts: usize) -> Vec<Option<f64>> {
        let length = SPAN_MS as f64 / nr_parts as f64;
        let mut sums = vec![(0.0, 0.0); nr_parts];
        for point in &self.points {
            // Time since the point's begin and end.
            let (began, ended) = ((self.now - point.from) as f64, (self.now - point.to) as f64);
            let (first, last) = ((ended / length) as usize, (began / length).ceil() as usize);
            for (part, sum) in sums.iter_mut().enumerate().take(last).skip(first) {
                let (near, far) = (part as f64 * length, (part + 1) as f64 * length);
                let common = (began.min(far) - ended.max(near)).max(0.0);
                sum.0 += point.values[trend as usize] * common;
                sum.1 += common;
            }
        }
        sums.into_iter().map(|(sum, time)| (time > 0.0).then(|| sum / time)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stats::Group;

    fn interval(util: f64, interval_ms: u64) -> Metrics {
        Metrics { total: Group { util, ..Group::default() }, interval_ms, ..Metrics::default() }
    }

    #[test]
    fn parts_are_averages_by_time() {
        let mut history = History::default();
        for (util, ms) in [(90.0, 30_000), (10.0, 100_000), (40.0, 20_000)] {
            history.add(&interval(util, ms));
        }
        // Five parts of a minute each.
        let parts = history.parts(Trend::Util, 5);
        assert_eq!((history.last(Trend::Util), history.highest(Trend::Util)), (40.0, 90.0));
        assert_eq!(parts, [Some(20.0), Some(10.0), Some(90.0), None, None]);
    }

    #[test]
    fn no_more_than_five_minutes_are_kept() {
        let mut history = History::default();
        (0..2000).for_each(|second| history.add(&interval(second as f64, 1000)));
        assert_eq!(history.points.len(), 300);
        assert_eq!(history.parts(Trend::Util, 300)[0], Some(1999.0));
        assert_eq!(history.parts(Trend::Util, 300)[299], Some(1700.0));
    }
}

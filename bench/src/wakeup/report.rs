// SPDX-License-Identifier: GPL-2.0-only
//! Results of a run, as percentiles by nearest rank.

use std::fmt;

use serde::Serialize;

/// Latencies of a worker in ns, one of each kind per request.
#[derive(Default)]
pub struct Latencies {
    /// From the wakeup by a message thread until the worker runs.
    pub wakeup: Vec<u64>,
    /// From the same time until the request is done.
    pub request: Vec<u64>,
}

impl Latencies {
    pub fn append(&mut self, mut other: Self) {
        self.wakeup.append(&mut other.wakeup);
        self.request.append(&mut other.request);
    }
}

#[derive(Debug, PartialEq, Serialize)]
pub struct Report {
    pub wakeups: usize,
    /// Requests per second. Each wakeup begins one.
    pub rps: f64,
    pub p50_us: f64,
    pub p75_us: f64,
    pub p90_us: f64,
    pub p95_us: f64,
    pub p99_us: f64,
    pub p999_us: f64,
    pub max_us: f64,
    pub request_p50_us: f64,
    pub request_p90_us: f64,
    pub request_p99_us: f64,
    pub request_max_us: f64,
}

impl Report {
    /// Summarize a run of `seconds`.
    pub fn new(Latencies { mut wakeup, mut request }: Latencies, seconds: u64) -> Self {
        wakeup.sort_unstable();
        request.sort_unstable();
        let of = |latencies: &[u64], share: f64| {
            let index = (latencies.len() as f64 * share).ceil() as usize;
            latencies.get(index.saturating_sub(1)).map_or(0.0, |&ns| ns as f64 / 1000.0)
        };
        let at = |share| of(&wakeup, share);
        let request_at = |share| of(&request, share);
        Self {
            wakeups: wakeup.len(),
            rps: wakeup.len() as f64 / seconds as f64,
            p50_us: at(0.5),
            p75_us: at(0.75),
            p90_us: at(0.9),
            p95_us: at(0.95),
            p99_us: at(0.99),
            p999_us: at(0.999),
            max_us: at(1.0),
            request_p50_us: request_at(0.5),
            request_p90_us: request_at(0.9),
            request_p99_us: request_at(0.99),
            request_max_us: request_at(1.0),
        }
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        let Report { wakeups, rps, p50_us, p75_us, p90_us, p95_us, p99_us, p999_us, max_us, .. } = self;
        writeln!(f, "{wakeups} wakeups, {rps:.0} a second")?;
        writeln!(
            f,
            "wakeup us: p50 {p50_us:.0} p75 {p75_us:.0} p90 {p90_us:.0} p95 {p95_us:.0} p99 {p99_us:.0} \
             p99.9 {p999_us:.0} max {max_us:.0}"
        )?;
        let Report { request_p50_us, request_p90_us, request_p99_us, request_max_us, .. } = self;
        write!(
            f,
            "request us: p50 {request_p50_us:.0} p90 {request_p90_us:.0} p99 {request_p99_us:.0} max {request_max_us:.0}"
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_the_nearest_rank() {
        let us = |range: std::ops::RangeInclusive<u64>| range.rev().map(|us| us * 1000).collect::<Vec<u64>>();
        let report = Report::new(Latencies { wakeup: us(1..=1000), request: us(1001..=2000) }, 10);
        assert_eq!((report.p50_us, report.p99_us, report.p999_us, report.max_us), (500.0, 990.0, 999.0, 1000.0));
        assert_eq!((report.request_p50_us, report.request_p90_us), (1500.0, 1900.0));
        assert_eq!((report.request_p99_us, report.request_max_us), (1990.0, 2000.0));
        assert_eq!(report.rps, 100.0);
        assert_eq!(Report::new(Latencies::default(), 1).max_us, 0.0);
        assert_eq!(Report::new(Latencies { wakeup: vec![7000], request: vec![9000] }, 1).p50_us, 7.0);
    }
}

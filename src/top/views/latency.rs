// SPDX-License-Identifier: GPL-2.0-only
//! Durations of searches for an idle CPU: percentiles and the histogram, in powers of two.

/// Return the ns within which `percent` of the searches ended (end of a bucket), if there were any.
pub fn percentile(latencies: &[u64], percent: u64) -> Option<u64> {
    let all: u64 = latencies.iter().sum();
    let mut left = (all * percent).div_ceil(100);
    for (bucket, &count) in latencies.iter().enumerate() {
        if count > 0 && count >= left {
            return Some(end(bucket));
        }
        left -= count;
    }
    None
}

/// Return the end and the count of each bucket from the first to the last with a count.
pub fn buckets(latencies: &[u64]) -> Vec<(u64, u64)> {
    let used = |count: &u64| *count > 0;
    let (Some(first), Some(last)) = (latencies.iter().position(used), latencies.iter().rposition(used)) else {
        return Vec::new();
    };
    (first..=last).map(|bucket| (end(bucket), latencies[bucket])).collect()
}

/// Return the end of a bucket, which covers [2^i, 2^(i+1)) ns.
fn end(bucket: usize) -> u64 {
    2 << bucket
}

/// Format a duration with its unit: 512 ns, 1.0 us.
pub fn duration(ns: u64) -> String {
    match ns {
        0..1000 => format!("{ns} ns"),
        1000..1_000_000 => format!("{:.1} us", ns as f64 / 1e3),
        1_000_000..1_000_000_000 => format!("{:.1} ms", ns as f64 / 1e6),
        _ => format!("{:.1} s", ns as f64 / 1e9),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_where_their_buckets_end() {
        let mut latencies = [0; 32];
        (latencies[8], latencies[9], latencies[12]) = (49, 50, 1);
        assert_eq!(percentile(&latencies, 49), Some(512));
        assert_eq!(percentile(&latencies, 50), Some(1024));
        assert_eq!(percentile(&latencies, 99), Some(1024));
        assert_eq!(percentile(&latencies, 100), Some(8192));
        assert_eq!(percentile(&[0; 32], 50), None);
        assert_eq!(percentile(&[], 50), None);
        assert_eq!(buckets(&latencies), [(512, 49), (1024, 50), (2048, 0), (4096, 0), (8192, 1)]);
        assert_eq!([512, 1024, 4_194_304].map(duration), ["512 ns", "1.0 us", "4.2 ms"]);
    }
}

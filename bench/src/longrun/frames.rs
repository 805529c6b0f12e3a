// SPDX-License-Identifier: GPL-2.0-only
//! Accounting of frames. Times are nanoseconds of CLOCK_MONOTONIC:
//!
//! ```text
//! frame 0 begins   frame 0 is due; 1 begins   1 is due; 2 begins
//! first            first + period             first + 2 * period
//! ```

use std::ops::Range;
use std::str::FromStr;

/// The frames of `--frames WORK_US,PERIOD_US`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Frames {
    /// CPU time of a frame.
    pub work_us: u64,
    pub period_us: u64,
}

impl FromStr for Frames {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let numbers = text.split_once(',').and_then(|(work, period)| Some((work.parse().ok()?, period.parse().ok()?)));
        let (work_us, period_us) = numbers.ok_or("two numbers are needed: WORK_US,PERIOD_US")?;
        if period_us > 10_000_000 || !(1..=period_us).contains(&work_us) {
            return Err("WORK_US is 1..PERIOD_US, and PERIOD_US at most 10000000".to_string());
        }
        Ok(Frames { work_us, period_us })
    }
}

/// When frames begin and are due.
pub struct Timeline {
    /// Begin of frame 0.
    pub first: u64,
    pub period: u64,
    /// Frames count if their entire period is in this time.
    pub measured: Range<u64>,
}

impl Timeline {
    pub fn begin(&self, frame: u64) -> u64 {
        self.first + frame * self.period
    }

    pub fn counts(&self, frame: u64) -> bool {
        self.measured.start <= self.begin(frame) && self.begin(frame + 1) <= self.measured.end
    }

    pub fn is_on_time(&self, frame: u64, finished: u64) -> bool {
        finished < self.begin(frame + 1)
    }

    /// Return the frame to draw after `frame`: the next one, except those whose period has passed.
    pub fn after(&self, frame: u64, finished: u64) -> u64 {
        (frame + 1).max(finished.saturating_sub(self.first) / self.period)
    }

    /// Return how many frames count.
    pub fn due(&self) -> u64 {
        let begun_before = |time: u64| time.saturating_sub(self.first).div_ceil(self.period);
        let over_at_end = self.measured.end.saturating_sub(self.first) / self.period;
        over_at_end.saturating_sub(begun_before(self.measured.start))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TIMELINE: Timeline = Timeline { first: 1000, period: 100, measured: 1250..1700 };

    #[test]
    fn frames_count_if_their_period_is_in_the_measured_time() {
        let counted: Vec<u64> = (0..10).filter(|&frame| TIMELINE.counts(frame)).collect();
        assert_eq!((counted, TIMELINE.due()), (vec![3, 4, 5, 6], 4));
        for (measured, due) in [(1200..1700, 5), (1201..1699, 3), (1210..1290, 0), (0..1000, 0), (0..1150, 1)] {
            let timeline = Timeline { measured, ..TIMELINE };
            assert_eq!(timeline.due(), due);
            assert_eq!((0..10).filter(|&frame| timeline.counts(frame)).count() as u64, due);
        }
    }

    #[test]
    fn a_late_frame_delays_the_next_one_or_skips_it() {
        let finished = |time| (TIMELINE.is_on_time(2, time), TIMELINE.after(2, time));
        assert_eq!(finished(1250), (true, 3));
        assert_eq!(finished(1299), (true, 3));
        assert_eq!(finished(1300), (false, 3));
        assert_eq!(finished(1399), (false, 3));
        assert_eq!(finished(1400), (false, 4)); // the period of frame 3 has passed
        assert_eq!(finished(1950), (false, 9));
    }

    #[test]
    fn two_numbers_are_frames() {
        assert_eq!("7000,16600".parse(), Ok(Frames { work_us: 7000, period_us: 16600 }));
        for bad in ["", "7000", "0,5", "6,5", "7000,", "a,b", "1,2,3", "1,99999999999"] {
            assert!(bad.parse::<Frames>().is_err(), "{bad}");
        }
    }
}

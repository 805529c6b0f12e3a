// SPDX-License-Identifier: GPL-2.0-only
//! Parsers of times for flags: a number in the flag's unit, or a number with a unit. For a flag in
//! microseconds `5000` and `5ms` are equal.

use std::ops::RangeInclusive;
use std::time::Duration;

/// Maximum interval in seconds: a day. `Duration` could not hold much longer ones.
const MAX_INTERVAL: f64 = 86_400.0;

/// Return a parser of microseconds in `range`.
pub fn micros<T: TryFrom<u64>>(range: RangeInclusive<u64>) -> impl Parser<T> {
    time(Duration::from_micros(1), range)
}

/// Return a parser of milliseconds in `range`.
pub fn millis<T: TryFrom<u64>>(range: RangeInclusive<u64>) -> impl Parser<T> {
    time(Duration::from_millis(1), range)
}

/// Parse an interval: seconds, more than 0 and at most a day, or a number with a unit.
pub fn interval(text: &str) -> Result<f64, String> {
    let sec = text.parse().or_else(|_| with_unit(text).map(|time| time.as_secs_f64()))?;
    if sec > 0.0 && sec <= MAX_INTERVAL {
        return Ok(sec);
    }
    Err(format!("an interval is more than 0 and at most {MAX_INTERVAL} seconds"))
}

/// A value parser as clap accepts it.
pub trait Parser<T>: Fn(&str) -> Result<T, String> + Clone + Send + Sync + 'static {}
impl<T, F: Fn(&str) -> Result<T, String> + Clone + Send + Sync + 'static> Parser<T> for F {}

fn time<T: TryFrom<u64>>(unit: Duration, range: RangeInclusive<u64>) -> impl Parser<T> {
    move |text| {
        let value = text.parse().or_else(|_| whole(text, unit))?;
        let fits = T::try_from(value).ok().filter(|_| range.contains(&value));
        fits.ok_or_else(|| format!("{value} is not in {}..={}", range.start(), range.end()))
    }
}

fn whole(text: &str, unit: Duration) -> Result<u64, String> {
    let (time, unit_ns) = (with_unit(text)?.as_nanos(), unit.as_nanos());
    if time % unit_ns != 0 {
        return Err(format!("'{text}' is not a multiple of {unit:?}"));
    }
    u64::try_from(time / unit_ns).map_err(|_| format!("'{text}' is too long"))
}

fn with_unit(text: &str) -> Result<Duration, String> {
    humantime::parse_duration(text)
        .map_err(|_| format!("'{text}' is neither a number nor a time such as 250us, 5ms, 2s"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_and_times_with_units() {
        let slice = micros::<u64>(100..=100_000);
        for (text, value) in [("5000", 5000), ("5ms", 5000), ("250us", 250), ("100", 100), ("100ms", 100_000)] {
            assert_eq!(slice(text), Ok(value), "{text}");
        }
        for (text, error) in [
            ("99", "99 is not in 100..=100000"),
            ("1s", "1000000 is not in 100..=100000"),
            ("1500ns", "'1500ns' is not a multiple of 1µs"),
            ("-5", "'-5' is neither a number nor a time such as 250us, 5ms, 2s"),
            ("", "'' is neither a number nor a time such as 250us, 5ms, 2s"),
        ] {
            assert_eq!(slice(text), Err(error.to_string()), "{text}");
        }
        assert_eq!(millis::<u32>(1000..=30_000)("4s"), Ok(4000));
        // 2^32 + 1000: the range is checked before the value is truncated.
        assert!(millis::<u32>(1000..=u64::MAX)("4294968296").is_err());
    }

    #[test]
    fn intervals_are_positive_and_finite() {
        for bad in ["0", "-1", "nan", "inf", "1e9", "x", "0s", "2d"] {
            assert!(interval(bad).is_err(), "{bad}");
        }
        assert_eq!((interval("0.5"), interval("500ms"), interval("1d")), (Ok(0.5), Ok(0.5), Ok(86_400.0)));
    }
}

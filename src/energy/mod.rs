// SPDX-License-Identifier: GPL-2.0-only
//! Settings of the system for speed or energy: power profile (power.rs), governors and frequency
//! limits (frequency.rs). A program is loaded for one profile and one governor.

pub mod frequency;
pub mod power;

use std::time::{Duration, Instant};

use crate::tunables::{CpuFreq, Power, Tunables};
pub use frequency::Policies;

/// How often the settings are read. Users and daemons change them rarely.
pub const INTERVAL: Duration = Duration::from_secs(1);

/// How long a new setting must last before the scheduler restarts for it.
const SETTLED: Duration = Duration::from_secs(5);

/// A setting of the system for which the program was not loaded, and since when it holds.
#[derive(Default)]
pub struct Watch(Option<((Power, CpuFreq), Instant)>);

impl Watch {
    /// Return true if the system has had one setting other than `loaded` for `SETTLED`.
    pub fn has_changed(&mut self, loaded: (Power, CpuFreq), seen: (Power, CpuFreq), now: Instant) -> bool {
        if seen == loaded {
            self.0 = None;
        } else if self.0.is_none_or(|(last, _)| last != seen) {
            self.0 = Some((seen, now));
        }
        self.0.is_some_and(|(_, since)| now - since >= SETTLED)
    }
}

/// Read this machine's cpufreq policies.
pub fn policies() -> Policies {
    Policies::read(frequency::SYS_CPU.as_ref())
}

/// Resolve --power and --cpufreq for this machine now. Neither result is Auto.
pub fn of_this_machine(asked: &Tunables, policies: &Policies) -> (Power, CpuFreq) {
    let power = power::profile("/".as_ref(), asked.power);
    (power, if policies.follows(asked.cpufreq, power) { CpuFreq::On } else { CpuFreq::Off })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_profile_counts_when_it_remains() {
        let start = Instant::now();
        let loaded = (Power::Balanced, CpuFreq::On);
        let seconds_to_change = |seen: fn(u64) -> Power| {
            let mut watch = Watch::default();
            (0..60).find(|&second| {
                watch.has_changed(loaded, (seen(second), CpuFreq::On), start + Duration::from_secs(second))
            })
        };
        assert_eq!(seconds_to_change(|_| Power::Balanced), None);
        assert_eq!(seconds_to_change(|second| if second < 10 { Power::Balanced } else { Power::Powersave }), Some(15));
        // The setting alternates each second.
        assert_eq!(seconds_to_change(|second| [Power::Powersave, Power::Balanced][second as usize % 2]), None);
        assert_eq!(seconds_to_change(|second| [Power::Powersave, Power::Performance][second as usize % 2]), None);
    }
}

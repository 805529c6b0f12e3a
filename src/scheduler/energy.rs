// SPDX-License-Identifier: GPL-2.0-only
//! How the scheduler follows what the system does for speed or energy: power profile, governors, limits of frequencies.

use std::time::Duration;

use anyhow::Result;

use super::{Scheduler, memory};
use crate::tunables::{CpuFreq, Power, Tunables};
use crate::{frequency, power};

/// How often they are looked at: users and daemons set them, seldom.
pub const INTERVAL: Duration = Duration::from_secs(1);

/// --power and --cpufreq, for this machine as it is now: neither is Auto.
pub fn of_this_machine(asked: &Tunables) -> (Power, CpuFreq) {
    let power = power::profile("/".as_ref(), asked.power);
    let follows = frequency::follows(frequency::SYS_CPU.as_ref(), asked.cpufreq, power);
    (power, if follows { CpuFreq::On } else { CpuFreq::Off })
}

impl Scheduler<'_> {
    /// Would it be another one if it were loaded now?
    pub(super) fn is_of_other_energy(&self) -> bool {
        of_this_machine(&self.asked) != (self.tunables.power, self.tunables.cpufreq)
    }

    /// Tells the program what CPUs can reach under the limits that their frequencies have now.
    pub(super) fn look_at_frequencies(&mut self) -> Result<()> {
        self.publisher.set_reachable(|cpu, capacity| frequency::reachable(frequency::SYS_CPU.as_ref(), cpu, capacity));
        let shared = memory::shared(&mut self.skel, self.groups, &self.tunables)?;
        self.publisher.publish_capacities(shared.capacities);
        Ok(())
    }
}

// SPDX-License-Identifier: GPL-2.0-only
//! CPUs that come and go. Those that come get a place in the scheduler's layout (layout.rs), or it is outgrown.
//!
//! ```text
//! loading    seq(), wait_until_quiet(): nothing comes or goes
//! attached   Hotplugs::is_due() --read_machine()--> Hotplugs::follow() --> the CPUs that came: the program is notified of each
//! ```

mod layout;

use std::thread;
use std::time::{Duration, Instant};

use log::debug;
use scx_utils::misc::read_from_file;

use crate::topology::Layout;

/// No CPU came or went for so long: what has to be reloaded is loaded for the machine as it is now.
pub const QUIET: Duration = Duration::from_secs(1);

/// What failed again and again is tried so often at least.
pub const MAX_PAUSE: Duration = Duration::from_secs(30);

const INTERVAL: Duration = Duration::from_millis(50);

/// When sysfs is read once more that was changing.
const LOOK_AGAIN: Duration = Duration::from_millis(100);

/// CPUs that came and went while the scheduler ran.
pub struct Hotplugs {
    /// How many the program had seen at the last look.
    seen: u64,
    at: Instant,
    /// When to look at the machine.
    look_at: Option<Instant>,
    outgrown: bool,
}

/// None yet. CPUs may have come between the reading of the machine and the load: it is read once more.
impl Default for Hotplugs {
    fn default() -> Self {
        let now = Instant::now();
        Self { seen: 0, at: now, look_at: Some(now), outgrown: false }
    }
}

impl Hotplugs {
    /// Return true when the machine is to be read, now that the program has seen so many. Until
    /// [`follow`](Self::follow) is called that is again and again.
    pub fn is_due(&mut self, seen: u64, now: Instant) -> bool {
        if seen != self.seen {
            *self = Self { seen, at: now, look_at: Some(now), outgrown: self.outgrown };
        }
        let is_due = self.look_at.is_some_and(|at| at <= now);
        if is_due {
            self.look_at = Some(now + LOOK_AGAIN);
        }
        is_due
    }

    /// Give CPUs that came a place in `layout`, and return which those are. The machine is `fresh`.
    pub fn follow(&mut self, layout: &mut Layout, fresh: &Layout, online: impl Fn(usize) -> bool) -> Vec<usize> {
        self.look_at = None;
        let came = layout.follow(fresh, online);
        self.outgrown = came.is_none();
        came.unwrap_or_default()
    }

    /// Return true if there was no place for CPUs that came, and no other has come or gone since.
    pub fn is_outgrown(&self, now: Instant) -> bool {
        self.outgrown && now - self.at >= QUIET
    }
}

/// Lay the machine out as it is now. While CPUs come and go, files do: `None`.
pub fn read_machine(weak_first: bool) -> Option<Layout> {
    match Layout::read(weak_first) {
        Ok(Ok(fresh)) => return Some(fresh),
        Ok(Err(problem)) => debug!("{problem}"),
        Err(err) => debug!("{err:#}"),
    }
    None
}

/// The kernel's count of CPUs that came or went; 0 if it has none.
pub fn seq() -> u64 {
    read_from_file("/sys/kernel/sched_ext/hotplug_seq".as_ref()).unwrap_or(0)
}

/// Waits until no CPU has come or gone for so long. Calls `goes_on` all the while: false ends it.
pub fn wait_until_quiet(quiet: Duration, goes_on: impl FnMut(Instant) -> bool) {
    wait_until_still(seq, quiet, goes_on);
}

fn wait_until_still(seq: impl Fn() -> u64, quiet: Duration, mut goes_on: impl FnMut(Instant) -> bool) {
    let (mut last, mut since) = (seq(), Instant::now());
    while since.elapsed() < quiet && goes_on(Instant::now()) {
        thread::sleep(INTERVAL);
        let now = seq();
        if now != last {
            (last, since) = (now, Instant::now());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;

    #[test]
    fn the_watchdog_hears_of_it_while_cpus_come_and_go() {
        let (seq, calls) = (Cell::new(0), Cell::new(0));
        // A CPU comes with each of the first three calls: it is not over after the second.
        wait_until_still(
            || seq.get(),
            INTERVAL * 3 / 2,
            |_| {
                calls.set(calls.get() + 1);
                seq.set(calls.get().min(3));
                true
            },
        );
        assert!(calls.get() >= 4, "{calls:?}");
        wait_until_still(|| seq.get(), Duration::MAX, |_| false);
    }
}

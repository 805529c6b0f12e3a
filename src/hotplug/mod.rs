// SPDX-License-Identifier: GPL-2.0-only
//! CPU hotplug. New CPUs get a place in the layout (layout.rs), or the layout is outgrown.
//!
//! ```text
//! loading    seq(), wait_until_quiet(): no hotplug
//! attached   Hotplugs::is_due() --read_machine()--> Hotplugs::follow() --> new CPUs: the program is notified
//! ```

mod layout;

use std::thread;
use std::time::{Duration, Instant};

use log::debug;
use scx_utils::misc::read_from_file;

use crate::topology::Layout;

/// A reload waits until there was no hotplug for this time.
pub const QUIET: Duration = Duration::from_secs(1);

/// Longest pause between retries after repeated failures.
pub const MAX_PAUSE: Duration = Duration::from_secs(30);

const INTERVAL: Duration = Duration::from_millis(50);

/// Pause until sysfs is read again if it was changing.
const LOOK_AGAIN: Duration = Duration::from_millis(100);

/// State of CPU hotplug while the scheduler runs.
pub struct Hotplugs {
    /// Number of hotplug events that the program had counted at the last check.
    seen: u64,
    at: Instant,
    /// When to read the machine.
    look_at: Option<Instant>,
    outgrown: bool,
}

/// Start with a read of the machine: CPUs may have appeared between its first read and the load.
impl Default for Hotplugs {
    fn default() -> Self {
        let now = Instant::now();
        Self { seen: 0, at: now, look_at: Some(now), outgrown: false }
    }
}

impl Hotplugs {
    /// Return true when the machine has to be read, given the program's count `seen`. Until
    /// [`follow`](Self::follow) is called, it returns true repeatedly.
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

    /// Add the new CPUs of `fresh`, the current machine, to `layout`, and return them.
    pub fn follow(&mut self, layout: &mut Layout, fresh: &Layout, online: impl Fn(usize) -> bool) -> Vec<usize> {
        self.look_at = None;
        let came = layout.follow(fresh, online);
        self.outgrown = came.is_none();
        came.unwrap_or_default()
    }

    /// Return true if a new CPU had no place, and hotplug has been quiet since.
    pub fn is_outgrown(&self, now: Instant) -> bool {
        self.outgrown && now - self.at >= QUIET
    }
}

/// Lay out the current machine. `None` if hotplug changes files during the read.
pub fn read_machine(weak_first: bool) -> Option<Layout> {
    match Layout::read(weak_first) {
        Ok(Ok(fresh)) => return Some(fresh),
        Ok(Err(problem)) => debug!("{problem}"),
        Err(err) => debug!("{err:#}"),
    }
    None
}

/// Return the kernel's count of hotplug events; 0 if the kernel has none.
pub fn seq() -> u64 {
    read_from_file("/sys/kernel/sched_ext/hotplug_seq".as_ref()).unwrap_or(0)
}

/// Wait until hotplug has been quiet for this time. `goes_on` is polled: false ends the wait.
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
        // A CPU appears at each of the first three calls: the wait does not end after the second.
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

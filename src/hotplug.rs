// SPDX-License-Identifier: GPL-2.0-only
//! CPUs that come and go, as the kernel tells of them.

use std::thread;
use std::time::{Duration, Instant};

use scx_utils::misc::read_from_file;

/// No CPU came or went for so long: what has to be made anew is made for the machine as it is now.
pub const QUIET: Duration = Duration::from_secs(1);

/// What failed again and again is tried so often at least.
pub const MAX_PAUSE: Duration = Duration::from_secs(30);

const INTERVAL: Duration = Duration::from_millis(50);

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

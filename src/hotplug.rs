// SPDX-License-Identifier: GPL-2.0-only
//! CPUs that come and go, as the kernel tells of them.

use std::sync::atomic::{AtomicBool, Ordering};
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

/// Waits until no CPU has come or gone for so long, or `shutdown`.
pub fn wait_until_quiet(quiet: Duration, shutdown: &AtomicBool) {
    let (mut last, mut since) = (seq(), Instant::now());
    while since.elapsed() < quiet && !shutdown.load(Ordering::Relaxed) {
        thread::sleep(INTERVAL);
        let now = seq();
        if now != last {
            (last, since) = (now, Instant::now());
        }
    }
}

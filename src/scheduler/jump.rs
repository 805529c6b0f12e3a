// SPDX-License-Identifier: GPL-2.0-only
//! Whether the machine's clock has jumped: a virtual machine stood still, because it was paused or
//! its host was suspended. The kernel's watchdogs take a jump for a time in which tasks waited.
//!
//! A jump differs from a stall by timers that fire late. Of this thread's timer that is known unless
//! the thread also waited for a CPU. Then the ticks of busy CPUs tell it (cpu_ctx.stood_still).

use std::fs;
use std::thread;
use std::time::{Duration, Instant};

/// Its second number is the time that this thread has waited for a CPU, in ns. Kernels without
/// CONFIG_SCHED_INFO do not have it.
const SCHEDSTAT: &str = "/proc/thread-self/schedstat";

/// Longest delay that is no gap: no watchdog ends a scheduler for it.
const NO_GAP: Duration = Duration::from_millis(500);

/// The clock as a thread sees it that sleeps again and again.
pub struct Clock {
    woke: Instant,
    /// How long the thread had waited for a CPU at the last `note()`.
    waited: Option<Duration>,
    gap: Option<Gap>,
}

/// The thread woke `late`, and had waited for a CPU for the time `waited` of it.
#[derive(Clone, Copy)]
struct Gap {
    late: Duration,
    waited: Duration,
    seen: Instant,
}

impl Clock {
    /// Create a clock for a thread that sleeps from now on.
    pub fn new() -> Self {
        Self { woke: Instant::now(), waited: waited(), gap: None }
    }

    /// Note how long this thread has waited for a CPU. Call it about each second: what it has waited
    /// since then counts as part of a gap.
    pub fn note(&mut self) {
        self.waited = waited();
    }

    /// Sleep, and note a gap since the last sleep.
    pub fn sleep(&mut self, pause: Duration) {
        thread::sleep(pause);
        let now = Instant::now();
        let late = now.duration_since(self.woke).saturating_sub(pause);
        self.woke = now;
        if late >= NO_GAP {
            // All of it may be a wait where the kernel does not tell.
            let waited = waited().zip(self.waited).map_or(late, |(now, before)| now.saturating_sub(before));
            self.gap = Some(Gap { late, waited, seen: now });
        }
    }

    /// Return the length of a jump for which a watchdog with this time-out ends a scheduler now. No
    /// busy CPU had a tick for the time `stood_still`.
    pub fn jump(&self, timeout: Duration, stood_still: Duration) -> Option<Duration> {
        let gap = self.gap.filter(|gap| gap.seen.elapsed() < timeout)?;
        let length = gap.late.saturating_sub(gap.waited).max(gap.late.min(stood_still));
        (length >= timeout / 2).then_some(length)
    }
}

fn waited() -> Option<Duration> {
    let ns = fs::read_to_string(SCHEDSTAT).ok()?.split(' ').nth(1)?.parse().ok()?;
    Some(Duration::from_nanos(ns))
}

#[cfg(test)]
mod tests {
    use super::*;

    const TIMEOUT: Duration = Duration::from_secs(30);

    fn clock(late: u64, waited: u64, seen: Instant) -> Clock {
        let [late, waited] = [late, waited].map(Duration::from_secs);
        Clock { gap: Some(Gap { late, waited, seen }), ..Clock::new() }
    }

    #[test]
    fn a_late_timer_is_a_jump_unless_the_thread_waited() {
        let jump = |late, waited, stood_still| {
            let jump = clock(late, waited, Instant::now()).jump(TIMEOUT, Duration::from_secs(stood_still));
            jump.map(|length| length.as_secs())
        };
        assert_eq!(jump(40, 0, 0), Some(40));
        assert_eq!(jump(40, 2, 0), Some(38));
        assert_eq!(jump(14, 0, 0), None);
        // It waited.
        assert_eq!(jump(40, 40, 0), None);
        assert_eq!(jump(40, 30, 0), None);
        // The ticks decide.
        assert_eq!(jump(40, 40, 39), Some(39));
        assert_eq!(jump(40, 40, 14), None);
        // None came at another time.
        assert_eq!(jump(14, 0, 40), None);
    }

    #[test]
    fn a_jump_of_long_ago_ends_nothing() {
        let Some(seen) = Instant::now().checked_sub(TIMEOUT) else { return };
        let clock = clock(30, 0, seen);
        assert_eq!(clock.jump(TIMEOUT, Duration::ZERO), None);
        assert_eq!(clock.jump(2 * TIMEOUT, Duration::ZERO), Some(TIMEOUT));
    }

    #[test]
    fn a_thread_that_sleeps_sees_no_gap() {
        assert!(waited().is_some());
        let mut clock = Clock::new();
        clock.sleep(Duration::from_millis(1));
        assert!(clock.gap.is_none());
        // It has worked since its last sleep, or a clock has jumped.
        clock.woke -= 2 * NO_GAP;
        clock.sleep(Duration::from_millis(1));
        assert!(clock.gap.is_some());
    }
}
